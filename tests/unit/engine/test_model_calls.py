"""Tests model calls: retries, deltas, structured output, attachments, settings."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from lib.algorithms import React
from lib.engine import Engine, LiveDelta, LLMHandler, Result
from lib.errors import LLMError
from lib.events import Event, MemoryBlobStore, MemoryEventStore
from lib.events import kinds as k
from lib.llm import (
    Delta,
    File,
    FunctionClient,
    Image,
    Message,
    Reply,
    ScriptedClient,
    Text,
    ToolCall,
)
from lib.llm.scripted import CutOff
from lib.resilience import RetryPolicy
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.tools import tool

BUSY = LLMError("the server is busy", status=429, retryable=True, retry_after_s=2.0)


async def test_transient_errors_are_retried_and_every_attempt_is_counted() -> None:
    clock = ManualClock()
    client = ScriptedClient([BUSY, BUSY, "at last"])

    handler = LLMHandler(client, retries=RetryPolicy(attempts=3, base_s=0.0))
    store = MemoryEventStore()
    async with Engine(store, [handler], algorithms=[React()], clock=clock) as engine:
        started = await engine.start("hi")
        while (await started.info()).status == "open":
            clock.advance(2.0 if clock.sleepers else 0.0)
            await asyncio.sleep(0)  # noqa: TID251 - lets the run go on
        result, log = await started.result(), await store.read(started.id)

    (completed,) = [event for event in log if event.kind == k.LLM_COMPLETED]
    assert (result.output, completed.data["attempts"]) == ("at last", 3)
    assert (completed.at - log[0].at).total_seconds() == 4.0


async def test_after_the_last_attempt_the_run_fails_with_the_error_of_the_server() -> None:
    async def main() -> list[Event]:
        handler = LLMHandler(
            ScriptedClient([BUSY, BUSY]), retries=RetryPolicy(attempts=2, base_s=0)
        )
        clock = ManualClock()
        store = MemoryEventStore()
        async with Engine(store, [handler], algorithms=[React()], clock=clock) as engine:
            started = await engine.start("hi")
            while (await started.info()).status == "open":
                clock.advance(2.0 if clock.sleepers else 0.0)
                await asyncio.sleep(0)  # noqa: TID251 - lets the run go on
            return await store.read(started.id)

    failed = (await main())[-2]

    assert failed.kind == k.LLM_FAILED
    attempt = {"model": "scripted", "took_s": 0.0, "error": {"type": "LLMError", "status": 429}}
    assert failed.data == {
        "key": "llm/1",
        "reason": "error",
        "error": {"type": "LLMError", "message": "the server is busy", "status": 429},
        "attempts": 2,
        "tries": [
            attempt,
            {"after_s": 2.0, **attempt},
        ],
    }


async def test_a_failure_in_the_log_has_the_servers_name_for_the_request() -> None:
    refused = LLMError("the server answered 400", status=400)
    refused.request_id = "req_1"
    store = MemoryEventStore()

    async with Engine(
        store, [LLMHandler(ScriptedClient([refused]))], algorithms=[React()]
    ) as engine:
        started = await engine.start("hi")
        await started.result()
        log = await store.read(started.id)

    (failed,) = [event for event in log if event.kind == k.LLM_FAILED]
    assert failed.data["error"]["request_id"] == "req_1"


async def test_deltas_reach_watchers_and_restart_with_each_attempt() -> None:
    cut = CutOff("Good mor", LLMError("connection lost", retryable=True))
    client = ScriptedClient([cut, "Good morning."])

    async def main() -> tuple[list[LiveDelta], Sequence[str]]:
        handler = LLMHandler(client, retries=RetryPolicy(attempts=2, base_s=0))
        store = MemoryEventStore()
        async with Engine(store, [handler], algorithms=[React()]) as engine:
            started = await engine.start("hi")
            pieces = [piece async for piece in started.deltas()]
            await started.result()
            return pieces, [event.kind for event in await store.read(started.id)]

    pieces, happened = await main()

    facts = {
        attempt: "".join(piece.delta.text for piece in pieces if piece.attempt == attempt)
        for attempt in (1, 2)
    }
    assert facts == {1: "Good mor", 2: "Good morning."}
    assert {piece.key for piece in pieces} == {"llm/1"}
    assert happened == [k.RUN_STARTED, k.LLM_REQUESTED, k.LLM_COMPLETED, k.RUN_COMPLETED]


async def test_one_of_two_watchers_can_leave() -> None:
    async def main() -> tuple[str, str]:
        async with make_engine(ScriptedClient(["one two three"])) as engine:
            started = await engine.start("hi")
            stays, leaves = started.deltas(), started.deltas()
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(anext(leaves))
                pieces = tasks.create_task(_joined(stays))
            await leaves.aclose()
            return first.result().delta.text, pieces.result()

    assert (await main()) == ("one two ", "one two three")


async def _joined(pieces: AsyncIterator[LiveDelta]) -> str:
    return "".join([piece.delta.text async for piece in pieces])


def test_a_stream_that_ends_without_a_reply_is_a_failure() -> None:
    class Silent(ScriptedClient):
        async def stream(self, *args: Any, **options: Any) -> AsyncIterator[Delta | Reply]:
            yield Delta(text="hm")

    async def main() -> Result:
        async with make_engine(Silent([])) as engine:
            started = await engine.start("hi")
            async for _ in started.deltas():
                pass
            return await started.result()

    assert run(main()).error == {
        "type": "InvalidReply",
        "message": "the client's stream ended without a reply",
    }


class Weather(BaseModel):
    city: str
    degrees: int


async def test_output_that_does_not_fit_the_schema_is_requested_once_more() -> None:
    client = ScriptedClient(['{"city": "Bonn"}', '{"city": "Bonn", "degrees": 7}'])

    async with make_engine(client, agent=React(output=Weather)) as engine:
        result = await (await engine.start("weather?")).result()

    assert (result.outcome, result.output) == ("COMPLETED", '{"city": "Bonn", "degrees": 7}')
    assert "does not fit the asked output" in client.calls[1].messages[-1].text
    assert "degrees" in client.calls[1].messages[-1].text
    assert client.calls[0].output == Weather.model_json_schema()


async def test_output_that_never_fits_fails_the_run() -> None:
    client = ScriptedClient(["no JSON", "still none"])
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    async with make_engine(client, agent=React(output=schema)) as engine:
        result = await (await engine.start("a?")).result()

    assert (result.outcome, result.reason, result.output) == ("FAILED", "output", "still none")
    assert result.error is not None
    assert result.error["type"] == "InvalidReply"


async def test_model_settings_and_tools_are_those_of_the_agent_and_recorded() -> None:
    @tool
    def look_up() -> None: ...

    @tool
    def hidden() -> None: ...

    agent = React(model="big", settings={"temperature": 0}, tools=["look_up"])
    client = ScriptedClient(["hello"])

    async with make_engine(client, look_up, hidden, agent=agent) as engine:
        started = await engine.start("hi")
        await started.result()
        requested = (await engine.store.read(started.id))[1]

    call = client.calls[0]
    assert (call.model, call.settings) == ("big", {"temperature": 0})
    assert [spec.name for spec in call.tools] == ["look_up"]
    assert (requested.data["model"], requested.data["settings"]) == ("big", {"temperature": 0})
    assert set(requested.data) == {
        *("key", "upto", "digest", "tools_digest", "tools", "model", "settings", "epoch")
    }
    assert requested.data["tools"] == ["look_up"]


async def test_a_missing_blob_fails_the_call_and_names_it() -> None:
    picture = Message.user("?", Image(data=b"p" * 300_000, media_type="image/png"))
    blobs = MemoryBlobStore()
    store = MemoryEventStore()
    shown = frozenset({"text", "image"})
    hanging = FunctionClient(lambda _: asyncio.Event().wait(), modalities=shown)  # pyright: ignore[reportArgumentType] - never answers

    async def main() -> tuple[Result, Result]:
        async with make_engine(hanging, store=store, blobs=blobs) as engine:
            started = await engine.start(picture)
            second = await engine.start(picture)
        (digest,) = {
            part["blob"]["$blob"]
            for part in (await _first(store, started.id)).data["input"][0]["parts"]
            if "blob" in part
        }
        await blobs.delete(digest)
        async with make_engine(ScriptedClient([]), store=store, blobs=blobs) as engine:
            deleted = await engine.run(started.id).result()
        async with make_engine(ScriptedClient([]), store=store) as engine:
            return deleted, await engine.run(second.id).result()

    for result in await main():
        assert result.outcome == "FAILED"
        assert result.error is not None
        assert result.error["type"] == "BlobMissing"


async def _first(store: MemoryEventStore, run_id: str) -> Event:
    await store.setup()
    return (await store.read(run_id, limit=1))[0]


async def test_small_attachments_and_links_stay_in_the_message() -> None:
    parts = (
        File(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
        Image(url="https://example.com/cat.png"),
    )
    question = Message.user("What are these?", *parts)
    client = ScriptedClient(["a file and a cat"], modalities=frozenset({"text", "image", "file"}))

    async with make_engine(client) as engine:
        await (await engine.start(question)).result()
    assert client.calls[0].messages == (question,)


@pytest.mark.parametrize("modality", ["image", "file"])
async def test_an_attachment_that_the_client_did_not_declare_fails_the_call(modality: str) -> None:
    kind = {"image": Image, "file": File}[modality]
    question = Message.user(kind(data=b"x", media_type="application/octet-stream"))

    async with make_engine(ScriptedClient(["never"])) as engine:
        result = await (await engine.start(question)).result()
    assert result.error == {
        "type": "UnsupportedModality",
        "message": f"scripted takes text, not {modality}",
    }


async def test_the_log_names_the_provider_if_the_client_does() -> None:
    class Client(ScriptedClient):
        provider = "openai"

    async def requested(client: ScriptedClient) -> dict[str, Any]:
        store = MemoryEventStore()
        async with Engine(store, [LLMHandler(client)], algorithms=[React()]) as engine:
            started = await engine.start("hi")
            await started.result()
            (request,) = [e for e in await store.read(started.id) if e.kind == k.LLM_REQUESTED]
        return request.data

    named, silent = await requested(Client(["hello"])), await requested(ScriptedClient(["hello"]))

    assert named == {**silent, "provider": "openai"}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    "arguments", [{"x": float("nan")}, {"x": b"raw"}, nested(150), nested(5_000)]
)
async def test_arguments_that_no_log_can_hold_are_invalid_for_the_model(
    arguments: dict[str, Any],
) -> None:
    results: list[Message] = []

    @tool
    async def look(x: object = None) -> str:
        """Look."""
        return str(x)

    class Foreign(ScriptedClient):
        async def complete(self, messages: Sequence[Message], **_: Any) -> Reply:
            if len(messages) == 1:
                return Reply((ToolCall("a", "look", {"x": 1}), ToolCall("b", "look", arguments)))
            results.extend(messages[-2:])
            return Reply((Text("sorry"),))

    async with make_engine(Foreign([]), look) as engine:
        result = await (await engine.start("hi")).result()

    assert result.output == "sorry"
    assert "1" in str(results[0])
    assert "the arguments are no JSON object" in str(results[1])
