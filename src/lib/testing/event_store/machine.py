"""An event store held against the memory store, over random sequences of operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lib.errors import StoreError
from lib.events import Event, EventStore, FeedPage, Lease, MemoryEventStore, NewEvent, RunQuery
from lib.events import kinds as k
from lib.events.runs import partition_of
from lib.events.store import START, run_mark
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import AT, NOTE, RESUMED, StoreKind, ended, started

runs: st.SearchStrategy[str] = st.sampled_from(["a", "b", "c", "ä/d"])
owners: st.SearchStrategy[str] = st.sampled_from(["me", "you"])
times: st.SearchStrategy[datetime] = st.integers(0, 5).map(
    lambda seconds: AT + timedelta(seconds=seconds)
)
texts: st.SearchStrategy[str] = st.text(max_size=8)
_ALL = 10_000
digests: list[str] = ["a" * 64, "b" * 64]
prefixes: list[str] = ["", "m", "m%", "n", "ru", run_mark("a"), run_mark("ä/d", "x")]
marks: list[str] = [*prefixes[1:], run_mark("b", "x"), "m\U0010ffff", "\U0010ffff"]


def descendants(root: str, parent: str, at: datetime) -> NewEvent:
    """Return the start of a run in a tree, where it may not belong."""
    link = {"run_id": parent, "key": "child/1"}
    return started(at=at, root=root, parent=link, algorithm="other")


def attachments(digest: str, at: datetime) -> NewEvent:
    """Return an event that refers to a blob."""
    return NewEvent(NOTE, {"file": {"$blob": digest, "size": 1, "type": "text/plain"}}, at)


starts: st.SearchStrategy[NewEvent] = st.one_of(
    st.builds(started, tenant=st.sampled_from([None, "t"]), at=times),
    st.builds(descendants, runs, runs, times),
)
batches: st.SearchStrategy[list[NewEvent]] = st.lists(
    st.one_of(
        starts,
        st.builds(NewEvent, st.just(NOTE), st.fixed_dictionaries({"text": texts}), times),
        st.builds(attachments, st.sampled_from(digests), times),
        st.just(RESUMED),
        st.just(NewEvent(k.CANCEL_REQUESTED, {"signal_id": "s"}, AT)),
        st.builds(ended, st.sampled_from(["COMPLETED", "FAILED"])),
    ),
    min_size=1,
    max_size=4,
)
queries: st.SearchStrategy[RunQuery] = st.builds(
    RunQuery,
    tenant=st.sampled_from([None, "t"]),
    user=st.sampled_from([None, "u"]),
    algorithm=st.sampled_from([None, "react", "other"]),
    status=st.sampled_from([None, "open", "closed"]),
    outcome=st.sampled_from([None, None, "COMPLETED", "FAILED"]),
    root_id=st.none() | runs,
    roots=st.booleans(),
    parent_id=st.none() | runs,
    since=st.none() | times,
    idle_since=st.none() | times,
    after=st.none() | runs,
    newest_first=st.booleans(),
    limit=st.none() | st.integers(0, 3),
)


def check_against_memory(kind: StoreKind, *, max_examples: int = 100) -> None:
    """Fail if the store ever answers something else than `MemoryEventStore` does.

    Args:
        kind: the store.
        max_examples: how many sequences of operations to try.
    """

    class Machine(_Agreement):
        """The machine of this kind of store."""

        store_kind = kind

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


class _Agreement(RuleBasedStateMachine):
    """Does everything twice, and compares."""

    store_kind: StoreKind

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._place = TemporaryDirectory()
        self._clock = ManualClock()
        self._memory: EventStore = MemoryEventStore(clock=self._clock)
        self._store = self._opened()
        self._runner.run(self._memory.setup())
        self._leases: list[Lease] = []
        partitions = range(self._store.partitions)
        self._cursors: dict[int, tuple[str, str]] = dict.fromkeys(partitions, (START, START))

    def _opened(self) -> EventStore:
        store = self.store_kind.open(Path(self._place.name), self._clock)
        self._runner.run(store.setup())
        return store

    def teardown(self) -> None:
        """Close everything."""
        self._runner.run(self._store.close())
        self._runner.close()
        self._place.cleanup()

    def _both(self, call: Callable[[EventStore], Awaitable[Any]]) -> Any:
        """Return what both stores answer, or the error that both raise."""
        expected, answer = (
            self._runner.run(_outcome(call, store)) for store in (self._memory, self._store)
        )
        assert answer == expected
        return answer

    @rule(run_id=runs, events=batches, off=st.sampled_from([0, 0, 0, 0, 1, -1, None]))
    def append(self, run_id: str, events: list[NewEvent], off: int | None) -> None:
        """Append at the head, beside it, or anywhere."""
        info = self._both(lambda store: store.run(run_id))
        expected = None if off is None else (info.head if info else 0) + off
        self._both(lambda store: store.append(run_id, events, expected=expected))

    @rule(run_id=runs, start=starts, more=st.booleans())
    def begin(self, run_id: str, start: NewEvent, *, more: bool) -> None:
        """Start a run, if there is none."""
        self._both(lambda store: store.append(run_id, [start, *([RESUMED] * more)], expected=0))

    @rule(
        owner=owners,
        run_id=st.none() | runs,
        ttl_s=st.integers(1, 5),
        limit=st.integers(0, 3),
        algorithms=st.sampled_from([None, None, None, ["react"], ["other", "none"], []]),
        skip=st.just(()) | st.lists(runs, max_size=3),
    )
    def claim(
        self,
        owner: str,
        run_id: str | None,
        ttl_s: int,
        limit: int,
        *,
        algorithms: list[str] | None,
        skip: Sequence[str],
    ) -> None:
        """Take leases."""
        self._leases += self._both(
            lambda store: store.claim(
                owner,
                ttl_s=ttl_s,
                run_id=run_id,
                limit=limit,
                algorithms=algorithms,
                skip=skip,
            )
        )

    @precondition(lambda self: self._leases)
    @rule(data=st.data(), ttl_s=st.integers(1, 5))
    def renew(self, data: st.DataObject, ttl_s: int) -> None:
        """Renew a lease, held or lost."""
        lease = data.draw(st.sampled_from(self._leases))
        self._both(lambda store: store.renew(lease, ttl_s=ttl_s))

    @precondition(lambda self: self._leases)
    @rule(data=st.data(), idle_at=st.none() | st.integers(1, 6))
    def release(self, data: st.DataObject, idle_at: int | None) -> None:
        """Give a lease back, held or lost."""
        lease = data.draw(st.sampled_from(self._leases))
        self._both(lambda store: store.release(lease, idle_at=idle_at))

    @rule(seconds=st.integers(1, 4))
    def pass_time(self, seconds: int) -> None:
        """Let leases run out."""
        self._clock.advance(seconds)

    @rule(run_id=runs)
    def erase(self, run_id: str) -> None:
        """Delete a run."""
        self._both(lambda store: store.erase(run_id))

    @rule(name=st.sampled_from(marks), value=texts)
    def set_mark(self, name: str, value: str) -> None:
        """Keep a mark."""
        self._both(lambda store: store.set_mark(name, value))

    @rule(name=st.sampled_from(marks), right=st.booleans(), value=st.none() | texts)
    def compare_and_set_mark(self, name: str, value: str | None, *, right: bool) -> None:
        """Change a mark, knowing what it is or not."""
        now = self._both(lambda store: store.mark(name))
        expected = now if right else "something else"
        self._both(lambda store: store.compare_and_set_mark(name, expected=expected, value=value))

    @rule(prefix=st.sampled_from(prefixes))
    def list_marks(self, prefix: str) -> None:
        """List marks, in their order."""
        self._both(lambda store: _items(store.marks(prefix)))

    @rule(run_id=runs)
    def look_for_a_tombstone(self, run_id: str) -> None:
        """Read what is left of a run."""
        self._both(lambda store: store.tombstone(run_id))

    @rule(digest=st.sampled_from(digests), limit=st.integers(0, 4))
    def look_for_blob_users(self, digest: str, limit: int) -> None:
        """List the users of a blob, of which a store may choose any when it may not list all."""
        self._both(lambda store: _sorted(store.blob_users(digest, limit=9)))
        self._both(lambda store: _length(store.blob_users(digest, limit=limit)))

    @rule(run_id=runs, after=st.integers(0, 6), limit=st.none() | st.integers(0, 4))
    def read(self, run_id: str, after: int, limit: int | None) -> None:
        """Read a part of a log."""
        self._both(lambda store: store.read(run_id, after=after, limit=limit))

    @rule(query=queries)
    def list_runs(self, query: RunQuery) -> None:
        """List runs."""
        self._both(lambda store: store.runs(query))

    @rule(data=st.data(), limit=st.integers(1, 5))
    def follow(self, data: st.DataObject, limit: int) -> None:
        """Read the next page of a partition with a reader of each store."""
        partition = data.draw(st.sampled_from(sorted(self._cursors)))
        mine, theirs = self._cursors[partition]
        expected = self._runner.run(self._project(partition, mine, limit))
        page = self._runner.run(self._store.feed(theirs, limit=limit, partition=partition))
        assert page.events == expected.events
        self._cursors[partition] = (expected.cursor, page.cursor)

    async def _project(self, partition: int, after: str, limit: int) -> FeedPage:
        """Return the page that a store of several partitions has, from memory's only one."""
        partitions = await self._partitions()
        events: list[Event] = []
        while len(events) < limit:
            page = await self._memory.feed(after, limit=1)
            after = page.cursor
            if not page.events:
                break
            if partitions[page.events[0].run_id] == partition:
                events += page.events
        return FeedPage(events, after)

    async def _partitions(self) -> dict[str, int]:
        """Return the partition of each run."""
        found = await self._memory.runs()
        return {info.run_id: partition_of(info.root_id, self._store.partitions) for info in found}

    @precondition(lambda self: self.store_kind.survives_close)
    @rule()
    def reopen(self) -> None:
        """Close the store and open it again."""
        self._runner.run(self._store.close())
        self._runner.run(self._store.setup())

    @precondition(lambda self: self.store_kind.shared)
    @rule()
    def change_hands(self) -> None:
        """Go on with another store object on the same place."""
        successor = self._opened()
        self._runner.run(self._store.close())
        self._store = successor

    @invariant()
    def holds_the_same(self) -> None:
        """Compare all there is."""
        self._both(lambda store: store.runs())
        self._both(lambda store: _items(store.marks("")))
        self._runner.run(self._holds_the_same_events())

    async def _holds_the_same_events(self) -> None:
        partitions = await self._partitions()
        expected = (await self._memory.feed(limit=_ALL)).events
        for partition in self._cursors:
            page = await self._store.feed(limit=_ALL, partition=partition)
            assert page.events == [e for e in expected if partitions[e.run_id] == partition]


async def _items(marks: Awaitable[Mapping[str, str]]) -> list[tuple[str, str]]:
    return list((await marks).items())


async def _sorted(names: Awaitable[list[str]]) -> list[str]:
    return sorted(await names)


async def _length(names: Awaitable[list[str]]) -> int:
    return len(await names)


async def _outcome(call: Callable[[EventStore], Awaitable[Any]], store: EventStore) -> Any:
    try:
        return await call(store)
    except (StoreError, ValueError) as error:
        return type(error), str(error)
