"""The bus: every event to every group, at least once, in order, and no group waits for another."""

import asyncio
import logging

import pytest

from lib.errors import StoreClosed
from lib.events import Event, EventStore, MemoryEventStore
from lib.events.bus import Bus
from lib.events.wakeups import Wakeups
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin, note

from .bus_kit import Handler, opened, pause, running, until


class Clock(ManualClock):
    """Remembers for how long it was slept on."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.pauses.append(delay_s)
        await super().sleep(delay_s)


class Deaf(MemoryEventStore):
    """Wakes no listener, as if all appends were made on another machine."""

    @property
    def wakeups(self) -> Wakeups:
        return Wakeups()


async def failed(clock: ManualClock, handler: Handler, *, until_call: int) -> None:
    """Let the time pass that the bus waits between the calls of a handler that fails."""
    while handler.calls < until_call:
        await until(lambda: clock.sleepers == 1 or handler.calls == until_call)
        clock.advance(30)


async def test_every_group_gets_every_event_in_the_order_of_commits() -> None:
    async with opened(MemoryEventStore()) as store:
        log = await begin(store, "a", notes=2)
        bus, one, two = Bus(store), Handler(), Handler()
        await bus.subscribe("one", one)
        await bus.subscribe("two", two)
        async with running(bus):
            log += await begin(store, "b")
            log += await store.append("a", [note()], expected=3)
            await until(lambda: len(one.events) == len(two.events) == len(log))

    assert one.events == two.events == log


async def test_flush_delivers_what_has_been_appended_whether_the_bus_runs_or_not() -> None:
    async with opened(MemoryEventStore()) as store:
        bus, handler = Bus(store, batch=2), Handler()
        await bus.subscribe("group", handler)
        log = await begin(store, "run", notes=6)
        assert await bus.flush() is True
        assert handler.events == log
        assert [len(batch) for batch in handler.batches] == [2, 2, 2, 1]

        async with running(bus):
            log += await store.append("run", [note()], expected=7)
            assert await bus.flush() is True
            assert handler.events == log
        assert bus.can_flush is True


async def test_a_bus_without_groups_has_nothing_to_flush() -> None:
    async with opened(MemoryEventStore()) as store:
        assert await Bus(store).flush() is True


async def test_a_group_goes_on_where_it_was_in_another_process() -> None:
    async with opened(MemoryEventStore()) as store:
        await begin(store, "run", notes=3)
        before, after = Handler(), Handler()
        first = Bus(store)
        await first.subscribe("group", before)
        await first.flush()
        more = await store.append("run", [note()], expected=4)
        second = Bus(store)
        await second.subscribe("group", after)
        await second.flush()

    assert after.events == more


async def test_a_batch_that_was_not_handled_is_delivered_again() -> None:
    async with opened(MemoryEventStore()) as store:
        log = await begin(store, "run", notes=4)
        dying, reborn = Handler(fails={2}), Handler()
        first, second = Bus(store, batch=2), Bus(store, batch=2)
        await first.subscribe("group", dying)
        assert await first.flush() is False
        await second.subscribe("group", reborn)
        assert await second.flush() is True

    assert dying.events == log[:2]
    assert reborn.events == log[2:]


async def test_a_group_may_begin_with_what_is_appended_from_now_on() -> None:
    async with opened(MemoryEventStore()) as store:
        await begin(store, "old", notes=3)
        handler, again = Handler(), Handler()
        bus = Bus(store)
        await bus.subscribe("group", handler, start="now")
        log = await begin(store, "new")
        await bus.flush()
        assert handler.events == log

        await bus.unsubscribe("group")
        missed = await store.append("new", [note()], expected=1)
        await bus.subscribe("group", again, start="now")
        await bus.flush()
        assert again.events == missed  # it had begun before: now is for the first time only


async def test_a_handler_that_fails_is_retried_with_backoff_and_stops_no_other_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        clock, failing, sound = Clock(), Handler(fails=range(1, 12)), Handler()
        async with opened(MemoryEventStore()) as store:
            log = await begin(store, "run", notes=1)
            bus = Bus(store, clock=clock, max_deliveries=20)
            await bus.subscribe("failing", failing)
            await bus.subscribe("sound", sound)
            async with running(bus):
                await until(lambda: sound.events == log)
                log += await store.append("run", [note()], expected=2)
                await until(lambda: sound.events == log)
                await failed(clock, failing, until_call=12)
                await until(lambda: failing.events == log)

        assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]

    with caplog.at_level(logging.ERROR, "lib.events.bus"):
        await main()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["bus group 'failing': a batch will be tried again"] * 11


async def test_the_backoff_restarts_after_a_success() -> None:
    clock, handler = Clock(), Handler(fails={1, 2, 4})
    async with opened(MemoryEventStore()) as store:
        log = await begin(store, "run")
        bus = Bus(store, clock=clock)
        await bus.subscribe("group", handler)
        async with running(bus):
            await failed(clock, handler, until_call=3)
            log += await store.append("run", [note()], expected=1)
            await failed(clock, handler, until_call=5)
            await until(lambda: handler.events == log)

    assert clock.pauses == [0.1, 0.2, 0.1]


async def test_flush_returns_false_if_a_handler_failed_and_serves_the_others() -> None:
    async with opened(MemoryEventStore()) as store:
        log = await begin(store, "run")
        bus, failing, sound = Bus(store), Handler(fails={1}), Handler()
        await bus.subscribe("failing", failing)
        await bus.subscribe("sound", sound)

        assert await bus.flush() is False
        assert (failing.events, sound.events) == ([], log)
        assert await bus.flush() is True
        assert (failing.events, sound.calls) == (log, 1)


async def test_a_slow_handler_keeps_no_other_group_waiting() -> None:
    async with opened(MemoryEventStore()) as store:
        log = await begin(store, "run")
        bus, sound, gate = Bus(store), Handler(), asyncio.Event()

        async def slow(_: list[Event]) -> None:
            await gate.wait()

        await bus.subscribe("slow", slow)
        await bus.subscribe("sound", sound)
        async with running(bus):
            await until(lambda: sound.events == log)
            log += await store.append("run", [note()], expected=1)
            await until(lambda: sound.events == log)
            gate.set()


async def test_groups_come_and_go_while_the_bus_runs() -> None:
    async with opened(MemoryEventStore()) as store:
        log = await begin(store, "run")
        bus, handler = Bus(store), Handler()
        async with running(bus):
            await pause()
            await bus.subscribe("group", handler)
            await until(lambda: handler.events == log)
            await bus.unsubscribe("group")
            await store.append("run", [note()], expected=1)
            assert await bus.flush() is True
            assert handler.events == log
            again = Handler()
            await bus.subscribe("group", again)
            await until(lambda: len(again.events) == 1)


async def test_a_batch_under_way_is_finished_before_its_group_is_gone() -> None:
    async with opened(MemoryEventStore()) as store:
        await begin(store, "run")
        bus, gate, begun, done = Bus(store), asyncio.Event(), asyncio.Event(), list[int]()

        async def slow(events: list[Event]) -> None:
            begun.set()
            await gate.wait()
            done.append(len(events))

        await bus.subscribe("group", slow)
        async with running(bus):
            await begun.wait()
            flush = asyncio.create_task(bus.flush())  # waits for its turn, in vain
            leaving = asyncio.create_task(bus.unsubscribe("group"))
            await pause()
            gate.set()
            await leaving
            assert await flush is True

        assert done == [1]
        assert await store.mark("bus/group/0") is not None


async def test_a_group_has_one_handler() -> None:
    async with opened(MemoryEventStore()) as store:
        bus = Bus(store)
        await bus.subscribe("group", Handler())
        with pytest.raises(ValueError, match="group 'group' has a handler already"):
            await bus.subscribe("group", Handler())
        with pytest.raises(KeyError):
            await bus.unsubscribe("other")


async def test_a_group_that_could_not_be_subscribed_is_not() -> None:
    store: EventStore = MemoryEventStore()
    bus, handler = Bus(store), Handler()
    with pytest.raises(StoreClosed):
        await bus.subscribe("group", handler)
    await store.setup()
    await begin(store, "run")
    await bus.flush()
    assert handler.calls == 0
    await bus.subscribe("group", handler)
    await bus.flush()
    assert handler.calls == 1


async def test_a_bus_runs_once_at_a_time_and_again_later() -> None:
    async with opened(MemoryEventStore()) as store:
        bus, handler = Bus(store), Handler()
        await bus.subscribe("group", handler)
        async with running(bus):
            await pause()
            with pytest.raises(RuntimeError):
                await bus.run()
            log = await begin(store, "run")
            await until(lambda: handler.events == log)
        async with running(bus):
            log += await store.append("run", [note()], expected=1)
            await until(lambda: handler.events == log)


async def test_events_without_a_wake_up_are_found_by_polling() -> None:
    store = Deaf()
    await store.setup()
    bus, handler = Bus(store, poll_s=0.001), Handler()
    await bus.subscribe("group", handler)
    async with running(bus):
        await pause()
        log = await begin(store, "run")
        await until(lambda: handler.events == log)
