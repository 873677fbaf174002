"""The contract of an event store: the feeds of its partitions, and wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from lib.events import Event, EventStore, FeedPage
from lib.events.runs import partition_of
from lib.events.store import END, START
from lib.events.wakeups import Listener
from lib.testing.event_store.kit import (
    RESUMED,
    StoreTests,
    Using,
    all_events,
    begin,
    note,
    partition_events,
    spread,
)

TREE = "tree"
"""The root of runs that are in one partition."""


class FeedContract(StoreTests):
    """Following all runs."""

    def test_the_feed_of_a_partition_has_every_event_in_the_order_of_appends(
        self, using: Using
    ) -> None:
        async def body(store: EventStore) -> None:
            events = await begin(store, "b", root=TREE)
            events += await begin(store, "a", notes=2, root=TREE)
            events += await store.append("b", [note()], expected=1)

            assert (await of_tree(store)).events == events
            assert await all_events(store, limit=1) == events
            assert await all_events(store, limit=4) == events

        using(body)

    def test_a_run_is_in_the_partition_of_its_root(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            names = [f"run-{number}" for number in range(12)]
            events: list[Event] = []
            for name in names:
                events += await begin(store, name, tenant="t", notes=1)
                link = {"run_id": name, "key": "child/1"}
                child = f"{name}/child"
                events += await begin(store, child, tenant="t", root=name, parent=link, notes=1)
            for name in names:
                events += await store.append(f"{name}/child", [note()], expected=None)

            roots = {f"{name}/child": name for name in names}
            assert await all_events(store, limit=5) == spread(store, events, roots)
            for number in range(store.partitions):
                found = {event.run_id for event in await partition_events(store, number)}
                of_it = {n for n in names if partition_of(n, store.partitions) == number}
                assert found == of_it | {f"{name}/child" for name in of_it}

        using(body)

    def test_a_missing_partition_is_refused(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert store.partitions >= 1
            for number in (-1, store.partitions):
                with pytest.raises(ValueError, match="partition from 0 to"):
                    await store.feed(partition=number)

        using(body)

    def test_a_reader_goes_from_cursor_to_cursor(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            empty = await of_tree(store)
            log = await begin(store, TREE, notes=2)
            first = await of_tree(store, empty.cursor, limit=2)
            rest = await of_tree(store, first.cursor, limit=2)
            end = await of_tree(store, rest.cursor)
            more = await store.append(TREE, [note()], expected=3)

            assert empty.events == []
            assert first.events == log[:2]
            assert rest.events == log[2:]
            assert end == FeedPage([], rest.cursor)
            assert (await of_tree(store, end.cursor)).events == more

        using(body)

    def test_the_end_of_a_feed_is_a_cursor(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            nothing = await of_tree(store, END)
            log = await begin(store, TREE)
            end = await of_tree(store, END)
            more = await store.append(TREE, [note()], expected=1)

            assert (nothing.events, end.events) == ([], [])
            assert (await of_tree(store, nothing.cursor)).events == log + more
            assert (await of_tree(store, end.cursor)).events == more

        using(body)

    def test_cursors_of_partitions_are_independent(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            ends = [(await store.feed(END, partition=n)).cursor for n in range(store.partitions)]
            events: list[Event] = []
            for number in range(20):
                events += await begin(store, f"run-{number}", notes=1)
            after = [
                await store.feed(end, partition=number, limit=100)
                for number, end in enumerate(ends)
            ]

            found = [event for page in after for event in page.events]
            assert found == spread(store, events, {})

        using(body)

    def test_a_page_is_full_as_long_as_there_is_more(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "erased", notes=5, root=TREE)
            kept = await begin(store, "kept", notes=3, root=TREE)
            await store.erase("erased")
            page = await of_tree(store, limit=3)

            assert page.events == kept[:3]
            assert (await of_tree(store, page.cursor, limit=3)).events == kept[3:]

        using(body)

    def test_no_reader_misses_an_event_because_the_last_ones_were_erased(
        self, using: Using
    ) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "kept", root=TREE)
            await begin(store, "erased", notes=3, root=TREE)
            end = (await of_tree(store, END)).cursor
            await store.erase("erased")
            more = await begin(store, "new", root=TREE)

            assert (await of_tree(store, end)).events == more

        using(body)

    def test_listeners_wake_only_for_commits_that_concern_them(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "a")
            await begin(store, "b")
            wakeups = store.wakeups
            with (
                wakeups.listen("a") as of_a,
                wakeups.listen("b") as of_b,
                wakeups.listen() as of_all,
                wakeups.listen("a", signals_only=True) as of_signals,
            ):
                listeners = (of_a, of_b, of_all, of_signals)
                await store.append("a", [note()], expected=None)
                assert await _woken(listeners) == [True, False, True, True]
                await begin(store, "c")
                assert await _woken(listeners) == [False, False, True, False]
                await store.append("a", [RESUMED], expected=2)
                assert await _woken(listeners) == [True, False, True, False]

        using(body)

    def test_a_cancelled_append_that_is_stored_wakes_listeners(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            with store.wakeups.listen("run") as listener:
                task = asyncio.create_task(store.append("run", [note()], expected=1))
                for _ in range(3):
                    await asyncio.sleep(0)  # noqa: TID251 - lets it get under way
                task.cancel()
                await asyncio.wait([task])
                woken = await listener.wait(5)

                assert woken is (len(await store.read("run")) == 2)

        using(body)


async def _woken(listeners: Iterable[Listener]) -> list[bool]:
    return [await listener.wait(0) for listener in listeners]


async def of_tree(store: EventStore, after: str = START, *, limit: int = 512) -> FeedPage:
    """Return a page of the partition of `TREE`."""
    partition = partition_of(TREE, store.partitions)
    return await store.feed(after, limit=limit, partition=partition)
