"""The spans and the spend of sessions that an engine has held."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import AgentTool, ChildHandler, Engine, LLMHandler
from lib.events import Event, EventStore, MemoryEventStore
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, Text, ToolCall, Usage
from lib.observe import Observer, SinkTraits, Span, spans_from_events, spend_of
from lib.testing.agents import make_engine
from lib.testing.logs import at, make_log
from lib.testing.providers import StrictClient

USAGE = Usage(input_tokens=1, output_tokens=1, cost=0.5)


def think(messages: Sequence[Message]) -> Reply:
    if messages[0].text == "helper":
        return Reply((Text("helped"),), USAGE)
    if messages[-1].role == "user":
        return Reply((ToolCall("c", "helper", {"task": "help"}),), USAGE, "tool_calls")
    return Reply((Text("done"),), USAGE)


async def logs_of(store: EventStore) -> dict[str, tuple[list[Event], str | None]]:
    return {i.run_id: (await store.read(i.run_id), i.parent_id) for i in await store.runs()}


async def test_turns_hang_under_their_session_and_runs_under_the_exact_turn() -> None:
    async def main() -> tuple[str, Any, Any]:
        store = MemoryEventStore()
        handlers = [
            LLMHandler(FunctionClient(think)),
            ChildHandler([AgentTool("helper", "Helps.", "helper")]),
        ]
        agents = [React(), React("helper", system="helper")]
        async with Engine(store, handlers, algorithms=agents) as engine:
            session = await engine.start_session()
            turns = [await session.send(word) for word in ("a", "b")]
            for turn in turns:
                await turn.result()
            await session.close()
            result = await session.run.result()
            return session.id, result, await logs_of(store)

    session_id, result, logs = await main()
    spans: dict[str, Span] = {}
    for log, parent in logs.values():
        parent_events = logs[parent][0] if parent else ()
        spans |= {s.span_id: s for s in spans_from_events(log, parent_events=parent_events)}

    def path(span: Span) -> list[str]:
        above = [] if span.parent_id is None else path(spans[span.parent_id])
        return [*above, span.name]

    root = ["invoke_workflow session"]
    turn = [*root, "turn"]
    run_of_turn = [*turn, "invoke_agent react"]
    helper = [*run_of_turn, "execute_tool helper", "invoke_agent helper"]
    assert sorted(path(span) for span in spans.values()) == sorted(
        [
            root,
            *[turn, run_of_turn, run_of_turn[:-1] + run_of_turn[-1:] + ["execute_tool helper"]] * 2,
            *[[*run_of_turn, "chat function"]] * 4,
            *[helper, [*helper, "chat function"]] * 2,
        ]
    )
    assert {span.trace_id for span in spans.values()} == {next(iter(spans.values())).trace_id}
    assert all(span.end is not None and span.status == "ok" for span in spans.values())
    turns = [span for span in spans.values() if span.name == "turn"]
    runs = [span for span in spans.values() if span.name == "invoke_agent react"]
    assert {span.parent_id for span in runs} == {span.span_id for span in turns}
    assert all(span.attributes["gen_ai.conversation.id"] == session_id for span in turns + runs)
    total = spend_of([event for log, _ in logs.values() for event in log])
    assert (total.llm_calls, total.tool_calls, total.total.cost) == (6, 2, Decimal(3))
    assert (result.spend.llm_calls, result.spend.tool_calls, result.spend.cost) == (6, 2, 3.0)


async def test_a_turn_that_was_called_off_before_it_began_is_no_error() -> None:
    async def main() -> list[Event]:
        store, go = MemoryEventStore(), asyncio.Event()

        async def wait(_messages: Sequence[Message]) -> str:
            await go.wait()
            return "ok"

        async with make_engine(StrictClient(wait), store=store) as engine:
            session = await engine.start_session()
            first, second = await session.send("a"), await session.send("b")
            await second.cancel("never mind")
            go.set()
            await first.result()
            await session.close()
            await session.run.result()
            return await store.read(session.id)

    session, first, second = spans_from_events(await main())

    assert [span.status for span in (session, first, second)] == ["ok"] * 3
    assert second.attributes["lib.run.outcome"] == "CANCELLED"
    assert (second.end or first.start) < (first.end or second.start)


def test_a_turn_that_is_called_off_when_it_has_begun_lasts_until_its_run_has_ended() -> None:
    signal: dict[str, Any] = {"signal_id": "a", "input": []}
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "session", "input": []}),
        (1, k.TURN_REQUESTED, signal),
        (2, k.TURN_STARTED, {"key": "a", "run_id": "r", "algorithm": "react", "upto": 2}),
        (3, k.CANCEL_REQUESTED, {"signal_id": "c", "key": "a"}),
        (
            4,
            k.TURN_COMPLETED,
            {"key": "a", "signal_id": "a", "run_id": "r", "outcome": "CANCELLED"},
        ),
    )

    session, turn = spans_from_events(log)

    assert (turn.end, turn.status) == (at(4), "ok")
    assert [event.attributes for event in session.events] == [{"lib.key": "a"}]


# -- sessions that stay open ---------------------------------------------------------------------


def spoken(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "parts": [{"type": "text", "text": text}]}]


def test_a_session_shows_what_was_said_first_and_answered_last() -> None:
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "session", "input": []}),
        (1, k.TURN_REQUESTED, {"signal_id": "a", "input": spoken("one")}),
        (2, k.TURN_COMPLETED, {"signal_id": "a", "outcome": "COMPLETED", "output": "first"}),
        (3, k.TURN_REQUESTED, {"signal_id": "b", "input": spoken("two")}),
        (4, k.TURN_COMPLETED, {"signal_id": "b", "outcome": "COMPLETED", "output": "second"}),
        (5, k.TURN_REQUESTED, {"signal_id": "c", "input": spoken("three")}),
        (
            6,
            k.TURN_COMPLETED,
            {"signal_id": "c", "outcome": "FAILED", "error": {"message": "out of order"}},
        ),
        (7, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
    )

    session, *turns = spans_from_events(log, capture_content=True)

    assert (session.input, session.output) == (spoken("one"), "second")
    assert [(turn.input, turn.output) for turn in turns] == [
        (spoken("one"), "first"),
        (spoken("two"), "second"),
        (spoken("three"), None),
    ]
    assert turns[2].status_message == "out of order"
    for span in spans_from_events(log):
        assert (span.input, span.output, span.status_message) == (None, None, None)


class Kept:
    """A sink that keeps each span once."""

    def __init__(self, *, needs_root: bool) -> None:
        self.traits = SinkTraits(destination="kept", updates="first", needs_root=needs_root)
        self.exports: list[list[Span]] = []

    async def export(self, spans: Sequence[Span]) -> None:
        self.exports.append([span for span in spans if span.end is not None])


@pytest.mark.parametrize("needs_root", [False, True])
async def test_each_turn_of_an_open_session_reaches_a_sink_as_it_ends(needs_root: bool) -> None:
    sink = Kept(needs_root=needs_root)

    async def main() -> None:
        handlers = [LLMHandler(FunctionClient(lambda _: "ok"))]
        async with (
            Engine(MemoryEventStore(), handlers, algorithms=[React()]) as engine,
            Observer(engine, sink, settle_s=0) as observer,
        ):
            session = await engine.start_session()
            await observer.flush_open()  # before anything was said
            for word in ("a", "b"):
                turn = await session.send(word)
                await turn.result()
                await observer.drain()
            await session.close()
            await session.run.result()

    await main()

    turn = ["turn", "invoke_agent react", "chat function"]
    root = ["invoke_workflow session"]
    report = [sorted(span.name for span in spans) for spans in sink.exports if spans]
    assert report == [
        sorted([*(root if needs_root else []), *turn]),
        sorted(turn),
        *([] if needs_root else [root]),
    ]
    if needs_root:
        anchor = next(span for span in sink.exports[0] if span.parent_id is None)
        assert anchor.attributes["lib.run.open"] is True
        assert sink.exports[0][0] == anchor
