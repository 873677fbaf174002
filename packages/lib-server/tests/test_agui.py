"""Threads of AG-UI on the wire; `scripts/front-ends` runs its own client."""

import asyncio
import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import httpx2
import pytest
from front_end_app import agents, look_up, refund
from pydantic import BaseModel
from server_kit import OneKey, Up, as_, echo_agent, serving

from lib import Agent, Engine
from lib.errors import LLMError
from lib.events import MemoryBlobStore, MemoryEventStore
from lib.guards import SensitiveDataGuard
from lib.llm import Attachment, FunctionClient, Message, Reply, Text, ToolCall, ToolResult
from lib_server import Limits, Quota, Server

LOST = "my order is lost"
Sent = dict[str, Any]


def user(content: Any, message_id: str = "m1") -> Sent:
    return {"id": message_id, "role": "user", "content": content}


def request(*messages: Sent, run: str = "r1", thread: str = "thread", **more: Any) -> Sent:
    """Return a request as `HttpAgent` sends it."""
    same: Sent = {"tools": [], "context": [], "forwardedProps": {}, "state": {}}
    ids = {"threadId": thread, "runId": run, "protocolVersion": "1.0"}
    return {**ids, **same, "messages": list(messages), **more}


def answer_to(interrupt: Sent, *, approved: bool | None, reason: str = "") -> Sent:
    """Return the entry that answers an interrupt; None for one that is dropped."""
    if approved is None:
        return {"interruptId": interrupt["id"], "status": "cancelled"}
    payload = {"approved": approved, "reason": reason}
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


def events_of(answer: httpx2.Response) -> list[Sent]:
    """Return the events of an answer, which begins and ends as the protocol has it."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.splitlines() if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    events = [json.loads(line[6:]) for line in lines]
    assert events[0]["type"] == "RUN_STARTED"
    assert events[0]["protocolVersion"] == "1.0"
    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    return events


async def post(up: Up, body: Any, agent: str = "shop", **headers: str) -> httpx2.Response:
    return await up.client.post(f"/agui/{agent}", json=body, headers=headers)


async def run(up: Up, body: Any, agent: str = "shop", **headers: str) -> list[Sent]:
    return events_of(await post(up, body, agent, **headers))


async def code_of(up: Up, body: Any, agent: str = "shop", **headers: str) -> tuple[int, str]:
    answer = await post(up, body, agent, **headers)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def types(events: Iterable[Sent]) -> list[str]:
    content = ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT")
    return [event["type"] for event in events if event["type"] not in content]


def text_of(events: Iterable[Sent]) -> str:
    return "".join(each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT")


def only(events: Iterable[Sent], kind: str) -> Sent:
    [found] = [event for event in events if event["type"] == kind]
    return found


def joined(events: Iterable[Sent]) -> list[Sent]:
    """Return the events with the pieces of each text joined."""
    found: list[Sent] = []
    for event in events:
        last = found[-1] if found else {}
        if event["type"] == "TEXT_MESSAGE_CONTENT" == last.get("type"):
            found[-1] = {**event, "delta": last["delta"] + event["delta"]}
        else:
            found.append(event)
    return found


def interrupts_of(events: list[Sent]) -> list[Sent]:
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    return outcome["interrupts"]


async def runs_of(up: Up, **headers: str) -> list[Sent]:
    listed = (await up.client.get("/v1/runs", headers=headers)).json()["runs"]
    return [each for each in listed if each["agent"] != "session"]


async def test_a_message_is_a_turn_of_a_session() -> None:
    async with serving(Server(agents())) as up:
        first = await run(up, request(user("a long sentence of several words")))
        answer = {"id": "a", "role": "assistant", "content": text_of(first)}
        second = await run(up, request(user("hi"), answer, user("and more", "m2"), run="r2"))
        runs = await runs_of(up)

    middle = ["STEP_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "STEP_FINISHED"]
    assert types(first) == types(second) == ["RUN_STARTED", *middle, "RUN_FINISHED"]
    assert text_of(first) == "You wrote: a long sentence of several words"
    assert text_of(second) == "You wrote: and more"
    assert [event["runId"] for event in (first[0], second[0], second[-1])] == ["r1", "r2", "r2"]
    assert second[-1]["outcome"] == {"type": "success"}
    assert second[-1]["metadata"]["run"]["outcome"] == "COMPLETED"
    assert {first[-1]["metadata"]["run"]["id"]} < {each["id"] for each in runs}
    assert len({each["parent_id"] for each in runs}) == 1


async def test_a_run_id_is_answered_once() -> None:
    async with serving(Server(agents())) as up:
        first = await run(up, request(user("hi")))
        again = await post(up, request(user("hi")))
        other = await code_of(up, request(user("ho")))
        anew = await run(up, request(user("hi"), run="r2"))
        runs = await runs_of(up)

    assert joined(events_of(again)) == joined(first)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["x-run-id"] == first[-1]["metadata"]["run"]["id"]
    assert other == (422, "idempotency_mismatch")
    assert text_of(anew) == "You wrote: hi"
    assert len(runs) == 2


@pytest.mark.parametrize("approved", [True, False, None])
async def test_an_interrupt_is_answered_and_the_answer_goes_on_behind_it(
    *, approved: bool | None
) -> None:
    async with serving(Server(agents())) as up:
        stopped = await run(up, request(user(LOST)))
        [interrupt] = interrupts_of(stopped)
        begun = [event for event in stopped if event["type"] == "TOOL_CALL_START"]
        calls = [{"id": event["toolCallId"], "type": "function"} for event in begun]
        shown = {"id": begun[0]["parentMessageId"], "role": "assistant", "toolCalls": calls}
        entry = answer_to(interrupt, approved=approved, reason="a reason")
        resume = request(user(LOST), shown, run="r2", resume=[entry])
        rest = await run(up, resume)
        again = await run(up, resume)
        other = answer_to(interrupt, approved=not approved)
        conflict = await run(up, request(user(LOST), run="r3", resume=[other]))
        path = f"/v1/runs/{stopped[-1]['metadata']['run']['id']}/approvals"
        [approval] = (await up.client.get(path)).json()["approvals"]

    called = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
    assert types(stopped) == [
        "RUN_STARTED",
        *("STEP_STARTED", *text, *called, "TOOL_CALL_RESULT", "STEP_FINISHED"),
        *("STEP_STARTED", *called, "STEP_FINISHED"),
        "RUN_FINISHED",
    ]
    assert interrupt["reason"] == "tool_call"
    assert interrupt["toolCallId"] == begun[-1]["toolCallId"]
    steps = ["STEP_STARTED", *text, "STEP_FINISHED"]
    assert types(rest) == ["RUN_STARTED", "TOOL_CALL_RESULT", *steps, "RUN_FINISHED"]
    result = only(rest, "TOOL_CALL_RESULT")
    assert result["toolCallId"] == interrupt["toolCallId"]
    assert result.get("metadata") == (None if approved else {"end": "denied"})
    assert text_of(rest) == f"Done: {'paid back' if approved else 'denied'}."
    assert rest[-1]["outcome"] == {"type": "success"}
    assert joined(again) == joined(rest)
    assert conflict[-1]["code"] == "already_decided"
    assert approval["comment"] == ("cancelled" if approved is None else "a reason")


async def test_what_breaks_the_rules_of_interrupts_is_an_error_of_the_run() -> None:
    def pays_twice(messages: Any) -> Reply | str:
        if messages[-1].role == "tool":
            return "paid"
        calls = [ToolCall(each, "refund", {"order": each}) for each in "78"]
        return Reply(parts=tuple(calls))

    agent = Agent(FunctionClient(pays_twice), name="shop", tools=[refund])
    async with serving(Server([agent])) as up:
        first, second = interrupts_of(await run(up, request(user("hi"))))
        yes, no = answer_to(first, approved=True), answer_to(second, approved=False)
        edited = {**no, "payload": {"approved": True, "editedArgs": {"order": "9"}}}
        broken = [
            await run(up, request(user("hello?", "m2"), run="r2")),
            await run(up, request(run="r2", resume=[yes])),
            await run(up, request(run="r2", resume=[yes, yes])),
            await run(up, request(run="r2", resume=[yes, edited])),
            await run(up, request(run="r2", resume=[yes, {**no, "payload": None}])),
            await run(up, request(run="r2", resume=[yes, {**no, "interruptId": "???"}])),
            await run(up, request(run="r2", resume=[yes, no], thread="another")),
        ]
        waiting = (await up.client.get("/v1/approvals")).json()["approvals"]
        rest = await run(up, request(run="r2", resume=[no, yes]))

    assert [types(each) for each in broken] == [["RUN_STARTED", "RUN_ERROR"]] * 7
    codes = [each[-1]["code"] for each in broken]
    assert codes == ["run_open", *["invalid"] * 4, *["approval_not_found"] * 2]
    assert "responseSchema" in broken[3][-1]["message"]
    assert len(waiting) == 2
    results = [each for each in rest if each["type"] == "TOOL_CALL_RESULT"]
    ends = {each["toolCallId"]: "metadata" in each for each in results}
    assert ends == {first["toolCallId"]: False, second["toolCallId"]: True}
    assert text_of(rest) == "paid"


async def test_a_call_that_was_decided_elsewhere_can_be_dropped_in_the_thread() -> None:
    async with serving(Server(agents())) as up:
        stopped = await run(up, request(user(LOST)))
        [interrupt] = interrupts_of(stopped)
        [waiting] = (await up.client.get("/v1/approvals")).json()["approvals"]
        decision = {"decision": "approve", "arguments_digest": waiting["arguments_digest"]}
        path = f"/v1/runs/{waiting['run_id']}/approvals/{waiting['key']}"
        await up.client.post(path, json={**decision, "comment": "in the console"})
        dropped = answer_to(interrupt, approved=None)
        rest = await run(up, request(run="r2", resume=[dropped]))

    assert text_of(rest) == "Done: paid back."


async def test_a_page_that_is_loaded_again_has_the_messages() -> None:
    model = FunctionClient(lambda _: "Seen.", modalities=frozenset({"text", "image"}))
    async with serving(Server([Agent(model, name="shop")])) as up:
        empty = await run(up, request())
        picture = {"type": "url", "value": "https://example.com/a.png"}
        parts = [{"type": "text", "text": "hi"}, {"type": "image", "source": picture}]
        context = [{"description": "the page", "value": "orders"}]
        await run(up, request(user(parts), context=context))
        done = await run(up, request(run="r2"))

    assert types(empty) == types(done) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert empty[1]["messages"] == []
    [question, answer] = done[1]["messages"]
    assert question["content"] == [parts[0], {"type": "image", "source": picture}]
    assert answer["content"] == "Seen."


async def test_a_page_that_is_loaded_again_has_the_open_answer_and_its_interrupts() -> None:
    async with serving(Server(agents())) as up:
        await run(up, request(user("hi")))
        stopped = await run(up, request(user(LOST), run="r2"))
        again = await run(up, request(user(LOST), run="r2 again"))
        loaded = await run(up, request(run="r3"))
        resume = [answer_to(interrupts_of(loaded)[0], approved=True)]
        rest = await run(up, request(run="r4", resume=resume))
        whole = await run(up, request(run="r5"))

    before = loaded[1]["messages"]
    assert [each["content"] for each in before] == ["hi", "You wrote: hi", LOST]
    assert joined(loaded[2:-1]) == joined(stopped[1:-1])
    assert interrupts_of(loaded) == interrupts_of(again) == interrupts_of(stopped)
    assert text_of(rest) == "Done: paid back."
    messages = whole[1]["messages"]
    assert messages[:3] == before
    roles = [each["role"] for each in messages[2:]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    for call, result in [(messages[3], messages[4]), (messages[5], messages[6])]:
        assert call["toolCalls"][0]["id"] == result["toolCallId"]
    assert len({each["id"] for each in messages}) == len(messages)
    assert messages[-1]["content"] == "Done: paid back."


async def test_a_client_that_leaves_finds_its_answer_later() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    agent = Agent(FunctionClient(answer), name="shop")
    async with serving(Server([agent])) as up:
        async with up.client.stream("POST", "/agui/shop", json=request(user("hi"))):
            await begun.wait()
        resuming = [
            asyncio.create_task(run(up, request(user("hi")))),
            asyncio.create_task(run(up, request(run="r2"))),
        ]
        go_on.set()
        same, reconnected = await asyncio.gather(*resuming)
        runs = await runs_of(up)

    assert text_of(same) == "done"
    contents = [each["content"] for each in reconnected[1]["messages"]]
    assert [*contents, *filter(None, [text_of(reconnected)])] == ["hi", "done"]
    assert len(runs) == 1


async def test_a_server_that_stops_says_so_and_the_next_has_the_answer() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    store = MemoryEventStore()
    engine = Engine(store, agents=[Agent(FunctionClient(answer), name="shop")])
    async with serving(Server(engine, drain_s=120)) as up:
        running = asyncio.create_task(run(up, request(user("hi"))))
        await begun.wait()
        stopping = asyncio.create_task(up.stop())
        cut = await running
        go_on.set()
        await stopping
    next_engine = Engine(store, agents=[Agent(FunctionClient(answer), name="shop")])
    async with serving(Server(next_engine)) as up:
        again = await run(up, request(user("hi")))

    assert cut[-1]["code"] == "draining"
    assert text_of(again) == "done"


async def test_an_answer_ends_with_its_reason() -> None:
    class Order(BaseModel):
        number: int

    def fails(_: Any) -> str:
        raise LLMError("the model is gone")

    mail = FunctionClient(lambda _: "Write to ann@example.com")
    served = [
        Agent(FunctionClient(fails), name="broken"),
        Agent(mail, name="guarded", guards=[SensitiveDataGuard()]),
        Agent(FunctionClient(lambda _: '{"number": 7}'), name="typed", output=Order),
    ]
    async with serving(Server(served)) as up:
        broken, guarded, typed = [
            await run(up, request(user("hi"), thread=agent.name), agent.name) for agent in served
        ]
        shown = {"id": "a", "role": "assistant", "content": ""}
        there, loaded = [
            await run(up, request(*messages, run="r2", thread="broken"), "broken")
            for messages in ([user("hi"), shown], [])
        ]

    assert broken[-1]["type"] == there[-1]["type"] == "RUN_ERROR"
    assert broken[-1]["code"] == "run_failed"
    assert "the model is gone" in broken[-1]["message"]
    assert loaded[-1]["outcome"] == {"type": "success"}
    assert guarded[-1]["metadata"]["run"]["outcome"] == "BLOCKED"
    assert only(guarded, "CUSTOM")["value"]["verdict"] == "blocked"
    assert "ann@" not in text_of(guarded)
    assert [each["delta"] for each in typed if "delta" in each] == ['{"number": 7}']


async def test_a_cancelled_run_is_neither_a_success_nor_an_error() -> None:
    async with serving(Server(agents())) as up:
        stopped = await run(up, request(user(LOST)))
        run_id = stopped[-1]["metadata"]["run"]["id"]
        await up.client.post(f"/v1/runs/{run_id}/cancel", json={})
        resume = [answer_to(interrupts_of(stopped)[0], approved=None)]
        rest = await run(up, request(run="r2", resume=resume))
        after = await run(up, request(user("hello?", "m2"), run="r3"))

    assert rest[-1]["outcome"] == {"type": "cancelled"}
    assert text_of(after) == "You wrote: hello?"


async def test_a_call_of_a_child_run_is_decided_in_the_thread() -> None:
    def pays(messages: Any) -> Reply | str:
        if messages[-1].role == "tool":
            return "paid"
        return Reply(parts=(ToolCall("c", "refund", {"order": "7"}),))

    def delegates(messages: Any) -> Reply | str:
        if messages[-1].role == "tool":
            return "The clerk has paid."
        return Reply(parts=(ToolCall("c", "clerk", {"task": "7"}),))

    clerk = Agent(FunctionClient(pays), name="clerk", tools=[refund])
    boss = Agent(FunctionClient(delegates), name="boss", tools=[clerk.as_tool("Pays back.")])
    server = Server([boss, clerk], limits=Limits(heartbeat_s=0.01))
    async with serving(server) as up:
        stopped = await run(up, request(user("7")), "boss")
        [interrupt] = interrupts_of(stopped)
        resume = [answer_to(interrupt, approved=True)]
        rest = await run(up, request(run="r2", resume=resume), "boss")

    started = [each["toolCallId"] for each in stopped if each["type"] == "TOOL_CALL_START"]
    assert interrupt["toolCallId"] == started[-1]
    results = {each["toolCallId"]: each for each in rest if each["type"] == "TOOL_CALL_RESULT"}
    assert list(results) == [started[1], started[0]]
    assert results[started[1]]["content"] == "paid back 7"
    assert text_of(rest) == "The clerk has paid."


async def test_a_model_reads_what_a_page_sends() -> None:
    read: list[Any] = []

    def reads(messages: Any) -> str:
        read.extend(messages[-1].parts)
        return "seen"

    kinds = frozenset({"text", "image", "audio", "file"})
    agent = Agent(FunctionClient(reads, modalities=kinds), name="shop")
    engine = Engine(MemoryEventStore(), agents=[agent], blobs=MemoryBlobStore())
    data = base64.b64encode(b"content").decode()
    inline = {"type": "data", "value": data, "mimeType": "image/png"}
    far = {"type": "url", "value": "https://example.com/a.pdf", "mimeType": "application/pdf"}
    parts = [
        {"type": "text", "text": "hi"},
        {"type": "image", "source": inline},
        {"type": "document", "source": far},
        {"type": "video", "source": {**inline, "mimeType": "video/mp4"}},
    ]
    context = [{"description": "the cart", "value": "a kettle"}]
    async with serving(Server(engine)) as up:
        await run(up, request(user(parts), context=context, state={"step": 1}))

    lead, text = [part.text for part in read if isinstance(part, Text)]
    assert lead.endswith("- the cart: a kettle")
    assert text == "hi"
    attached = [part for part in read if isinstance(part, Attachment)]
    assert [each.modality for each in attached] == ["image", "file", "file"]
    assert [each.data for each in attached] == [b"content", None, b"content"]
    assert attached[1].url == "https://example.com/a.pdf"


async def test_a_thread_belongs_to_its_tenant() -> None:
    async with serving(Server(agents(), auth=OneKey())) as up:
        stopped = await run(up, request(user(LOST)), **as_("acme"))
        resume = [answer_to(interrupts_of(stopped)[0], approved=True)]
        unknown = await run(up, request(run="r2", resume=resume), **as_("umbrella"))
        empty = await run(up, request(run="r2"), **as_("umbrella"))
        own = await run(up, request(user("hi")), **as_("umbrella"))
        foreign = await run(up, request(run="r2", resume=resume), **as_("umbrella"))
        waiting = (await up.client.get("/v1/approvals", headers=as_("acme"))).json()["approvals"]

    assert unknown[-1]["code"] == foreign[-1]["code"] == "approval_not_found"
    assert empty[1]["messages"] == []
    assert text_of(own) == "You wrote: hi"
    assert len(waiting) == 1


async def test_decisions_and_earlier_messages_need_their_scopes() -> None:
    async with serving(Server(agents(), auth=OneKey("run"))) as up:
        stopped = await run(up, request(user(LOST)), **as_("acme"))
        resume = [answer_to(interrupts_of(stopped)[0], approved=True)]
        decided = await code_of(up, request(run="r2", resume=resume), **as_("acme"))
        loaded = await code_of(up, request(run="r2"), **as_("acme"))

    assert decided == loaded == (403, "forbidden")


MARK: Sent = {
    "name": "mark",
    "description": "Marks a row.",
    "parameters": {"type": "object", "properties": {"row": {"type": "integer"}}},
}


def marks(messages: Sequence[Message]) -> Reply | str:
    """Mark two rows of the page, look an order up, and say what came of it."""
    parts = [part for message in messages[-3:] for part in message.parts]
    results = [part.content for part in parts if isinstance(part, ToolResult)]
    if messages[-1].role == "tool":
        return "|".join(line for each in results for line in each.splitlines()[:2][-1:])
    if "row" not in messages[-1].text:
        return f"You wrote: {messages[-1].text}"
    calls = [ToolCall(f"c{row}", "mark", {"row": row}) for row in (1, 2)]
    return Reply((*calls, ToolCall("c3", "look_up", {"order": "7"})))


def page_agent() -> Agent:
    return Agent(FunctionClient(marks), name="shop", tools=[look_up])


def page_calls(events: list[Sent]) -> list[Sent]:
    """Return the calls of the page that an answer has ended with."""
    ended = {each["toolCallId"] for each in events if each["type"] == "TOOL_CALL_RESULT"}
    begun = [each for each in events if each["type"] == "TOOL_CALL_START"]
    return [each for each in begun if each["toolCallId"] not in ended]


def brought(calls: list[Sent], *contents: str, **more: Any) -> list[Sent]:
    """Return the messages that a page has after it has made its calls."""
    ids = [{"id": each["toolCallId"], "type": "function"} for each in calls]
    results = [
        {"id": f"t{n}", "role": "tool", "toolCallId": each["toolCallId"], "content": content}
        for n, (each, content) in enumerate(zip(calls, contents, strict=True))
    ]
    shown = {"id": calls[0]["parentMessageId"], "role": "assistant", "toolCalls": ids}
    return [user("mark the rows"), shown, *({**each, **more} for each in results)]


async def test_a_call_of_a_tool_of_the_page_is_made_by_the_page() -> None:
    async with serving(Server([page_agent()])) as up:
        first = await run(up, request(user("mark the rows"), tools=[MARK]))
        calls = page_calls(first)
        loaded = await run(up, request(run="r2"))
        rest_of = request(*brought(calls, "done 1", "done 2"), run="r3", tools=[MARK])
        rest = await run(up, rest_of)
        again = await run(up, rest_of)
        later = await run(up, request(user("thanks", "m9"), run="r4"))
        approvals = (await up.client.get("/v1/approvals")).json()["approvals"]

    assert [each["toolCallName"] for each in calls] == ["mark", "mark"]
    assert first[-1]["outcome"] == {"type": "success"}
    assert "waits for its client to answer" in first[-1]["metadata"]["run"]["waiting_for"]
    assert [each["toolCallId"] for each in page_calls(loaded)] == [
        each["toolCallId"] for each in calls
    ]
    assert "mark" not in [each.get("toolCallName") for each in rest]
    assert text_of(rest) == "done 1|done 2|order 7 was lost"
    assert rest[-1]["metadata"]["run"]["outcome"] == "COMPLETED"
    assert joined(again) == joined(rest)
    assert text_of(later) == "You wrote: thanks"
    assert approvals == []


async def test_a_call_that_fails_on_the_page_is_a_failed_call() -> None:
    async with serving(Server([page_agent()])) as up:
        calls = page_calls(await run(up, request(user("mark the rows"), tools=[MARK])))
        failed = brought(calls, "", "", error="no such row")
        rest = await run(up, request(*failed, run="r2"))

    assert text_of(rest) == "no such row|no such row|order 7 was lost"


async def test_a_message_with_the_results_goes_on_and_one_without_them_waits() -> None:
    async with serving(Server([page_agent()])) as up:
        calls = page_calls(await run(up, request(user("mark the rows"), tools=[MARK])))
        early = await run(up, request(user("hello?", "m2"), run="r2"))
        messages = [*brought(calls, "done 1", "done 2"), user("hello?", "m2")]
        both = await run(up, request(*messages, run="r3"))

    assert early[-1]["code"] == "run_open"
    assert text_of(both) == "You wrote: hello?"


async def test_what_a_page_may_not_answer_has_no_effect() -> None:
    async with serving(Server([page_agent()])) as up:
        calls = page_calls(await run(up, request(user("mark the rows"), tools=[MARK])))
        turn = calls[0]["toolCallId"].partition("/")[0]
        broken = [
            await run(up, request(*brought(calls[:1], "done"), run="x")),
            await run(up, request(*brought(calls, {"no": "text"}, "done"), run="x")),  # type: ignore[arg-type] - what a page may send
        ]
        strangers = [
            {**calls[0], "toolCallId": each}
            for each in (f"{turn}/tool/9", f"{turn}/", "tool/1/c1", "", "x" * 10_000)
        ]
        ignored = [await run(up, request(*brought([each], "done"), run="x")) for each in strangers]
        elsewhere = request(*brought(calls, "a", "b"), run="x", thread="another")
        ignored.append(await run(up, elsewhere))
        waits = (await run(up, request(run="w")))[-1]["metadata"]["run"]["waiting_for"]
        right = await run(up, request(*brought(calls, "done 1", "done 2"), run="y"))
        other = [{**each, "id": "other"} for each in brought(calls, "done 3", "done 4")]
        late = await run(up, request(*other, run="z"))

    assert [each[-1]["code"] for each in broken] == ["invalid"] * 2
    assert ["MESSAGES_SNAPSHOT" in types(each) for each in ignored] == [True] * 6
    assert "2 more" not in waits
    assert "'tool/1/c1'" in waits
    assert "'tool/1/c2'" in waits
    assert text_of(right).startswith("done 1|done 2")
    assert late[-1]["code"] == "already_decided"


async def test_a_call_of_the_page_is_answered_after_a_restart() -> None:
    store = MemoryEventStore()
    async with serving(Server(Engine(store, agents=[page_agent()]))) as up:
        calls = page_calls(await run(up, request(user("mark the rows"), tools=[MARK])))
    async with serving(Server(Engine(store, agents=[page_agent()]))) as up:
        rest = await run(up, request(*brought(calls, "done 1", "done 2"), run="r2"))

    assert text_of(rest) == "done 1|done 2|order 7 was lost"


async def test_a_page_answers_calls_and_interrupts_in_one_request() -> None:
    def both(messages: Any) -> Reply | str:
        if messages[-1].role == "tool":
            return "done"
        calls = ToolCall("c1", "mark", {"row": 1}), ToolCall("c2", "refund", {"order": "7"})
        return Reply(calls)

    agent = Agent(FunctionClient(both), name="shop", tools=[refund])
    async with serving(Server([agent])) as up:
        first = await run(up, request(user("mark the rows"), tools=[MARK]))
        [interrupt] = interrupts_of(first)
        calls = [each for each in page_calls(first) if each["toolCallName"] == "mark"]
        entry = answer_to(interrupt, approved=True)
        rest = await run(up, request(*brought(calls, "marked"), run="r2", resume=[entry]))

    assert text_of(rest) == "done"


async def test_tools_of_the_page_that_no_agent_takes_are_refused_by_name() -> None:
    deep: Any = {}
    for _ in range(40):
        deep = {"items": deep}
    tools: list[list[Sent]] = [
        [{**MARK, "name": "look_up"}],
        [MARK, MARK],
        [{**MARK, "name": "a b"}],
        [{**MARK, "parameters": {"type": "array"}}],
        [{**MARK, "parameters": {"type": "object", "properties": deep}}],
        [{**MARK, "name": f"t{n}"} for n in range(65)],
    ]
    async with serving(Server([page_agent()])) as up:
        refused = [await post(up, request(user("hi"), tools=each)) for each in tools]
        runs = await runs_of(up)

    assert [(each.status_code, each.json()["code"]) for each in refused] == [(422, "invalid")] * 6
    assert "the client's tool 'look_up' cannot be offered" in refused[0].text
    assert runs == []


def ref(*fields: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


async def test_hostile_requests_have_no_effect() -> None:
    tool: Sent = {"name": "delete_all", "description": "", "parameters": {"type": "string"}}
    deep: Any = {}
    for _ in range(400):
        deep = {"content": [deep]}
    async with serving(Server([*agents(), echo_agent(name="echo")])) as up:
        stopped = await run(up, request(user(LOST)))
        [interrupt] = interrupts_of(stopped)
        padded = interrupt["id"] + "=" * (-len(interrupt["id"]) % 4)
        turn, after, of, key, digest = json.loads(base64.urlsafe_b64decode(padded))
        [session] = {each["parent_id"] for each in await runs_of(up)}
        refused = [
            await code_of(up, body)
            for body in [
                {},
                request(user(7), run="x"),
                request(user([]), run="x"),
                request(user([{"type": "binary", "mimeType": "a/b", "data": ""}]), run="x"),
                request(user([{"type": "image", "source": {"type": "file", "value": "f"}}])),
                request(user([{"type": "image", "source": {"type": "url", "value": "file:///"}}])),
                request(user("hi"), run="x", tools=[tool]),
                request(user("hi"), run="\n"),
                request(user("hi"), run=""),
                request(user(deep), run="x"),
                request({"role": "user", "content": "no id"}),
            ]
        ]
        answer = await post(up, request(user("hi"), run="x", tools=[tool]))
        strangers = [
            await code_of(up, request(user("hi"), run="x"), "missing"),
            await code_of(up, request(user("hi"), run="x"), "echo"),
            await code_of(up, request(run="x"), "echo"),
        ]
        payload = {"status": "resolved", "payload": {"approved": True}}
        forged_too = request(run="x", resume=[{"interruptId": "???", **payload}])
        strangers.append(await code_of(up, forged_too, "missing"))
        forged = [
            await run(up, request(run="x", resume=[{"interruptId": each, **payload}]))
            for each in [
                "???",
                "é",
                ref(turn, -1, of, key, digest),
                ref(turn, 2**63, of, key, digest),
                ref(turn, after, of, key, "0" * 64),
                ref(turn, after, of, "tool/9", digest),
                ref(turn, after, session, key, digest),
                ref(session, after, of, key, digest),
            ]
        ]
        [waiting] = (await up.client.get("/v1/approvals")).json()["approvals"]
        runs = await runs_of(up)

    assert refused == [*[(422, "invalid")] * 9, (400, "malformed"), (422, "invalid")]
    assert "delete_all" in answer.text
    unknown = (404, "agent_not_found")
    assert strangers == [unknown, *[(422, "idempotency_mismatch")] * 2, unknown]
    codes = [each[-1]["code"] for each in forged]
    assert codes == [*["approval_not_found"] * 4, "digest_mismatch", *["approval_not_found"] * 3]
    assert [each["id"] for each in runs] == [turn]
    assert waiting["run_id"] == turn


async def test_a_stream_counts_against_the_cap() -> None:
    async with serving(Server(agents(), limits=Limits(server=Quota(open_streams=0)))) as up:
        refused = await code_of(up, request(user("hi")))
        runs = await runs_of(up)

    assert refused == (429, "stream_cap")
    assert runs == []
