"""Groups that processes share: the owner of a claim handles its partition, and others wait."""

import asyncio
import logging

import pytest

from lib.errors import StoreError
from lib.events import Event
from lib.events.bus import Bus
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin, note

from .bus_kit import PLACE, Handler, Store, opened, pause, running, subscribed, until


async def test_a_cursor_of_layout_1_is_taken_over() -> None:
    async with opened(Store()) as store:
        await begin(store, "run", notes=3)
        await store.set_mark("bus/group", "2")
        bus, handler = Bus(store), Handler()
        await bus.subscribe("group", handler, start="now")
        assert await store.place() == {"cursor": "2"}
        assert await store.mark("bus/group") is None
        assert await bus.flush()
        assert handler.seen == [3, 4]


async def test_groups_with_slashes_in_their_names_stay_separate() -> None:
    async with opened(Store()) as store:
        await begin(store, "run")
        bus, one, two = Bus(store), Handler(), Handler()
        await bus.subscribe("a", one)
        await bus.subscribe("a/0", two)
        assert await bus.flush()
        assert one.seen == two.seen == [1]
        assert list(await store.marks("bus/")) == ["bus/a%2F0/0", "bus/a/0"]


async def test_an_idle_bus_writes_nothing_and_reads_once_per_poll() -> None:
    async with opened(Store()) as store:
        await begin(store, "run")
        bus, handler = await subscribed(store, poll_s=0.02, lease_s=3600)
        async with running(bus):
            await until(lambda: handler.seen)
            while "owner" in await store.place():
                await pause()
            store.swaps = store.feeds = 0
            await pause(0.2)
            assert store.swaps == 0
            assert store.feeds <= 11


async def test_a_page_costs_one_write_while_the_claim_is_held() -> None:
    async with opened(Store()) as store:
        await begin(store, "run")
        bus, handler = await subscribed(store, poll_s=3600, lease_s=3600)
        async with running(bus):
            await until(lambda: handler.seen)
            store.swaps = 0
            for count in range(2, 12):
                await store.append("run", [note()], expected=count - 1)
                await until(lambda count=count: len(handler.seen) == count)
            assert store.swaps <= 10
        assert "owner" not in await store.place()


async def test_a_partition_claimed_by_another_process_is_left_to_it_until_its_claim_ends() -> None:
    clock = ManualClock()
    async with opened(Store()) as store:
        await begin(store, "run")
        await store.put(owner="other", until=clock.now().timestamp() + 10)
        bus, handler = await subscribed(store, clock=clock, poll_s=5)
        async with running(bus):
            await until(lambda: clock.sleepers)
            assert handler.calls == 0
            clock.advance(5)
            await until(lambda: clock.sleepers)
            assert handler.calls == 0
            clock.advance(5)
            await until(lambda: handler.seen)


async def test_a_flush_waits_for_another_process_only_while_it_makes_progress() -> None:
    clock = ManualClock()

    async def passing(seconds: int) -> None:
        for _ in range(seconds * 10):
            for _ in range(5):
                await pause()
            clock.advance(0.1)

    async with opened(Store()) as store:
        await begin(store, "run", notes=2)
        owned = {"owner": "other", "until": 1e12}
        await store.put(**owned)
        bus, handler = await subscribed(store, clock=clock, lease_s=5)
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


async def test_a_claim_is_renewed_while_a_handler_works_and_released_after_it() -> None:
    clock, lease_s = ManualClock(), 0.1

    async with opened(Store()) as store:
        await begin(store, "run")
        calls = list[int]()

        async def slow(events: list[Event]) -> None:
            calls.append(len(events))
            for _ in range(5):
                renewed = store.swaps
                await until(lambda renewed=renewed: store.swaps > renewed)
                clock.advance(lease_s * 0.9)

        buses = [Bus(store, clock=clock, lease_s=lease_s, poll_s=0.01) for _ in range(2)]
        for bus in buses:
            await bus.subscribe("group", slow)
        async with running(buses[0]), running(buses[1]):
            while not (await store.place()).get("cursor"):
                await pause()
        assert len(calls) == 1
        assert await store.place() == {"cursor": "1"}


@pytest.mark.parametrize("trouble", ["lost", "unreachable"])
async def test_a_claim_that_cannot_be_renewed_is_logged_and_no_event_is_skipped(
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
                while (await store.place())["cursor"] != "1":
                    await pause()
            assert len(seen) == (2 if trouble == "lost" else 1)

    with caplog.at_level(logging.WARNING, "lib.events.bus"):
        await main()
    assert caplog.messages[0] in (
        f"the claim {PLACE} was lost while a batch was handled",
        f"the claim {PLACE} was not renewed",
    )


async def test_a_claim_that_has_been_lost_in_between_is_taken_again() -> None:
    async with opened(Store()) as store:
        await begin(store, "run")
        bus, handler = await subscribed(store, lease_s=0.06, poll_s=30)
        async with running(bus):
            await until(lambda: handler.seen)
            await pause(0.05)  # most of the lease is over
            await store.put(cursor="1", owner="other", until=0)
            await store.append("run", [note()], expected=1)
            await until(lambda: len(handler.seen) == 2)


async def test_a_group_can_leave_after_its_store_was_closed() -> None:
    store = Store()
    await store.setup()
    await begin(store, "run")
    bus, handler = await subscribed(store)
    async with running(bus):
        await until(lambda: handler.seen)
        await store.close()
        await bus.unsubscribe("group")


async def test_a_claim_of_unknown_outcome_is_released() -> None:
    class Lossy(Store):
        lose = False

        async def compare_and_set_mark(
            self, name: str, *, expected: str | None, value: str | None
        ) -> bool:
            made = await super().compare_and_set_mark(name, expected=expected, value=value)
            if self.lose:
                self.lose = False
                raise StoreError("the answer got lost")
            return made

    store = Lossy()
    await store.setup()
    await begin(store, "run")
    bus, handler = await subscribed(store)
    store.lose = True
    assert await bus.flush() is False
    assert await store.place() == {"cursor": ""}
    assert await bus.flush() is True
    assert handler.seen == [1]
