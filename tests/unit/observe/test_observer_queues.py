"""Sinks that fail, hang or lag delay no other sink, and their pending traces are not lost."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from fakes.observed import HandEngine, until
from lib.errors import ExportError
from lib.events import Event
from lib.observe import InMemorySink, Observer

from .observer_kit import Recorder, ended, names, observing


async def fail() -> None:
    raise ExportError("no")


async def refuse() -> None:
    raise ExportError("never", permanent=True)


async def blow_up() -> None:
    raise ZeroDivisionError


async def hang() -> None:
    await asyncio.Event().wait()


async def cancel() -> None:
    raise asyncio.CancelledError


async def ignore() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()


async def fail_late() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ExportError("too late") from None


@pytest.mark.parametrize("trouble", [fail, blow_up, hang, cancel, ignore, fail_late])
async def test_a_failing_sink_is_logged_and_delays_no_other_sink(
    trouble: Callable[[], Any], caplog: pytest.LogCaptureFixture
):
    bad, good = Recorder(trouble), Recorder()

    async def main() -> tuple[bool, int]:
        async with observing(bad, good, sink_timeout_s=0.25) as (engine, observer):
            await engine.has(ended("one"))
            await engine.has(ended("two"))
            return await observer.drain(), await observer.export_trace("one")

    assert (await main()) == (False, 1)
    assert [names(spans) for spans in bad.exports][:3] == [["one"], ["two"], ["one"]]
    assert [names(spans) for spans in good.exports] == [["one"], ["two"], ["one"]]
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.getMessage().startswith("Recorder did not take the traces of runs 'one': ")
    assert not record.exc_info


async def test_a_backend_that_is_down_for_many_runs_is_a_line_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
):
    down = True

    async def maybe() -> None:
        if down:
            raise ConnectionError("refused")

    async def main() -> None:
        nonlocal down
        async with observing(Recorder(maybe)) as (engine, observer):
            for number in range(60):
                await engine.has(ended(f"run-{number}"))
            assert not await observer.drain()
            down = False
            assert await observer.drain()
            assert await observer.drain()

    with caplog.at_level(logging.DEBUG, "lib.observe"):
        await main()
    assert [(each.name, each.levelname, bool(each.exc_info)) for each in caplog.records] == [
        ("lib.observe", "DEBUG", True),
        ("lib.observe", "ERROR", False),
        ("lib.observe", "INFO", False),
    ]
    assert "ConnectionError: refused" in caplog.messages[1]
    assert caplog.messages[2].startswith("Recorder takes traces again, after ")


async def test_a_sink_that_recovers_can_be_given_what_it_has_missed():
    down = True

    async def maybe() -> None:
        if down:
            raise ExportError("down")

    sink = Recorder(maybe)

    async def main() -> tuple[bool, int, bool]:
        nonlocal down
        async with observing(sink) as (engine, observer):
            await engine.has(ended("root"))
            before = await observer.drain()
            down = False
            return before, await observer.backfill(), await observer.drain()

    assert (await main()) == (False, 1, True)


async def test_a_slow_sink_delays_no_other():
    slow, fast = Recorder(hang), Recorder()

    async def main() -> None:
        async with observing(slow, fast, sink_timeout_s=3600) as (engine, observer):
            for number in range(5):
                await engine.has(ended(f"run-{number}"))
            assert not await observer.drain(timeout_s=0.05)
            while len(fast.exports) < 5 or not slow.exports:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0)  # noqa: TID251 - lets them export
            assert len(slow.exports) == 1
            assert len(fast.exports) == 5
            raise ZeroDivisionError  # leaves without draining again

    with pytest.raises(ZeroDivisionError):
        await main()


async def test_draining_waits_for_what_has_ended_before_and_for_nothing_that_ends_meanwhile():
    engine = HandEngine()

    async def another_ends() -> None:
        if len(sink.exports) > 1:
            await hang()
        await engine.has(ended("two"))
        await engine.bus.flush()

    sink = Recorder(another_ends)
    observer = Observer(engine, sink, settle_s=0)
    await engine.store.setup()
    await observer.__aenter__()
    await engine.has(ended("one"))
    drained = await observer.drain()
    await until(lambda: len(sink.exports) == 2)
    await observer.__aexit__(ZeroDivisionError, None, None)
    assert drained


async def test_when_too_many_wait_for_a_sink_the_rest_waits_in_the_log_and_is_not_lost():
    gate = asyncio.Event()
    sink = Recorder(gate.wait)

    engine = HandEngine()
    async with observing(sink, engine=engine, max_tracked=1) as (_, observer):
        for number in range(3):
            await engine.has(ended(f"run-{number}"))
        assert not await observer.drain(timeout_s=0.02)
        assert len(sink.exports) == 1
        gate.set()
        assert await observer.drain()

    assert [names(spans) for spans in sink.exports] == [["run-0"], ["run-1"], ["run-2"]]


async def test_what_waits_in_the_log_when_an_observer_closes_is_for_the_next_one(
    caplog: pytest.LogCaptureFixture,
):
    stuck, later = Recorder(hang), Recorder()

    engine = HandEngine()
    await engine.store.setup()
    observer = Observer(engine, stuck, settle_s=0, max_tracked=1)
    await observer.__aenter__()
    for number in range(3):
        await engine.has(ended(f"run-{number}"))
    flushing = asyncio.create_task(engine.bus.flush())
    await until(lambda: stuck.exports)
    await observer.__aexit__(ZeroDivisionError, None, None)
    assert not await flushing
    async with observing(later, engine=engine):
        pass

    assert [names(spans) for spans in later.exports] == [["run-0"], ["run-1"], ["run-2"]]
    assert "bus group 'lib.observe': a batch will be tried again" in caplog.text


async def test_of_a_sink_that_ends_with_the_process_only_so_many_traces_are_remembered():
    sink = InMemorySink()

    async def main() -> int:
        async with observing(sink, max_tracked=2) as (engine, observer):
            for number in range(3):
                await engine.has(ended(f"run-{number}"))
            await observer.drain()
            return await observer.backfill(limit=1)

    assert (await main()) == 1  # its checkpoint was dropped


async def test_only_so_many_failures_are_remembered():
    sink = Recorder(refuse)

    async def main() -> bool:
        async with observing(sink, max_tracked=1) as (engine, observer):
            for number in range(3):
                await engine.has(ended(f"run-{number}"))
            return await observer.drain()

    assert not (await main())
    assert len(sink.exports) == 3


async def test_drain_says_so_when_the_bus_could_not_deliver():
    async def main() -> bool:
        async with observing(InMemorySink()) as (engine, observer):

            async def refuse(_: list[Event]) -> None:
                raise ZeroDivisionError

            await engine.bus.subscribe("other", refuse)
            await engine.has(ended("root"))
            return await observer.drain()

    assert not (await main())
