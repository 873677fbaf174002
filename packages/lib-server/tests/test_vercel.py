"""Chats of Vercel's AI SDK on the wire; `scripts/front-ends` runs the SDK itself."""

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest
from front_end_app import agents, refund
from pydantic import BaseModel
from server_kit import OneKey, Up, as_, echo_agent, serving

from lib import Agent, Engine
from lib.engine import ModelReplied, ReplyDelta, ReplyReset
from lib.errors import LLMError
from lib.events import MemoryEventStore
from lib.guards import SensitiveDataGuard
from lib.llm import FunctionClient, Reply, ToolCall
from lib.testing.clock import ManualClock
from lib_server import Limits, Quota, Server
from lib_server.frontends.answers import Answer
from lib_server.frontends.vercel import UIMessage

LOST = "my order is lost"


def user(text: str, message_id: str = "m1") -> dict[str, Any]:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


def decided(approval_id: str, *calls: str, approved: bool = True, reason: str = "") -> Any:
    """Return the message of an answer, with the calls that it shows, one of them decided."""
    approval = {"id": approval_id, "approved": approved, "reason": reason}
    shown = [{"type": "dynamic-tool", "toolCallId": call} for call in calls]
    part = {"type": "dynamic-tool", "state": "approval-responded", "approval": approval}
    return {"id": "a", "role": "assistant", "parts": [*shown, part]}


def request(message: Any, chat: str = "chat", **more: Any) -> dict[str, Any]:
    return {"id": chat, "messages": [message], "trigger": "submit-message", **more}


def chunks_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    """Return the chunks of an answer, which ends as the protocol has it."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.splitlines() if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


async def chat(up: Up, message: Any, **more: Any) -> list[dict[str, Any]]:
    return chunks_of(await up.client.post("/v1/chat", json=request(message, **more)))


def types(chunks: Iterable[dict[str, Any]]) -> list[str]:
    return [chunk["type"] for chunk in chunks if not chunk["type"].endswith("-delta")]


def text_of(chunks: Iterable[dict[str, Any]]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


def merged(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the chunks with the pieces of each text joined."""
    found: list[dict[str, Any]] = []
    for chunk in chunks:
        if "delta" in chunk and found[-1].get("id") == chunk["id"] and "delta" in found[-1]:
            found[-1] = {**chunk, "delta": found[-1]["delta"] + chunk["delta"]}
        else:
            found.append(chunk)
    return found


def only(chunks: Iterable[dict[str, Any]], kind: str) -> dict[str, Any]:
    [found] = [chunk for chunk in chunks if chunk["type"] == kind]
    return found


async def runs_of(up: Up, **headers: str) -> list[dict[str, Any]]:
    listed = (await up.client.get("/v1/runs", headers=headers)).json()["runs"]
    return [run for run in listed if run["agent"] != "session"]


async def code_of(up: Up, body: Any, **headers: str) -> tuple[int, str]:
    answer = await up.client.post("/v1/chat", json=body, headers=headers)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


async def test_a_message_is_a_turn_of_a_session() -> None:
    async with serving(Server(agents())) as up:
        first = await chat(up, user("a long sentence of several words"))
        second = await chat(up, user("and more", "m2"))
        runs = await runs_of(up)
        session = (await up.client.get(f"/v1/sessions/{runs[0]['parent_id']}/messages")).json()

    steps = ["start", "start-step", "text-start", "text-end", "finish-step", "finish"]
    assert types(first) == types(second) == steps
    assert text_of(first) == "You wrote: a long sentence of several words"
    assert {first[0]["messageId"], second[0]["messageId"]} == {run["id"] for run in runs}
    assert first[-1]["finishReason"] == "stop"
    assert first[-1]["messageMetadata"]["run"]["outcome"] == "COMPLETED"
    assert [each["role"] for each in session["messages"]] == ["user", "assistant"] * 2


async def test_the_same_message_is_answered_once_and_another_one_anew() -> None:
    async with serving(Server(agents())) as up:
        first = await chat(up, user("hi"))
        again = await up.client.post("/v1/chat", json=request(user("hi")))
        edited = await chat(up, user("ho"))
        anew = {"trigger": "regenerate-message", "messageId": edited[0]["messageId"]}
        regenerated = [await chat(up, user("ho"), **anew) for _ in range(2)]
        runs = await runs_of(up)

    assert merged(chunks_of(again)) == merged(first)
    assert again.headers["idempotent-replayed"] == "true"
    assert text_of(edited) == "You wrote: ho"
    assert merged(regenerated[0]) == merged(regenerated[1])
    assert len(runs) == 3


@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_waits_for_a_decision_and_the_answer_goes_on_behind_it(
    *, approved: bool
) -> None:
    async with serving(Server(agents())) as up:
        first = await chat(up, user(LOST))
        wanted = only(first, "tool-approval-request")
        shown = [each["toolCallId"] for each in first if each["type"] == "tool-input-available"]
        message = decided(wanted["approvalId"], *shown, approved=approved, reason="a reason")
        rest = await chat(up, message)
        again = await chat(up, message)
        other = decided(wanted["approvalId"], *shown, approved=not approved)
        conflict = await code_of(up, request(other))
        whole = chunks_of(await up.client.get("/v1/chat/chat/stream"))
        run = first[0]["messageId"]
        approvals = (await up.client.get(f"/v1/runs/{run}/approvals")).json()["approvals"]

    assert types(first) == [
        "start",
        *("start-step", "text-start", "text-end"),
        *("tool-input-available", "tool-output-available", "finish-step"),
        *("start-step", "tool-input-available", "tool-approval-request", "finish-step"),
        "finish",
    ]
    assert first[-1]["finishReason"] == "tool-calls"
    assert wanted["toolCallId"] == shown[-1]
    ended = "tool-output-available" if approved else "tool-output-denied"
    assert types(rest) == [
        *("start", ended, "start-step", "text-start", "text-end", "finish-step", "finish")
    ]
    assert rest[0]["messageId"] == run
    assert text_of(rest) == f"Done: {'paid back' if approved else 'denied'}."
    assert merged(again) == merged(rest)
    assert conflict == (409, "already_decided")
    assert text_of(whole) == text_of(first) + text_of(rest)
    assert [each["comment"] for each in approvals] == ["a reason"]


async def test_a_chat_goes_on_only_behind_the_decision() -> None:
    async with serving(Server(agents())) as up:
        await chat(up, user(LOST))
        refused = await code_of(up, request(user("hello?", "m2")))
        [run] = await runs_of(up)
        await up.client.post(f"/v1/runs/{run['id']}/cancel", json={"reason": "a change of mind"})
        ended = chunks_of(await up.client.get("/v1/chat/chat/stream"))
        after = await chat(up, user("hello?", "m2"))

    assert refused == (409, "run_open")
    assert ended[-1] == {"type": "abort", "reason": "a change of mind"}
    assert text_of(after) == "You wrote: hello?"


async def test_a_call_of_a_child_run_is_decided_in_the_chat() -> None:
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
        first = await chat(up, user("7"), agent="boss")
        wanted = only(first, "tool-approval-request")
        shown = [each["toolCallId"] for each in first if each["type"] == "tool-input-available"]
        rest = await chat(up, decided(wanted["approvalId"], *shown))

    assert len(shown) == 2
    assert wanted["toolCallId"] == shown[-1]
    outputs = [each for each in rest if each["type"] == "tool-output-available"]
    assert [each["toolCallId"] for each in outputs] == [shown[1], shown[0]]
    assert outputs[0]["output"] == "paid back 7"
    assert text_of(rest) == "The clerk has paid."


async def test_a_client_that_leaves_finds_its_answer_later() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    agent = Agent(FunctionClient(answer), name="slow")
    async with serving(Server([agent])) as up:
        async with up.client.stream("POST", "/v1/chat", json=request(user("hi"))):
            await begun.wait()
        resuming = asyncio.create_task(up.client.get("/v1/chat/chat/stream"))
        go_on.set()
        resumed = chunks_of(await resuming)
        after = chunks_of(await up.client.get("/v1/chat/chat/stream"))
        unknown = await up.client.get("/v1/chat/another/stream")
        runs = await runs_of(up)

    assert text_of(resumed) == "done"
    assert text_of(after) == "done"
    assert unknown.status_code == 204
    assert len(runs) == 1


async def test_an_answer_of_long_ago_is_not_streamed_again() -> None:
    clock = ManualClock()
    engine = Engine(MemoryEventStore(), agents=[echo_agent(name="echo")], clock=clock)
    async with serving(Server(engine)) as up:
        await chat(up, user("hi"))
        soon = await up.client.get("/v1/chat/chat/stream")
        clock.advance(301)
        late = await up.client.get("/v1/chat/chat/stream")

    assert (soon.status_code, late.status_code) == (200, 204)


async def test_a_server_that_stops_says_so_and_the_next_has_the_answer() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    store = MemoryEventStore()
    engine = Engine(store, agents=[Agent(FunctionClient(answer), name="slow")])
    async with serving(Server(engine, drain_s=120)) as up:
        asking = asyncio.create_task(chat(up, user("hi")))
        await begun.wait()
        stopping = asyncio.create_task(up.stop())
        cut = await asking
        go_on.set()
        await stopping
    next_engine = Engine(store, agents=[Agent(FunctionClient(answer), name="slow")])
    async with serving(Server(next_engine)) as up:
        resumed = chunks_of(await up.client.get("/v1/chat/chat/stream"))

    assert cut[-1]["type"] == "error"
    assert cut[-1]["errorText"].startswith("draining: ")
    assert text_of(resumed) == "done"


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
            await chat(up, user("hi"), chat=agent.name, agent=agent.name) for agent in served
        ]

    assert broken[-1]["type"] == "error"
    assert "the model is gone" in broken[-1]["errorText"]
    assert guarded[-1]["finishReason"] == "content-filter"
    assert "ann@" not in text_of(guarded)
    assert [each["delta"] for each in typed if each["type"] == "text-delta"] == ['{"number": 7}']


async def test_a_chat_belongs_to_its_tenant() -> None:
    async with serving(Server(agents(), auth=OneKey())) as up:
        body = request(user(LOST))
        first = chunks_of(await up.client.post("/v1/chat", json=body, headers=as_("acme")))
        theirs = only(first, "tool-approval-request")["approvalId"]
        before = await up.client.get("/v1/chat/chat/stream", headers=as_("umbrella"))
        unknown = await code_of(up, request(decided(theirs)), **as_("umbrella"))
        own = await up.client.post("/v1/chat", json=request(user("hi")), headers=as_("umbrella"))
        foreign = await code_of(up, request(decided(theirs)), **as_("umbrella"))
        runs = await runs_of(up, **as_("umbrella"))
        waiting = (await up.client.get("/v1/approvals", headers=as_("acme"))).json()["approvals"]

    assert before.status_code == 204
    assert unknown == (404, "session_not_found")
    assert text_of(chunks_of(own)) == "You wrote: hi"
    assert foreign == (404, "approval_not_found")
    assert len(runs) == 1
    assert len(waiting) == 1


async def test_a_decision_needs_the_scope() -> None:
    async with serving(Server(agents(), auth=OneKey("run", "read"))) as up:
        body = request(user(LOST))
        first = chunks_of(await up.client.post("/v1/chat", json=body, headers=as_("acme")))
        approval = only(first, "tool-approval-request")["approvalId"]
        denied = await code_of(up, request(decided(approval)), **as_("acme"))

    assert denied == (403, "forbidden")


def ref(*fields: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


async def test_hostile_requests_are_refused_before_any_effect() -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"parts": [deep]}
    async with serving(Server([*agents(), echo_agent(name="echo")])) as up:
        first = await chat(up, user(LOST), agent="shop")
        run = first[0]["messageId"]
        [session] = {each["parent_id"] for each in await runs_of(up)}
        true_ref = only(first, "tool-approval-request")["approvalId"]
        turn, after, of, key, digest = json.loads(base64.urlsafe_b64decode(true_ref + "=="))
        codes = [
            await code_of(up, body)
            for body in [
                {},
                request({"role": "user", "parts": []}, agent="shop"),
                request({"role": "user", "parts": [{"type": "text"}]}, agent="shop"),
                request({"role": "user", "parts": [{"type": 7, "text": "x"}]}, agent="shop"),
                request(
                    {
                        "role": "user",
                        "parts": [{"type": "file", "mediaType": "a/b", "url": "file:///etc"}],
                    }
                ),
                request({"role": "assistant", "parts": [deep]}),
                request({"role": "tool", "parts": []}),
                request(user("hi"), chat="new"),
                request(user("hi"), chat="\n", agent="shop"),
                request(user("hi"), agent="echo"),
                request(user("hi"), agent="missing"),
                request(decided("???")),
                request(decided("é")),
                request(decided(ref(turn, -1, of, key, digest))),
                request(decided(ref(turn, 2**63, of, key, digest))),
                request(decided(ref(turn, after, of, key, "0" * 64))),
                request(decided(ref(turn, after, of, "tool/9", digest))),
                request(decided(ref(turn, after, session, key, digest))),
                request(decided(ref(session, after, of, key, digest))),
                request(decided(true_ref), chat="new"),
            ]
        ]
        [waiting] = (await up.client.get("/v1/approvals")).json()["approvals"]
        runs = await runs_of(up)

    statuses = [status for status, _ in codes]
    assert statuses[:11] == [*[422] * 5, 400, *[422] * 4, 404]
    assert statuses[11:] == [*[404] * 4, 409, *[404] * 4]
    assert [each["id"] for each in runs] == [run]
    assert waiting["run_id"] == run


async def test_a_stream_counts_against_the_cap() -> None:
    async with serving(Server(agents(), limits=Limits(server=Quota(open_streams=0)))) as up:
        refused = await code_of(up, request(user("hi")))
        runs = await runs_of(up)

    assert refused == (429, "stream_cap")
    assert runs == []


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ("One moment, please.", {"llm/1": "One moment, please."}),
        ("Two moments.", {"llm/1": "One mo", "llm/1/again": "Two moments."}),
    ],
)
def test_a_reply_that_begins_anew_is_shown_once_it_is_whole(
    reply: str, texts: dict[str, str]
) -> None:
    message = Answer(UIMessage(), live=True)
    first: dict[str, Any] = {"seq": 2, "key": "llm/1", "attempt": 1, "thinking": ""}
    items: list[Any] = [
        ReplyDelta(seq=2, key="llm/1", attempt=1, text="One", thinking="Hm."),
        ReplyDelta(text=" mo", **first),
        ReplyReset(seq=2, key="llm/1", attempt=2),
        ReplyDelta(seq=2, key="llm/1", attempt=2, text=reply[:3], thinking=""),
        ModelReplied(seq=3, key="llm/1", at=ManualClock().now(), text=reply, calls=(), model=""),
    ]
    chunks = [chunk for item in items for chunk in message.take(item)]

    found: dict[str, str] = {}
    for chunk in chunks:
        if chunk["type"] == "text-delta":
            found[chunk["id"]] = found.get(chunk["id"], "") + chunk["delta"]
    assert found == texts
    assert types(chunks)[:4] == ["start-step", "reasoning-start", "reasoning-end", "text-start"]
    assert types(chunks).count("text-start") == types(chunks).count("text-end")
