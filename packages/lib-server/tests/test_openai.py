"""The front ends of OpenAI's shape, spoken to by the official client over a real socket."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel
from server_kit import OneKey, Up, echo_agent, serving

from lib import Agent, Engine
from lib.algorithms import Reflexion
from lib.engine import ModelReplied, ReplyDelta, ReplyReset
from lib.errors import LLMError
from lib.events import MemoryEventStore
from lib.guards import SensitiveDataGuard
from lib.llm import Audio, File, FunctionClient, Image, Message, Reply, ToolCall, Usage
from lib.testing.clock import ManualClock
from lib.tools import tool
from lib_server import Limits, Server
from lib_server.openai.follow import Written


@asynccontextmanager
async def speaking(
    server: Server, *, key: str = "none", retries: int = 0, http: httpx2.AsyncClient | None = None
) -> AsyncGenerator[tuple[openai.AsyncOpenAI, Up]]:
    """Serve, and yield the official client of it."""
    async with serving(server) as up:
        url = f"http://127.0.0.1:{up.port}/v1"
        client = openai.AsyncOpenAI(
            base_url=url, api_key=key, max_retries=retries, http_client=http
        )
        async with client:
            yield client, up


def says(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def runs_of(up: Up) -> list[dict[str, Any]]:
    return (await up.client.get("/v1/runs")).json()["runs"]


def counted(messages: Sequence[Message]) -> Reply:
    usage = Usage(input_tokens=7, output_tokens=3)
    return Reply(parts=Message.assistant(f"{len(messages)} messages").parts, usage=usage)


async def test_an_agent_answers_as_a_model_does() -> None:
    async with speaking(Server([Agent(FunctionClient(counted), name="counter")])) as (client, up):
        models = [model async for model in client.models.list()]
        model = await client.models.retrieve("counter")
        answer = await client.chat.completions.create(
            model="counter",
            messages=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "user", "content": [{"type": "text", "text": "three"}]},
            ],
            temperature=0.2,
            user="ann",
        )
        [run] = await runs_of(up)

    assert [each.id for each in models] == [model.id] == ["counter"]
    assert answer.choices[0].message.content == "4 messages"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)
    assert answer.id == f"chatcmpl-{run['id']}"
    assert run["user"] is None  # which comes from the credentials only


async def test_a_stream_brings_the_answer_in_pieces_and_then_the_usage() -> None:
    async with speaking(Server([echo_agent(name="echo")])) as (client, _):
        stream = await client.chat.completions.create(
            model="echo",
            messages=says("a long sentence of several words"),
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]

    pieces = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert pieces[0].delta.role == "assistant"
    text = "".join(each.delta.content or "" for each in pieces)
    assert text == "You wrote: a long sentence of several words"
    assert [each.finish_reason for each in pieces if each.finish_reason] == ["stop"]
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


@tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"{order} is on its way"


def looks_up(messages: Any) -> Reply | str:
    conversation: list[Message] = list(messages)
    if conversation[-1].role == "tool":
        return "It is on its way."
    parts = (*Message.assistant("One moment.").parts, ToolCall("c", "look_up", {"order": "7"}))
    return Reply(parts=parts)


async def test_the_calls_of_an_agent_stay_inside() -> None:
    agent = Agent(FunctionClient(looks_up), name="shop", tools=[look_up])
    async with speaking(Server([agent])) as (client, _):
        whole = await client.chat.completions.create(model="shop", messages=says("7?"))
        stream = await client.chat.completions.create(
            model="shop", messages=says("7?"), stream=True
        )
        chunks = [chunk.choices[0].delta async for chunk in stream]

    assert whole.choices[0].message.content == "It is on its way."
    assert whole.choices[0].message.tool_calls is None
    assert not any(delta.tool_calls for delta in chunks)
    assert "".join(delta.content or "" for delta in chunks) == "One moment.\n\nIt is on its way."


class Order(BaseModel):
    number: int


async def test_an_answer_of_a_type_is_streamed_whole() -> None:
    agent = Agent(FunctionClient(lambda _: '{"number": 7}'), name="typed", output=Order)
    async with speaking(Server([agent])) as (client, _):
        stream = await client.chat.completions.create(
            model="typed", messages=says("7"), stream=True
        )
        pieces = [chunk.choices[0].delta.content async for chunk in stream]

    assert [Order.model_validate_json(each) for each in pieces if each] == [Order(number=7)]


async def test_drafts_of_a_team_and_the_words_of_its_judge_are_not_shown() -> None:
    def write(messages: Sequence[Message]) -> str:
        if messages[0].text == "Is it short?":
            passed = "true" if "\nshort" in messages[-1].text else "false"
            return f'{{"passed": {passed}, "feedback": "too long"}}'
        return "short" if "too long" in messages[-1].text else "a long draft"

    poet = Agent(FunctionClient(write), name="poet", algorithm=Reflexion("Is it short?"))
    async with speaking(Server([poet])) as (client, _):
        stream = await client.chat.completions.create(
            model="poet", messages=says("a verse"), stream=True
        )
        pieces = [chunk.choices[0].delta.content async for chunk in stream]

    assert [each for each in pieces if each] == ["short"]


async def test_a_stream_under_a_key_is_replayed_from_the_log() -> None:
    async with speaking(Server([echo_agent(name="echo")])) as (client, up):
        stream = await client.chat.completions.create(
            model="echo",
            messages=says("hi"),
            stream=True,
            extra_headers={"Idempotency-Key": "again"},
        )
        first = [chunk.choices[0].delta.content or "" async for chunk in stream]
        stream = await client.chat.completions.create(
            model="echo",
            messages=says("hi"),
            stream=True,
            extra_headers={"Idempotency-Key": "again"},
        )
        again = [chunk.choices[0].delta.content or "" async for chunk in stream]
        runs = await runs_of(up)

    assert "".join(first) == "".join(again) == "You wrote: hi"
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("One moment, please.", ["One", " mo", "ment, please."]),
        ("Two moments.", ["One", " mo", "\n\nTwo moments."]),
    ],
)
def test_what_was_shown_of_a_reply_that_begins_anew_stays(reply: str, shown: list[str]) -> None:
    written = Written()
    first: dict[str, Any] = {"seq": 2, "key": "llm/1", "attempt": 1, "thinking": ""}
    replied: dict[str, Any] = {
        "seq": 3,
        "key": "llm/1",
        "at": ManualClock().now(),
        "calls": (),
        "model": "",
    }
    items: list[Any] = [
        ReplyDelta(text="One", **first),
        ReplyDelta(text=" mo", **first),
        ReplyReset(seq=2, key="llm/1", attempt=2),
        ReplyDelta(seq=2, key="llm/1", attempt=2, text=reply[:3], thinking=""),
        ModelReplied(text=reply, **replied),
    ]

    assert [text for item in items if (text := written.take(item))] == shown
    assert written.end(reply) == ""
    assert written.end("another answer") == "\n\nanother answer"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_waits_for_a_person_ends_the_answer(*, stream: bool) -> None:
    @tool(approval=True)
    def refund(order: str) -> str:
        """Pay an order back."""
        return "paid"

    def pays(messages: Any) -> Reply | str:
        if messages[-1].role == "tool":
            return "Paid back."
        return Reply(parts=(ToolCall("c", "refund", {"order": "secret-7"}),))

    async def ask(client: openai.AsyncOpenAI) -> tuple[str, str | None]:
        key = {"Idempotency-Key": "refund-7"}
        if not stream:
            whole = await client.chat.completions.create(
                model="shop", messages=says("7"), extra_headers=key
            )
            choice = whole.choices[0]
            return choice.message.content or "", choice.finish_reason
        pieces = await client.chat.completions.create(
            model="shop", messages=says("7"), stream=True, extra_headers=key
        )
        choices = [chunk.choices[0] async for chunk in pieces]
        text = "".join(each.delta.content or "" for each in choices)
        return text, choices[-1].finish_reason

    agent = Agent(FunctionClient(pays), name="shop", tools=[refund])
    async with speaking(Server([agent])) as (client, up):
        text, finish = await ask(client)
        [waiting] = (await up.client.get("/v1/approvals")).json()["approvals"]
        path = f"/v1/runs/{waiting['run_id']}/approvals/{waiting['key']}"
        digest = waiting["arguments_digest"]
        await up.client.post(path, json={"decision": "approve", "arguments_digest": digest})
        after, _ = await ask(client)
        runs = await runs_of(up)

    assert finish == "stop"
    assert f"{path}\n\nAll that waits" in text, "a list of Markdown ends with a blank line"
    assert "refund" in text
    assert "secret-7" not in text
    assert after == "Paid back."
    assert len(runs) == 1


async def test_a_call_of_a_child_run_that_waits_ends_the_answer() -> None:
    @tool(approval=True)
    def refund(order: str) -> str:
        """Pay an order back."""
        return "paid"

    clerk = Agent(
        FunctionClient(lambda _: Reply(parts=(ToolCall("c", "refund", {"order": "7"}),))),
        name="clerk",
        tools=[refund],
    )
    boss = Agent(
        FunctionClient(lambda _: Reply(parts=(ToolCall("c", "clerk", {"task": "7"}),))),
        name="boss",
        tools=[clerk.as_tool("Pays back.")],
    )
    server = Server([boss, clerk], limits=Limits(heartbeat_s=0.01))
    async with speaking(server) as (client, _):
        answer = await client.chat.completions.create(model="boss", messages=says("7"))

    assert "/approvals/" in str(answer.choices[0].message.content)
    assert answer.model_extra is not None
    assert answer.model_extra["run"]["outcome"] is None


async def test_errors_have_the_shape_that_the_client_reads() -> None:
    def fails(_: Any) -> str:
        raise LLMError("the model is gone")

    broken = Agent(FunctionClient(fails), name="broken")
    server = Server([echo_agent(name="echo"), broken], auth=OneKey())
    async with speaking(server, key="acme", retries=2) as (client, up):
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError) as unknown:
            await create(model="gpt-9", messages=says("hi"))
        with pytest.raises(openai.AuthenticationError) as denied:
            await client.with_options(api_key="x").models.list()
        with pytest.raises(openai.UnprocessableEntityError) as invalid:
            await create(model="echo", messages=says("hi"), n=2)
        with pytest.raises(openai.UnprocessableEntityError) as tools:
            await create(
                model="echo",
                messages=says("hi"),
                tools=[{"type": "function", "function": {"name": "f"}}],
            )
        with pytest.raises(openai.InternalServerError) as failed:
            await create(model="broken", messages=says("hi"))
        stream = await create(model="broken", messages=says("hi"), stream=True)
        with pytest.raises(openai.APIError) as streamed:
            _ = [chunk async for chunk in stream]
        runs = (await up.client.get("/v1/runs", headers={"authorization": "Bearer acme"})).json()

    assert unknown.value.code == "model_not_found"
    assert (denied.value.code, denied.value.type) == ("invalid_api_key", "authentication_error")
    assert (invalid.value.code, invalid.value.param) == ("invalid", "n")
    assert tools.value.param == "tools"
    assert failed.value.code == streamed.value.code == "run_failed"
    assert len(runs["runs"]) == 2  # a run that has failed is not run again by retries


async def test_guards_and_budgets_end_an_answer_with_their_reason() -> None:
    says_it = FunctionClient(lambda _: "Write to ann@example.com")
    guarded = Agent(says_it, name="guarded", guards=[SensitiveDataGuard()])
    async with speaking(Server([guarded])) as (client, _):
        answer = await client.chat.completions.create(model="guarded", messages=says("hi"))
        stream = await client.chat.completions.create(
            model="guarded", messages=says("hi"), stream=True
        )
        chunks = [chunk.choices[0] async for chunk in stream]

    assert answer.choices[0].finish_reason == chunks[-1].finish_reason == "content_filter"
    assert "ann@" not in "".join(each.delta.content or "" for each in chunks)


class CutsOnce(httpx2.AsyncHTTPTransport):
    """Loses the first answer of each POST after the server has sent it."""

    def __init__(self) -> None:
        super().__init__()
        self.posts = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await super().handle_async_request(request)
        self.posts += request.method == "POST"
        if request.method == "POST" and self.posts == 1:
            await answer.aread()
            await answer.aclose()
            raise httpx2.ReadError("the connection was cut", request=request)
        return answer


async def test_a_retry_of_the_client_does_not_run_twice() -> None:
    transport = CutsOnce()
    http = httpx2.AsyncClient(transport=transport)
    server = Server([echo_agent(name="echo")])
    async with speaking(server, retries=2, http=http) as (client, up):
        answer = await client.chat.completions.create(
            model="echo", messages=says("hi"), extra_headers={"Idempotency-Key": "k"}
        )
        runs = await runs_of(up)

    assert transport.posts == 2
    assert answer.choices[0].message.content == "You wrote: hi"
    assert len(runs) == 1


async def test_a_server_that_stops_sends_the_client_to_the_next() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    store = MemoryEventStore()
    engine = Engine(store, agents=[Agent(FunctionClient(answer), name="slow")])
    async with speaking(Server(engine, drain_s=120)) as (client, up):
        key = {"Idempotency-Key": "k"}
        asking = asyncio.create_task(
            client.chat.completions.create(model="slow", messages=says("hi"), extra_headers=key)
        )
        await begun.wait()
        stopping = asyncio.create_task(up.stop())
        with pytest.raises(openai.InternalServerError) as stopped:
            await asking
        go_on.set()
        await stopping
    next_engine = Engine(store, agents=[Agent(FunctionClient(answer), name="slow")])
    async with speaking(Server(next_engine)) as (client, up):
        done = await client.chat.completions.create(
            model="slow", messages=says("hi"), extra_headers=key
        )
        runs = await runs_of(up)

    assert (stopped.value.status_code, stopped.value.code) == (503, "draining")
    assert "retry-after" in stopped.value.response.headers
    assert done.choices[0].message.content == "done"
    assert len(runs) == 1


async def test_a_client_that_leaves_leaves_its_run_alone() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    agent = Agent(FunctionClient(answer), name="slow")
    async with speaking(Server([agent])) as (client, up):
        asking = asyncio.create_task(
            client.chat.completions.create(model="slow", messages=says("hi"))
        )
        await begun.wait()
        asking.cancel()
        await asyncio.wait([asking])
        begun.clear()
        stream = await client.chat.completions.create(
            model="slow", messages=says("ho"), stream=True
        )
        await begun.wait()
        await stream.close()
        go_on.set()
        runs = await runs_of(up)
        waits = [up.client.get(f"/v1/runs/{run['id']}/result?wait_s=60") for run in runs]
        results = [each.json() for each in await asyncio.gather(*waits)]

    assert [each["text"] for each in results] == ["done", "done"]


def kinds(messages: Any) -> str:
    parts = messages[-1].parts
    return ",".join(
        f"{type(part).__name__}:{part.media_type or part.url}:{len(part.data or b'')}"
        for part in parts
        if isinstance(part, Image | Audio | File)
    )


async def test_attachments_are_read_and_their_errors_name_them() -> None:
    seeing = FunctionClient(kinds, modalities=frozenset({"text", "image", "audio", "file"}))
    async with speaking(Server([Agent(seeing, name="eye")])) as (client, _):
        parts: list[Any] = [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAAAAAA"}},
        ]
        messages: list[Any] = [{"role": "user", "content": parts}]
        answer = await client.chat.completions.create(model="eye", messages=messages)
        parts[0] = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}
        with pytest.raises(openai.UnprocessableEntityError) as internal:
            await client.chat.completions.create(model="eye", messages=messages)
        with pytest.raises(openai.UnprocessableEntityError) as nothing:
            await client.chat.completions.create(model="eye", messages=says(""))

    assert answer.choices[0].message.content == (
        "Image:image/png:3,Image:https://example.com/a.png:0,Audio:audio/wav:3,"
        "File:application/pdf:6"
    )
    assert internal.value.param == "messages.0.content"
    assert nothing.value.param == "messages"


# -- responses ---------------------------------------------------------------------------------


async def test_a_response_is_a_run_that_can_be_read_again_and_gone_on_with() -> None:
    server = Server([Agent(FunctionClient(counted), name="counter")])
    async with speaking(server) as (client, up):
        create = client.responses.create
        first = await create(model="counter", input="one", instructions="Be brief.")
        again = await client.responses.retrieve(first.id)
        second = await create(model="counter", input="two", previous_response_id=first.id)
        fork = await create(
            model="counter",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "three"}]}],
            previous_response_id=first.id,
        )
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve("resp_nothing")
        runs = await runs_of(up)

    assert (first.status, first.output_text) == ("completed", "2 messages")
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens) == (7, 3)
    assert again.output_text == first.output_text
    assert second.output_text == fork.output_text == "4 messages"
    assert {f"resp_{run['id']}" for run in runs} == {first.id, second.id, fork.id}


async def test_a_response_is_streamed_with_the_events_of_the_api() -> None:
    agent = Agent(FunctionClient(looks_up), name="shop", tools=[look_up])
    async with (
        speaking(Server([agent])) as (client, _),
        client.responses.stream(model="shop", input="7?") as stream,
    ):
        events = [event async for event in stream]
        final = await stream.get_final_response()

    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text == "One moment.\n\nIt is on its way."
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))


async def test_a_response_in_the_background_is_polled_and_cancelled() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with speaking(Server([Agent(FunctionClient(answer), name="slow")])) as (client, up):
        create = client.responses.create
        first = await create(model="slow", input="hi", background=True)
        second = await create(model="slow", input="hi", background=True)
        await begun.wait()
        with pytest.raises(openai.ConflictError) as too_early:
            await create(model="slow", input="ho", previous_response_id=first.id)
        await client.responses.cancel(second.id)
        go_on.set()
        for response in (first, second):
            run_id = response.id.removeprefix("resp_")
            await up.client.get(f"/v1/runs/{run_id}/result?wait_s=60")
        done = await client.responses.retrieve(first.id)
        cancelled = await client.responses.retrieve(second.id)

    assert (first.status, first.output_text) == ("in_progress", "")
    assert too_early.value.code == "run_open"
    assert (done.status, done.output_text) == ("completed", "done")
    assert cancelled.status == "cancelled"


async def test_a_failed_response_says_why() -> None:
    def fails(_: Any) -> str:
        raise LLMError("the model is gone")

    async with speaking(Server([Agent(FunctionClient(fails), name="broken")])) as (client, _):
        whole = await client.responses.create(model="broken", input="hi")
        stream = await client.responses.create(model="broken", input="hi", stream=True)
        events = [event async for event in stream]

    assert whole.status == "failed"
    assert whole.error is not None
    assert whole.error.message == "LLMError: the model is gone"
    assert events[-1].type == "response.failed"


async def test_responses_of_another_tenant_are_missing() -> None:
    async with speaking(Server([echo_agent(name="echo")], auth=OneKey()), key="acme") as (own, _):
        mine = await own.responses.create(model="echo", input="hi")
        foreign = own.with_options(api_key="umbrella")
        for attempt in (
            foreign.responses.retrieve(mine.id),
            foreign.responses.cancel(mine.id),
            foreign.responses.create(model="echo", input="x", previous_response_id=mine.id),
        ):
            with pytest.raises(openai.NotFoundError) as missing:
                await attempt
            assert missing.value.code == "run_not_found"
