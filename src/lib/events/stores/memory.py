"""The event store in memory: for tests and for runs that need not survive the process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncStore
from lib.errors import RunErased, RunNotFound, StoreClosed
from lib.events.blobs import blob_digests
from lib.events.codec import decode_data, encode_data
from lib.events.event import Event, NewEvent
from lib.events.kinds import is_signal
from lib.events.live import CarriesDeltas, LocalLive
from lib.events.runs import (
    Lease,
    RunInfo,
    RunQuery,
    advance,
    check_batch,
    check_partition,
    check_text,
    is_held,
    lease_length,
    matches,
)
from lib.events.store import (
    END,
    LAYOUT_VERSION,
    START,
    CountsErasures,
    FeedPage,
    Tombstone,
    new_store_id,
    run_mark,
    tombstone_name,
)
from lib.events.wakeups import Wakeups


@dataclass(frozen=True, slots=True)
class _Entry:
    position: int
    event: Event
    data: str

    def copy(self) -> Event:
        """Return the event with a payload of its own, as a store on disk would."""
        return replace(self.event, data=decode_data(self.data))


@dataclass(slots=True)
class _Run:
    info: RunInfo
    log: list[_Entry] = field(default_factory=list[_Entry])
    epoch: int = 0


class MemoryEventStore(CarriesDeltas, CountsErasures, AsyncStore):
    """Events in this process; the reference for the other stores.

    Payloads go through the codec, so that a payload no other store takes is refused here, too.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Make an empty store.

        Args:
            clock: decides when a lease has ended.
        """
        self._clock = clock
        self._id = new_store_id()
        self._wakeups = Wakeups()
        self._live = LocalLive()
        self._runs: dict[str, _Run] = {}
        self._order: list[_Entry] = []
        self._last = 0
        self._marks: dict[str, str] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._open = False

    @property
    def partitions(self) -> int:
        """One: appends of one process have one order."""
        return 1

    @property
    def store_id(self) -> str:
        """The id that tells this store from every other."""
        return self._id

    @property
    def wakeups(self) -> Wakeups:
        """Wakes listeners of this event loop when logs have new events."""
        return self._wakeups

    @property
    def live(self) -> LocalLive:
        """Carries deltas between the engines over this store."""
        return self._live

    async def setup(self) -> None:
        """Open the store."""
        self._open = True

    async def schema_version(self) -> int:
        """Return the layout version, which is always the newest."""
        self._check_open()
        return LAYOUT_VERSION

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        """Append all events or none; see `EventStore.append`."""
        self._check_open()
        check_batch(run_id, events, expected)
        texts = [encode_data(event.data) for event in events]
        run = self._runs.get(run_id)
        if run is None and tombstone_name(run_id) in self._tombstones:
            raise RunErased(run_id)
        info, stored = advance(run.info if run else None, run_id, events, expected)
        if run is None:
            run = self._runs[run_id] = _Run(info)
        entries = [
            _Entry(position, event, text)
            for position, (event, text) in enumerate(
                zip(stored, texts, strict=True), self._last + 1
            )
        ]
        self._last += len(entries)
        run.info = info
        run.log.extend(entries)
        self._order.extend(entries)
        self._wakeups.committed(run_id, signal=is_signal(stored[-1].kind))
        return [entry.copy() for entry in entries]

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the run's events with `seq > after` in order."""
        self._check_open()
        run = self._runs.get(run_id)
        if run is None:
            return []
        return [entry.copy() for entry in run.log[after : None if limit is None else after + limit]]

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """Return the runs that match the query; see `EventStore.runs`."""
        self._check_open()
        query = query or RunQuery()
        found = [run.info for run in self._runs.values()]
        if query.newest_first:
            found.reverse()
        if query.after is not None:
            if query.after not in self._runs:
                raise RunNotFound(query.after)
            found = found[[info.run_id for info in found].index(query.after) + 1 :]
        return [info for info in found if matches(info, query)][: query.limit]

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run, or None."""
        self._check_open()
        run = self._runs.get(run_id)
        return run.info if run else None

    async def claim(
        self,
        owner: str,
        *,
        ttl_s: float,
        run_id: str | None = None,
        limit: int = 1,
        algorithms: Collection[str] | None = None,
        skip: Collection[str] = (),
    ) -> list[Lease]:
        """Take the lease of open runs without one; see `EventStore.claim`."""
        self._check_open()
        now, skipped = self._clock.now(), frozenset(skip)
        runs = self._runs.values() if run_id is None else filter(None, [self._runs.get(run_id)])
        free = [
            run
            for run in runs
            if run.info.status == "open"
            and (run.info.ready or run_id is not None)
            and (algorithms is None or run.info.algorithm in algorithms)
            and run.info.run_id not in skipped
            and not is_held(run.info.lease_until, now)
        ]
        return [self._lease(run, owner, now + lease_length(ttl_s)) for run in free[:limit]]

    def _lease(self, run: _Run, owner: str, until: datetime) -> Lease:
        takeover = run.info.owner is not None
        run.epoch += 1
        run.info = replace(run.info, owner=owner, lease_until=until)
        return Lease(
            run_id=run.info.run_id, owner=owner, epoch=run.epoch, until=until, takeover=takeover
        )

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Return the lease with a later end, or None if it has been lost."""
        self._check_open()
        run = self._held(lease)
        if run is None:
            return None
        until = self._clock.now() + lease_length(ttl_s)
        run.info = replace(run.info, lease_until=until)
        return replace(lease, until=until)

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        """Give the lease back; see `EventStore.release`."""
        self._check_open()
        run = self._held(lease)
        if run is None:
            return
        ready = run.info.ready and run.info.head != idle_at
        run.info = replace(run.info, ready=ready, owner=None, lease_until=None)

    def _held(self, lease: Lease) -> _Run | None:
        run = self._runs.get(lease.run_id)
        if run is None or run.info.owner != lease.owner or run.epoch != lease.epoch:
            return None
        return run

    async def feed(self, after: str = START, *, limit: int = 512, partition: int = 0) -> FeedPage:
        """Return events of all runs in the order of their appends."""
        self._check_open()
        check_partition(partition, self.partitions)
        if after == END:
            return FeedPage([], str(self._last))
        first = bisect_right(self._order, int(after or 0), key=lambda entry: entry.position)
        page = self._order[first : first + limit]
        return FeedPage([entry.copy() for entry in page], str(page[-1].position) if page else after)

    async def mark(self, name: str) -> str | None:
        """Return the value of a mark, or None."""
        self._check_open()
        return self._marks.get(name)

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return the marks whose names have this prefix, ordered by name."""
        self._check_open()
        return {name: self._marks[name] for name in sorted(self._marks) if name.startswith(prefix)}

    async def set_mark(self, name: str, value: str) -> None:
        """Set a mark."""
        self._check_open()
        check_text(name)
        check_text(value)
        self._marks[name] = value

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        """Set a mark if its value is the expected one; return True if it was."""
        self._check_open()
        check_text(name)
        if self._marks.get(name) != expected:
            return False
        if value is None:
            self._marks.pop(name, None)
        else:
            await self.set_mark(name, value)
        return True

    async def erase(self, run_id: str) -> bool:
        """Delete the run and its events; see `EventStore.erase`."""
        self._check_open()
        for name in [name for name in self._marks if name.startswith(run_mark(run_id))]:
            del self._marks[name]
        erased = self._runs.pop(run_id, None)
        if erased is None:
            return False
        name = tombstone_name(run_id)
        self._tombstones[name] = Tombstone(name, len(erased.log), self._clock.now())
        self._order = [entry for entry in self._order if entry.event.run_id != run_id]
        self._wakeups.committed(run_id, signal=True)
        return True

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return the tombstone of an erased run, or None."""
        self._check_open()
        return self._tombstones.get(tombstone_name(run_id))

    async def erasures(self) -> int:
        """Return how many runs have been erased."""
        self._check_open()
        return len(self._tombstones)

    async def blob_users(self, digest: str, *, limit: int = 1) -> list[str]:
        """Return the ids of up to `limit` runs whose logs refer to this blob."""
        self._check_open()
        users = (
            run_id
            for run_id, run in self._runs.items()
            if any(digest in blob_digests(entry.event.kind, entry.event.data) for entry in run.log)
        )
        return list(islice(users, limit))

    async def close(self) -> None:
        """Close the store; `setup()` opens it again with its events."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise StoreClosed(
                "this MemoryEventStore is not open: call setup(), or `async with` its engine"
            )
