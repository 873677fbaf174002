"""Events that a group cannot handle become dead letters; failures of a store do not count."""

import asyncio
from contextlib import suppress

import pytest

from lib.errors import Conflict, RunNotFound, StoreClosed, StoreError
from lib.events import Event
from lib.events.bus import Bus
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin

from .bus_kit import Handler, Store, opened, running, subscribed, until


@pytest.mark.parametrize(
    ("passing", "warnings"),
    [
        (True, ["bus group 'group' waits for the store: no connection"]),
        (False, ["bus group 'group': a batch will be tried again"] * 3),
    ],
)
async def test_a_failure_of_the_store_is_no_failed_delivery_and_is_tried_again(
    passing: bool, warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with opened(Store()) as store:
        store.passing = passing
        await begin(store, "run")
        bus, handler = await subscribed(store, clock=clock)
        store.fail_feeds = 3
        async with running(bus):
            for _ in range(3):
                await until(lambda: clock.sleepers)
                clock.advance(1)
            await until(lambda: handler.seen)

    assert caplog.messages == warnings
    assert [bool(record.exc_info) for record in caplog.records] == [not passing] * len(warnings)


STORE_FAILS = ExceptionGroup("in tasks", [StoreError("a"), ExceptionGroup("b", [StoreClosed("c")])])


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (StoreError("no connection"), False),
        (STORE_FAILS, False),
        (ExceptionGroup("in tasks", [StoreError("a"), KeyError("b")]), True),
        (Conflict("run", expected=1, actual=2), True),
        (RunNotFound("run"), True),
        (KeyError("x"), True),
    ],
)
async def test_only_failures_of_the_handler_count(error: Exception, counts: bool) -> None:
    clock = ManualClock()
    async with opened(Store()) as store:
        await begin(store, "run")
        bus, handler = await subscribed(store, Handler(error), clock=clock)
        assert await bus.flush() is False
        assert (await store.place()).get("tries", 0) == counts
        assert await bus.flush() is False  # before its pause is over: no failed try
        assert (await store.place()).get("tries", 0) == counts
        handler.error = None
        assert await bus.flush() is True
        assert await store.place() == {"cursor": "1"}


async def exhausted(bus: Bus, clock: ManualClock) -> None:
    for _ in range(20):
        await bus.flush()
        clock.advance(60)


async def poisoned(store: Store, *bad: int, error: Exception) -> tuple[Bus, Handler]:
    clock = ManualClock()
    await begin(store, "run", notes=5)
    handler = Handler(error, *bad)
    bus, _ = await subscribed(store, handler, clock=clock, max_deliveries=3)
    await exhausted(bus, clock)
    return bus, handler


async def test_an_event_that_fails_alone_becomes_a_dead_letter_and_the_others_arrive() -> None:
    async with opened(Store()) as store:
        bus, handler = await poisoned(store, 2, 5, error=KeyError("secret"))
        assert handler.seen == [1, 3, 4, 6]
        assert await bus.dead_letters("other") == []
        first, second = await bus.dead_letters("group")
    assert (first.run_id, first.seq, second.seq) == ("run", 2, 5)
    assert (first.group, first.error, first.message) == ("group", "KeyError", "")
    assert (first.deliveries, second.deliveries) == (4, 4)
    assert first.at < second.at


async def test_dead_letters_can_be_delivered_again() -> None:
    async with opened(Store()) as store:
        bus, handler = await poisoned(store, 2, 5, error=RunNotFound("other"))
        letters = await bus.dead_letters("group")
        assert letters[0].message == str(RunNotFound("other"))
        assert await bus.retry_dead_letters("group") == 0
        assert [letter.deliveries for letter in await bus.dead_letters("group")] == [5, 5]
        handler.bad = {5}
        assert await bus.retry_dead_letters("group", run_id="other") == 0
        assert await bus.retry_dead_letters("group", run_id="run", seq=2) == 1
        async with running(bus):
            assert await bus.retry_dead_letters("group") == 0
        assert [letter.seq for letter in await bus.dead_letters("group")] == [5]
        assert handler.seen[-1] == 2
        with pytest.raises(KeyError):
            await bus.retry_dead_letters("other")
        await store.erase("run")
        assert await bus.dead_letters("group") == []


async def test_a_dead_letter_of_a_lost_partition_or_an_erased_run_is_not_delivered() -> None:
    async with opened(Store()) as store:
        bus, handler = await poisoned(store, 2, error=KeyError("x"))
        handler.error = None
        (letter,) = await bus.dead_letters("group")
        await store.put(cursor="6", owner="other", until=1e12)
        assert await bus.retry_dead_letters("group") == 0
        await store.put(cursor="6")
        await store.erase("run")
        with suppress(StoreError):  # a store may refuse it
            await store.set_mark(letter.mark, letter.encode())
        assert await bus.retry_dead_letters("group") == 0
        assert await bus.dead_letters("group") == []


async def test_a_run_erased_while_its_event_fails_leaves_no_dead_letter() -> None:
    clock = ManualClock()
    async with opened(Store()) as store:
        await begin(store, "run")
        bus = Bus(store, clock=clock, max_deliveries=1)

        async def handle(_: list[Event]) -> None:
            if (await store.place()).get("alone"):
                await store.erase("run")
            raise KeyError("x")

        await bus.subscribe("group", handle)
        await exhausted(bus, clock)
        assert await bus.dead_letters("group") == []
        assert (await store.place())["cursor"] == "1"


async def test_deliveries_of_processes_that_died_count_as_failures() -> None:
    clock = ManualClock()
    async with opened(Store()) as store:
        await begin(store, "run", notes=2)
        for _ in range(3 + 2):
            place = await store.place()
            await store.put(**{**place, "owner": "dead", "until": 0})
            bus = Bus(store, clock=clock, max_deliveries=3, batch=10)
            gate = asyncio.Event()

            async def hang(_: list[Event], gate: asyncio.Event = gate) -> None:
                gate.set()
                await asyncio.Event().wait()

            await bus.subscribe("group", hang)
            flush = asyncio.create_task(bus.flush())
            waiting = asyncio.create_task(gate.wait())
            await asyncio.wait([flush, waiting], return_when=asyncio.FIRST_COMPLETED)
            place = await store.place()  # as a process that is killed leaves it
            waiting.cancel()
            flush.cancel()
            await asyncio.wait([flush])
            await store.put(**place)
        bus, handler = await subscribed(store, clock=clock, max_deliveries=3)
        clock.advance(100)
        await bus.flush()
        assert handler.seen in ([2, 3], [3])
        letters = await bus.dead_letters("group")
    assert [letter.error for letter in letters] == ["died"] * len(letters)
    assert letters[0].seq == 1
