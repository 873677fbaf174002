"""The contract of an event store: readers that follow while many write miss and repeat nothing."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from lib.events import Event, EventStore
from lib.events.runs import partition_of
from lib.events.store import START
from lib.testing.aio import run
from lib.testing.event_store.kit import StoreTests, Using, all_events, begin, note

EVENTS: Final = 100_000 if os.environ.get("LIB_TEST_LONG") else 2000
"""How many events are written."""

_TIMEOUT_S: Final = 30 + EVENTS / 200
_STORES: Final = 3
_WRITERS: Final = 8
"""How many tasks write through each store object."""
_LARGEST_BATCH: Final = 24
_LARGE: Final = "x" * 20_000
_IDLE_S: Final = 0.005


class OrderingContract(StoreTests):
    """The order of commits, as readers of the feed see it."""

    def test_a_reader_beside_many_writers_sees_every_event_once_and_in_order(
        self, using: Using
    ) -> None:
        """Commits of all sizes are under way at once, so later ones end before earlier ones."""

        async def main() -> None:
            async with AsyncExitStack() as held:
                count = _STORES if using.kind.shared else 1
                stores = [await held.enter_async_context(using.opened()) for _ in range(count)]
                reader = await held.enter_async_context(using.opened()) if count > 1 else stores[0]
                writing = asyncio.ensure_future(_write(stores))
                early = [_follow(reader, n, writing) for n in range(reader.partitions)]
                late = [_follow(stores[0], n, writing, seed=9) for n in range(reader.partitions)]
                feeds = await asyncio.gather(*early, *late)
                total = await writing

                seen = [event for feed in feeds[: reader.partitions] for event in feed]
                assert len(seen) == total
                assert feeds[: reader.partitions] == feeds[reader.partitions :]
                assert seen == await all_events(reader, limit=1000)
                for partition, feed in enumerate(feeds[: reader.partitions]):
                    _check(feed, partition, reader.partitions)

        run(main(), timeout_s=_TIMEOUT_S)


def _check(feed: Sequence[Event], partition: int, partitions: int) -> None:
    """Fail unless each log of this partition is there, whole and in order."""
    heads: dict[str, int] = {}
    for event in feed:
        assert partition_of(event.run_id.partition("/")[0], partitions) == partition
        assert event.seq == heads.get(event.run_id, 0) + 1, event
        heads[event.run_id] = event.seq


async def _write(stores: Sequence[EventStore]) -> int:
    """Write from everywhere at once; return how many events."""
    share = EVENTS // (len(stores) * _WRITERS)
    writers = [
        _writer(store, f"run-{number}-{writer}", share)
        for number, store in enumerate(stores)
        for writer in range(_WRITERS)
    ]
    return sum(await asyncio.gather(*writers))


async def _writer(store: EventStore, root: str, count: int) -> int:
    """Write to a tree: some large batches, some small ones, some large events."""
    random_ = random.Random(root)  # noqa: S311 - sizes, no secrets
    written = len(await begin(store, root))
    runs = 1
    while written < count:
        size = random_.choice([1, 1, 1, 2, random_.randint(1, _LARGEST_BATCH)])
        if random_.random() < 0.1:
            runs += 1
            link = {"run_id": root, "key": f"child/{runs}"}
            batch = await begin(store, f"{root}/{runs}", size, root=root, parent=link)
        else:
            text = _LARGE if random_.random() < 0.02 else str(written)
            run_id = root if runs == 1 or random_.random() < 0.5 else f"{root}/{runs}"
            batch = await store.append(run_id, [note(text)] * size, expected=None)
        written += len(batch)
    return written


async def _follow(
    store: EventStore, partition: int, writing: asyncio.Future[int], *, seed: int = 1
) -> list[Event]:
    """Follow a partition until its end, after the last write."""
    random_ = random.Random(seed)  # noqa: S311 - sizes, no secrets
    events: list[Event] = []
    cursor = START
    while True:
        over = writing.done()  # read before the page, which then holds the last event
        limit = random_.choice([1, 7, 100, 512])
        page = await store.feed(cursor, limit=limit, partition=partition)
        events += page.events
        cursor = page.cursor
        if not page.events:
            if over:
                return events
            await asyncio.sleep(_IDLE_S)  # noqa: TID251 - real time, beside real writers
