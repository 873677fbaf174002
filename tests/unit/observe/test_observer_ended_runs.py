"""Runs that end are exported whole, once, and those that are chosen."""

import asyncio
from typing import Any

import pytest

from fakes.observed import HandEngine
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall, message_to_json
from lib.observe import CallableSink, InMemorySink, Observer, Span, spans_from_events, trace_id_of
from lib.testing.agents import make_engine
from lib.testing.logs import make_log
from lib.tools import tool

from .observer_kit import Recorder, ended, names, observing

# -- runs that end -----------------------------------------------------------------------------


async def test_the_trace_of_an_agent_is_exported_whole_when_it_has_ended():
    client = ScriptedClient([Reply((ToolCall("c", "look", {"at": "x"}),)), "I see."])
    sent: list[Any] = []
    sink = InMemorySink()

    @tool(effects="none")
    def look(at: str) -> str:
        """Look at something."""
        return f"{at} is red"

    class Client(ScriptedClient):
        async def complete(self, messages: Any, **options: Any) -> Reply:
            sent.append([message_to_json(message) for message in messages])
            return await client.complete(messages, **options)

    async with (
        make_engine(Client([]), look) as engine,
        Observer(engine, sink, capture_content=True),
    ):
        started = await engine.start("What is x?")
        await started.result()
        log = await engine.store.read(started.id)
    definitions = engine.tool_definitions
    expected = spans_from_events(log, capture_content=True, tool_definitions=definitions)

    assert sink.spans == expected
    assert [span.name for span in sink.spans] == [
        "invoke_agent react",
        "chat scripted",
        "execute_tool look",
        "chat scripted",
    ]
    assert [span.input for span in sink.spans if span.kind == "llm"] == sent


async def test_children_come_with_their_root_parents_first_and_in_one_export():
    sink = Recorder()

    async with observing(sink) as (engine, _):
        for log in (ended("root"), ended("child", child_of="root")):
            await engine.has(log)

    assert [names(spans) for spans in sink.exports] == [["root", "child"]]
    assert {span.trace_id for span in sink.exports[0]} == {trace_id_of("root")}


async def test_a_trace_is_exported_only_once_it_has_settled():
    sink = Recorder()

    async with observing(sink, settle_s=5) as (engine, observer):
        await engine.has(ended("root"))
        assert not await observer.drain(timeout_s=0.01)
        engine.clock.advance(4.9)
        assert not await observer.drain(timeout_s=0.01)
        assert sink.exports == []
        engine.clock.advance(0.2)
        assert await observer.drain()
        assert names(sink.exports[0]) == ["root"]


async def test_a_run_that_is_erased_before_it_is_exported_leaves_no_trace():
    sink = Recorder()

    async def main() -> bool:
        async with observing(sink, settle_s=5) as (engine, observer):
            await engine.has(ended("root"))
            await engine.bus.flush()
            await engine.store.erase("root")
            engine.clock.advance(5)
            return await observer.drain()

    assert await main()
    assert sink.exports == []


async def test_runs_that_had_ended_before_are_left_to_backfill():
    sink = Recorder()

    engine = HandEngine()
    await engine.store.setup()
    await engine.has(ended("before"))
    async with observing(sink, engine=engine) as (_, observer):
        assert await observer.drain()
        await engine.has(ended("after"))

    assert [names(spans) for spans in sink.exports] == [["after"]]


async def test_an_observer_goes_on_where_its_group_has_stopped():
    first, second = Recorder(), Recorder()

    engine = HandEngine()
    async with observing(first, engine=engine):
        await engine.has(ended("one"))
    await engine.has(ended("two"))
    async with observing(second, engine=engine):
        pass

    assert [names(spans) for spans in first.exports] == [["one"]]
    assert [names(spans) for spans in second.exports] == [["two"]]


async def test_an_exception_is_not_kept_waiting_for_sinks():
    sink = Recorder(asyncio.Event().wait)

    async def main() -> None:
        async with observing(sink) as (engine, _):
            await engine.has(ended("root"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await main()


async def test_one_group_has_one_observer():
    async with observing(InMemorySink()) as (engine, _):
        with pytest.raises(ValueError, match=r"group 'lib\.observe' has a handler already"):
            await Observer(engine, InMemorySink()).__aenter__()
        async with Observer(engine, InMemorySink(), group="another"):
            pass


async def test_one_sink_needs_no_list_and_no_sink_is_fine_too():
    sink = InMemorySink()

    engine = HandEngine()
    await engine.store.setup()
    async with (
        Observer(engine, sink, settle_s=0),
        Observer(engine, [], settle_s=0, group="idle") as idle,
    ):
        await engine.has(ended("root"))
        assert await idle.drain()
        assert await idle.export_trace("root") == 0

    assert names(sink.spans) == ["root"]


async def test_a_callable_is_a_sink():
    taken: list[Span] = []

    async with observing(CallableSink(taken.extend)) as (engine, _):
        await engine.has(ended("root"))

    assert names(taken) == ["root"]


# -- which traces ------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [0, 0.3, 1])
async def test_a_sample_holds_whole_traces_by_the_last_64_bits_of_their_ids(sample: float):
    sink = Recorder()

    async def main() -> list[int]:
        async with observing(sink, sample=sample) as (engine, observer):
            for number in range(40):
                await engine.has(ended(f"run-{number}"))
                await engine.has(ended(f"child-{number}", child_of=f"run-{number}"))
            await observer.drain()
            assert await observer.backfill() == 0
            return [await observer.export_trace(f"run-{number}") for number in range(40)]

    counts = await main()

    kept = [
        [f"run-{number}", f"child-{number}"]
        for number in range(40)
        if int(trace_id_of(f"run-{number}")[16:], 16) < round(sample * 2**64)
    ]
    assert [names(spans) for spans in sink.exports][: len(kept)] == kept
    assert len(kept) == {0: 0, 0.3: 15, 1: 40}[sample]
    assert sum(counts) == 2 * len(kept)


async def test_an_observer_of_one_tenant_sees_no_other():
    sink = Recorder()

    async def main() -> int:
        engine = HandEngine()
        await engine.store.setup()
        await engine.has(ended("old-theirs", tenant="theirs"))
        async with observing(sink, engine=engine, tenant="ours") as (_, observer):
            await engine.has(ended("theirs", tenant="theirs"))
            await engine.has(ended("nobodys", tenant=None))
            await engine.has(make_log((0, k.RUN_STARTED, {"algorithm": "a"}), tenant="theirs"))
            await engine.has(ended("ours", tenant="ours"))
            await observer.drain()
            return (
                await observer.backfill()
                + await observer.flush_open()
                + await observer.export_trace("theirs")
            )

    assert (await main()) == 0
    assert [names(spans) for spans in sink.exports] == [["ours"]]


# -- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content_limit", -1),
        ("sample", 1.1),
        ("sample", -0.1),
        ("settle_s", -1),
        ("flush_interval_s", 0),
        ("sink_timeout_s", 0),
        ("max_tracked", 0),
    ],
)
def test_arguments_out_of_range_are_refused_at_once(name: str, value: Any):
    with pytest.raises(ValueError, match=f"expected {name} .*, got {value!r}"):
        Observer(HandEngine(), InMemorySink(), **{name: value})
