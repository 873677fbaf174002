"""The contract of an event store: the feed of all runs, marks, and wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from lib.events import EventStore, Feed
from lib.events.store import END, START, run_mark
from lib.events.wakeups import Listener
from lib.testing.event_store.kit import RESUMED, StoreTests, Using, all_events, begin, note


class FeedContract(StoreTests):
    """Following all runs."""

    def test_the_feed_has_every_event_in_the_order_of_appends(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            events = await begin(store, "b")
            events += await begin(store, "a", notes=2)
            events += await store.append("b", [note()], expected=1)

            assert (await store.feed()).events == events
            assert await all_events(store, limit=1) == events
            assert await all_events(store, limit=4) == events

        using(body)

    def test_a_reader_goes_from_cursor_to_cursor(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            empty = await store.feed()
            log = await begin(store, "run", notes=2)
            first = await store.feed(empty.cursor, limit=2)
            rest = await store.feed(first.cursor, limit=2)
            end = await store.feed(rest.cursor)
            more = await store.append("run", [note()], expected=3)

            assert empty.events == []
            assert first.events == log[:2]
            assert rest.events == log[2:]
            assert end == Feed([], rest.cursor)
            assert (await store.feed(end.cursor)).events == more

        using(body)

    def test_the_end_of_the_feed_is_a_cursor(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            nothing = await store.feed(END)
            log = await begin(store, "run")
            end = await store.feed(END)
            more = await store.append("run", [note()], expected=1)

            assert (nothing.events, end.events) == ([], [])
            assert (await store.feed(nothing.cursor)).events == log + more
            assert (await store.feed(end.cursor)).events == more

        using(body)

    def test_a_page_is_full_as_long_as_there_is_more(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "erased", notes=5)
            kept = await begin(store, "kept", notes=3)
            await store.erase("erased")
            page = await store.feed(START, limit=3)

            assert page.events == kept[:3]
            assert (await store.feed(page.cursor, limit=3)).events == kept[3:]

        using(body)

    def test_no_reader_misses_an_event_because_the_last_ones_were_erased(
        self, using: Using
    ) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "kept")
            await begin(store, "erased", notes=3)
            end = (await store.feed(END)).cursor
            await store.erase("erased")
            more = await begin(store, "new")

            assert (await store.feed(end)).events == more

        using(body)

    def test_marks_are_kept_and_replaced(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.mark("bus/a") is None
            await store.set_mark("bus/a", "1")
            await store.set_mark("bus/ä", "")
            await store.set_mark("bus/a", "2")

            assert [await store.mark(name) for name in ("bus/a", "bus/ä", "bus")] == ["2", "", None]

        using(body)

    def test_a_mark_is_swapped_only_if_it_is_as_expected(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.swap_mark("a", expected="1", value="2") is False
            assert await store.swap_mark("a", expected=None, value="1") is True
            assert await store.swap_mark("a", expected=None, value="2") is False
            assert await store.mark("a") == "1"
            assert await store.swap_mark("a", expected="1", value="") is True
            assert await store.swap_mark("a", expected="", value=None) is True
            assert await store.swap_mark("a", expected=None, value=None) is True
            assert await store.mark("a") is None

        using(body)

    def test_of_many_who_swap_a_mark_at_once_one_succeeds(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            swaps = [store.swap_mark("a", expected=None, value=str(n)) for n in range(8)]
            swapped = await asyncio.gather(*swaps)

            assert swapped.count(True) == 1
            assert await store.mark("a") == str(swapped.index(True))

        using(body)

    def test_a_runs_marks_go_with_it_and_no_others(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            names = [run_mark(run_id, "x") for run_id in ("a", "a/x", "a0", "ab", "ä", "A")]
            await begin(store, "a")
            for name in [*names, "run", "runs"]:
                await store.set_mark(name, "kept")
            await store.erase("a")

            found = [await store.mark(name) for name in [*names, "run", "runs"]]
            assert found == [None, *["kept"] * 7]

        using(body)

    def test_listeners_wake_for_what_they_listen_to(self, using: Using) -> None:
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
