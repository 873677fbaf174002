"""Groups that processes share, and events that a group cannot be given."""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import pytest

from lib.errors import Conflict, RunNotFound, StoreClosed, StoreError
from lib.events import Event, Feed, MemoryEventStore
from lib.events.bus import Bus, DeadLetter
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin, note

from .bus_kit import opened, pause, running, until

PLACE = "bus/group/0"


class Store(MemoryEventStore):
    """Counts what a bus costs, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps = self.feeds = 0
        self.fail_feeds = self.fail_swaps = 0

    async def feed(self, after: str = "", *, limit: int = 512, partition: int = 0) -> Feed:
        self.feeds += 1
        if self.fail_feeds:
            self.fail_feeds -= 1
            raise StoreError("no connection")
        return await super().feed(after, limit=limit, partition=partition)

    async def swap_mark(self, name: str, *, expected: str | None, value: str | None) -> bool:
        self.swaps += 1
        if self.fail_swaps:
            self.fail_swaps -= 1
            raise StoreError("no connection")
        return await super().swap_mark(name, expected=expected, value=value)

    async def place(self) -> dict[str, Any]:
        return json.loads(await self.mark(PLACE) or "{}")

    async def put(self, **fields: Any) -> None:
        await self.set_mark(PLACE, json.dumps({"cursor": "", **fields}))


class Handler:
    """Keeps what it is given, and raises what it is told to, for the events of these numbers."""

    def __init__(self, error: Exception | None = None, *bad: int) -> None:
        self.seen: list[int] = []
        self.calls = 0
        self.error, self.bad = error, set(bad)

    async def __call__(self, events: list[Event]) -> None:
        self.calls += 1
        numbers = [event.seq for event in events]
        if self.error is not None and (not self.bad or self.bad.intersection(numbers)):
            raise self.error
        self.seen += numbers


# -- places ------------------------------------------------------------------------------------


def test_a_cursor_of_layout_1_is_adopted() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            await begin(store, "run", notes=3)
            await store.set_mark("bus/group", "2")
            bus, handler = Bus(store), Handler()
            await bus.subscribe("group", handler, start="now")
            assert await store.place() == {"cursor": "2"}
            assert await store.mark("bus/group") is None
            assert await bus.flush()
            assert handler.seen == [3, 4]

    run(main())


def test_groups_whose_names_hold_slashes_do_not_meet() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            await begin(store, "run")
            bus, one, two = Bus(store), Handler(), Handler()
            await bus.subscribe("a", one)
            await bus.subscribe("a/0", two)
            assert await bus.flush()
            assert one.seen == two.seen == [1]
            assert list(await store.marks("bus/")) == ["bus/a%2F0/0", "bus/a/0"]

    run(main())


# -- claims ------------------------------------------------------------------------------------


def test_nothing_is_written_while_nothing_happens_and_one_look_is_taken_per_poll() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            await begin(store, "run")
            bus, handler = Bus(store, poll_s=0.02), Handler()
            await bus.subscribe("group", handler)
            async with running(bus):
                await until(lambda: handler.seen)
                await pause(0.06)
                assert "owner" not in await store.place()
                store.swaps = store.feeds = 0
                await pause(0.2)
                assert store.swaps == 0
                assert store.feeds <= 11

    run(main())


def test_a_page_costs_one_write_while_the_claim_is_held() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            await begin(store, "run")
            bus, handler = Bus(store), Handler()
            await bus.subscribe("group", handler)
            async with running(bus):
                await until(lambda: handler.seen)
                store.swaps = 0
                for count in range(2, 12):
                    await store.append("run", [note()], expected=count - 1)
                    await until(lambda count=count: len(handler.seen) == count)
                assert store.swaps <= 10
            assert "owner" not in await store.place()

    run(main())


def test_what_another_process_has_claimed_is_left_to_it_until_its_claim_has_ended() -> None:
    async def main() -> None:
        clock = ManualClock()
        async with opened(Store()) as store:
            await begin(store, "run")
            await store.put(owner="other", until=clock.now().timestamp() + 10)
            bus, handler = Bus(store, clock=clock, poll_s=5), Handler()
            await bus.subscribe("group", handler)
            async with running(bus):
                await until(lambda: clock.sleepers)
                assert handler.calls == 0
                clock.advance(5)
                await until(lambda: clock.sleepers)
                assert handler.calls == 0
                clock.advance(5)
                await until(lambda: handler.seen)

    run(main())


def test_a_flush_waits_for_another_process_that_gets_on_and_no_longer() -> None:
    clock = ManualClock()

    async def passing(seconds: int) -> None:
        for _ in range(seconds * 10):
            for _ in range(5):
                await pause()
            clock.advance(0.1)

    async def main() -> None:
        async with opened(Store()) as store:
            await begin(store, "run", notes=2)
            owned = {"owner": "other", "until": 1e12}
            await store.put(**owned)
            bus, handler = Bus(store, clock=clock, lease_s=5), Handler()
            await bus.subscribe("group", handler)
            flush = asyncio.create_task(bus.flush())
            await passing(4)
            assert not flush.done()
            await passing(3)
            assert flush.done()
            assert flush.result() is False

            flush = asyncio.create_task(bus.flush())
            for cursor in ("1", "2", "3"):
                await passing(4)
                assert not flush.done()
                await store.put(cursor=cursor, **owned)
            await passing(2)
            assert flush.done()
            assert flush.result() is True
            assert handler.calls == 0

    run(main())


def test_a_claim_is_kept_while_a_handler_works_and_given_back_after_it() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            await begin(store, "run")
            calls, busy = list[int](), set[int]()

            def slow(number: int) -> Any:
                async def handle(events: list[Event]) -> None:
                    assert not busy
                    busy.add(number)
                    calls.append(number)
                    await pause(0.4)
                    busy.discard(number)

                return handle

            buses = [Bus(store, lease_s=0.15, poll_s=0.01) for _ in range(2)]
            for number, bus in enumerate(buses):
                await bus.subscribe("group", slow(number))
            async with running(buses[0]), running(buses[1]):
                await until(lambda: calls)
                await until(lambda: not busy)
                await pause(0.05)
            assert len(calls) == 1
            assert await store.place() == {"cursor": "1"}

    run(main())


@pytest.mark.parametrize("trouble", ["lost", "unreachable"])
def test_a_claim_that_cannot_be_renewed_is_told_and_nothing_is_skipped(
    trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            await begin(store, "run")
            seen, gate = list[int](), asyncio.Event()

            async def slow(events: list[Event]) -> None:
                seen.append(len(events))
                if len(seen) == 1:
                    if trouble == "lost":
                        await store.put(owner="other", until=0)
                    else:
                        store.fail_swaps = 1
                    await gate.wait()

            bus = Bus(store, lease_s=0.03, poll_s=0.01)
            await bus.subscribe("group", slow)
            async with running(bus):
                await until(lambda: caplog.messages)
                gate.set()
                await until(lambda: len(seen) == 2 or trouble != "lost")
                await pause(0.05)
            assert (await store.place())["cursor"] == "1"

    with caplog.at_level(logging.WARNING, "lib.events.bus"):
        run(main())
    assert caplog.messages[0] in (
        f"the claim {PLACE} was lost while a batch was handled",
        f"the claim {PLACE} was not renewed",
    )


def test_a_claim_that_has_been_lost_in_between_is_taken_again() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            bus, handler = Bus(store, lease_s=0.06, poll_s=30), Handler()
            await begin(store, "run")
            await bus.subscribe("group", handler)
            async with running(bus):
                await until(lambda: handler.seen)
                await pause(0.05)  # most of the lease is over
                await store.put(cursor="1", owner="other", until=0)
                await store.append("run", [note()], expected=1)
                await until(lambda: len(handler.seen) == 2)

    run(main())


def test_a_store_that_is_closed_first_keeps_nobody_from_leaving() -> None:
    async def main() -> None:
        store = Store()
        await store.setup()
        await begin(store, "run")
        bus, handler = Bus(store), Handler()
        await bus.subscribe("group", handler)
        async with running(bus):
            await until(lambda: handler.seen)
            await store.close()
            await bus.unsubscribe("group")

    run(main())


def test_a_claim_of_which_nobody_knows_whether_it_was_made_is_given_back() -> None:
    class Lossy(Store):
        lose = False

        async def swap_mark(self, name: str, *, expected: str | None, value: str | None) -> bool:
            made = await super().swap_mark(name, expected=expected, value=value)
            if self.lose:
                self.lose = False
                raise StoreError("the answer got lost")
            return made

    async def main() -> None:
        store = Lossy()
        await store.setup()
        await begin(store, "run")
        bus, handler = Bus(store), Handler()
        await bus.subscribe("group", handler)
        store.lose = True
        assert await bus.flush() is False
        assert await store.place() == {"cursor": ""}
        assert await bus.flush() is True
        assert handler.seen == [1]

    run(main())


# -- failures ----------------------------------------------------------------------------------


def test_a_store_that_fails_is_no_ones_fault_and_is_tried_again() -> None:
    async def main() -> None:
        clock = ManualClock()
        async with opened(Store()) as store:
            await begin(store, "run")
            bus, handler = Bus(store, clock=clock), Handler()
            await bus.subscribe("group", handler)
            store.fail_feeds = 3
            async with running(bus):
                for _ in range(3):
                    await until(lambda: clock.sleepers)
                    clock.advance(1)
                await until(lambda: handler.seen)

    run(main())


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
def test_only_failures_of_the_handler_count(error: Exception, counts: bool) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with opened(Store()) as store:
            await begin(store, "run")
            bus, handler = Bus(store, clock=clock), Handler(error)
            await bus.subscribe("group", handler)
            assert await bus.flush() is False
            assert (await store.place()).get("tries", 0) == counts
            assert await bus.flush() is False  # before its pause is over: that is nobody's fault
            assert (await store.place()).get("tries", 0) == counts
            handler.error = None
            assert await bus.flush() is True
            assert await store.place() == {"cursor": "1"}

    run(main())


async def exhausted(bus: Bus, clock: ManualClock) -> None:
    for _ in range(20):
        await bus.flush()
        clock.advance(60)


async def poisoned(store: Store, *bad: int, error: Exception) -> tuple[Bus, Handler]:
    clock = ManualClock()
    await begin(store, "run", notes=5)
    bus = Bus(store, clock=clock, max_deliveries=3)
    handler = Handler(error, *bad)
    await bus.subscribe("group", handler)
    await exhausted(bus, clock)
    return bus, handler


def test_an_event_that_fails_alone_is_put_aside_and_the_others_get_there() -> None:
    async def main() -> list[DeadLetter]:
        async with opened(Store()) as store:
            bus, handler = await poisoned(store, 2, 5, error=KeyError("secret"))
            assert handler.seen == [1, 3, 4, 6]
            assert await bus.dead("other") == []
            return await bus.dead("group")

    first, second = run(main())
    assert (first.run_id, first.seq, second.seq) == ("run", 2, 5)
    assert (first.group, first.error, first.message) == ("group", "KeyError", "")
    assert (first.deliveries, second.deliveries) == (4, 4)
    assert first.at < second.at


def test_dead_letters_can_be_delivered_again() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            bus, handler = await poisoned(store, 2, 5, error=RunNotFound("other"))
            letters = await bus.dead("group")
            assert letters[0].message == str(RunNotFound("other"))
            assert await bus.retry("group") == 0
            assert [letter.deliveries for letter in await bus.dead("group")] == [5, 5]
            handler.bad = {5}
            assert await bus.retry("group", run_id="other") == 0
            assert await bus.retry("group", run_id="run", seq=2) == 1
            async with running(bus):
                assert await bus.retry("group") == 0
            assert [letter.seq for letter in await bus.dead("group")] == [5]
            assert handler.seen[-1] == 2
            with pytest.raises(KeyError):
                await bus.retry("other")
            await store.erase("run")
            assert await bus.dead("group") == []

    run(main())


def test_a_letter_whose_partition_is_in_other_hands_or_whose_run_is_gone_is_not_delivered() -> None:
    async def main() -> None:
        async with opened(Store()) as store:
            bus, handler = await poisoned(store, 2, error=KeyError("x"))
            handler.error = None
            (letter,) = await bus.dead("group")
            await store.put(cursor="6", owner="other", until=1e12)
            assert await bus.retry("group") == 0
            await store.put(cursor="6")
            await store.erase("run")
            with suppress(StoreError):  # a store may refuse it
                await store.set_mark(letter.mark, letter.encode())
            assert await bus.retry("group") == 0
            assert await bus.dead("group") == []

    run(main())


def test_a_run_that_is_erased_while_its_event_fails_leaves_no_letter() -> None:
    async def main() -> None:
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
            assert await bus.dead("group") == []
            assert (await store.place())["cursor"] == "1"

    run(main())


def test_deliveries_that_died_with_their_process_count() -> None:
    async def main() -> list[DeadLetter]:
        clock = ManualClock()
        async with opened(Store()) as store:
            await begin(store, "run", notes=2)
            handler = Handler()
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
            bus = Bus(store, clock=clock, max_deliveries=3)
            await bus.subscribe("group", handler)
            clock.advance(100)
            await bus.flush()
            assert handler.seen in ([2, 3], [3])
            return await bus.dead("group")

    letters = run(main())
    assert [letter.error for letter in letters] == ["died"] * len(letters)
    assert letters[0].seq == 1
