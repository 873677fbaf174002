"""The contract of an event store: being opened and closed, and sharing a place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from lib.errors import Conflict, RunErased, StoreClosed
from lib.events import EventStore, Lease
from lib.events.store import LAYOUT_VERSION, CountsErasures
from lib.testing.aio import run
from lib.testing.event_store.kit import AT, StoreTests, Using, all_events, begin, note, started

LEASE = Lease(run_id="run", owner="me", epoch=1, until=AT)


async def _erasures(store: EventStore) -> None:
    if isinstance(store, CountsErasures):
        await store.erasures()
    else:
        await store.runs()


CALLS: dict[str, Callable[[EventStore], Awaitable[object]]] = {
    "schema_version": lambda store: store.schema_version(),
    "append": lambda store: store.append("run", [started()], expected=0),
    "read": lambda store: store.read("run"),
    "runs": lambda store: store.runs(),
    "run": lambda store: store.run("run"),
    "claim": lambda store: store.claim("me", ttl_s=30),
    "renew": lambda store: store.renew(LEASE, ttl_s=30),
    "release": lambda store: store.release(LEASE),
    "feed": lambda store: store.feed(),
    "mark": lambda store: store.mark("name"),
    "marks": lambda store: store.marks("name"),
    "set_mark": lambda store: store.set_mark("name", "value"),
    "compare_and_set_mark": lambda store: store.compare_and_set_mark(
        "swapped", expected=None, value=None
    ),
    "erase": lambda store: store.erase("run"),
    "tombstone": lambda store: store.tombstone("run"),
    "erasures": _erasures,
    "blob_users": lambda store: store.blob_users("a" * 64),
}


class LifeContract(StoreTests):
    """Opening and closing."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_a_store_that_is_not_open_does_nothing(
        self, using: Using, call: Callable[[EventStore], Awaitable[object]]
    ) -> None:
        async def main() -> None:
            store = using.kind.open(using.place, using.clock)
            with pytest.raises(StoreClosed):
                await call(store)
            await store.setup()
            await call(store)
            await store.close()
            with pytest.raises(StoreClosed):
                await call(store)

        run(main())

    def test_setup_and_close_may_be_repeated_and_raced(self, using: Using) -> None:
        async def main() -> None:
            store = using.kind.open(using.place, using.clock)
            await store.close()
            await asyncio.gather(store.setup(), store.setup(), store.setup())
            await store.setup()
            log = await begin(store, "run")

            assert await store.read("run") == log
            await asyncio.gather(store.close(), store.close())
            await store.close()

        run(main())

    def test_the_number_of_partitions_stays(self, using: Using) -> None:
        async def main() -> None:
            async with using.opened() as store:
                partitions = store.partitions
            async with using.opened() as store:
                assert store.partitions == partitions

        run(main())

    def test_a_store_has_an_id_of_its_own_that_stays(self, using: Using) -> None:
        elsewhere = using.place / "other"
        elsewhere.mkdir()

        async def main() -> None:
            store = using.kind.open(using.place, using.clock)
            await store.setup()
            store_id = store.store_id
            await store.close()
            await store.setup()
            reopened = store.store_id
            async with using.opened() as beside:
                shared = beside.store_id
            await store.close()
            other = using.kind.open(elsewhere, using.clock)
            await other.setup()

            assert store_id
            assert (reopened == store_id) is using.kind.survives_close
            assert (shared == reopened) is using.kind.shared
            assert other.store_id not in (store_id, "")
            await other.close()

        run(main())

    def test_the_layout_is_the_newest(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.schema_version() == LAYOUT_VERSION

        using(body)

    def test_close_finishes_calls_under_way(self, using: Using) -> None:
        async def main() -> None:
            async with using.opened() as store:
                tasks = [asyncio.create_task(begin(store, f"run-{n}")) for n in range(5)]
                await asyncio.sleep(0)  # noqa: TID251 - lets them begin
            done = await asyncio.gather(*tasks)

            assert [events[0].run_id for events in done] == [f"run-{n}" for n in range(5)]

        run(main())

    def test_a_reopened_store_keeps_as_much_as_declared(self, using: Using) -> None:
        async def main() -> None:
            store = using.kind.open(using.place, using.clock)
            await store.setup()
            log = await begin(store, "run", notes=2)
            await store.set_mark("name", "value")
            [lease] = await store.claim("me", ttl_s=30)
            listed = await store.run("run")
            await store.close()
            await store.setup()

            if using.kind.survives_close:
                assert await store.read("run") == log
                assert await all_events(store) == log
                assert await store.run("run") == listed
                assert await store.mark("name") == "value"
                assert await store.renew(lease, ttl_s=30) == lease
                assert await store.append("run", [note()], expected=3)
            else:
                assert (await store.runs(), await all_events(store)) == ([], [])
                assert await store.mark("name") is None
            await store.close()

        run(main())

    def test_another_store_on_the_same_place_sees_as_much_as_declared(self, using: Using) -> None:
        async def main() -> None:
            async with using.opened() as one, using.opened() as two:
                log = await begin(one, "run")
                seen = await two.read("run")

                assert seen == (log if using.kind.shared else [])

        run(main())

    def test_stores_on_one_place_agree_on_every_write(self, using: Using) -> None:
        async def main() -> None:
            async with using.opened() as one, using.opened() as two:
                if not using.kind.shared:
                    await begin(one, "run")
                    assert await two.runs() == []
                    return
                await begin(one, "run")
                await two.append("run", [note("two")], expected=1)
                with pytest.raises(Conflict):
                    await one.append("run", [note("one")], expected=1)
                await one.append("run", [note("one")], expected=2)
                await two.append("run", [note("two")], expected=3)
                [lease] = await one.claim("one", ttl_s=30)
                nothing = await two.claim("two", ttl_s=30)
                using.clock.advance(31)
                [taken] = await two.claim("two", ttl_s=30)

                assert await all_events(one) == await all_events(two)
                assert nothing == []
                assert taken.until == lease.until + timedelta(seconds=31)
                assert await one.renew(lease, ttl_s=30) is None
                assert await one.run("run") == await two.run("run")
                assert await two.erase("run") is True
                with pytest.raises(RunErased):
                    await begin(one, "run")
                with pytest.raises(RunErased):
                    await one.append("run", [note()], expected=4)
                assert await one.tombstone("run") == await two.tombstone("run") is not None

        run(main())

    def test_listeners_wake_when_another_store_writes_if_they_share_a_place(
        self, using: Using
    ) -> None:
        async def main() -> None:
            async with using.opened() as one, using.opened() as two:
                with two.wakeups.listen("run", signals_only=True) as listener:
                    await begin(one, "run")
                    woken = False
                    for _ in range(40 if using.kind.shared else 3):
                        using.clock.advance(1)
                        woken = woken or await listener.wait(0.05)

                assert woken is using.kind.shared

        run(main())
