"""The protocol of event stores: a log, leases, marks, a feed and erasure, each a small protocol."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from urllib.parse import quote

from lib.events import kinds as k
from lib.events.event import Event, NewEvent
from lib.events.runs import Lease, RunInfo, RunQuery
from lib.events.wakeups import Wakeups

LAYOUT_VERSION: Final = 2
"""The version of what is stored, for every event store.

1   events, runs, marks. Stores of releases 0.1 and 0.2 count as this version.
2   tombstones of erased runs; which runs refer to a blob; runs by their parent.
"""

START: Final = ""
"""The feed cursor before the first event."""

END: Final = "$"
"""The feed cursor after the last event: its page is empty and holds the cursor to go on from."""

_EXPIRED_TTL_S: Final = 0.001
_MAX_EPOCHS_TRIED: Final = 100_000


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A page of a partition's events in commit order, and the cursor after it."""

    events: list[Event]
    cursor: str


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record of an erased run: that it existed, and nothing that was in it.

    Attributes:
        name: the SHA-256 of its run id, see `tombstone_name`; the id itself is gone, too.
        events: how many events it had.
    """

    name: str
    events: int
    erased_at: datetime


def tombstone_name(run_id: str) -> str:
    """Return the name of this run's tombstone."""
    return hashlib.sha256(f"run/{run_id}".encode("utf-8", "surrogatepass")).hexdigest()


def run_mark(run_id: str, name: str = "") -> str:
    """Return the name of a mark that is erased with a run."""
    return f"run/{quote(run_id, safe='', errors='surrogatepass')}/{name}"


def new_store_id() -> str:
    """Return an id for a new store: 128 random bits."""
    return secrets.token_hex(16)


class Log(Protocol):
    """An append-only log for each run, and the list of the runs."""

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        """Append all events or none, durably, and return them as stored.

        Args:
            run_id: the run; its first event is `lib.run.started` with `expected=0`.
            events: at least one.
            expected: the `seq` that the log must end with, or None for signals.

        Raises:
            Conflict: the log does not end with `expected`.
            RunNotFound: a signal to a run that does not exist.
            RunErased: the run has been erased; nothing can be appended to it any more.
            InvalidEvent: the payload of a `lib.` event lacks a field that its readers rely on.
            ValueError: the batch breaks a rule of `lib.events.runs`.
            TypeError: a payload is not JSON.
            StoreReadOnly: the store cannot be written.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the run's events with `seq > after` in order; none if there is no such run.

        The list and its events are the caller's to change.
        """
        ...

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """Return the runs that match the query, in the order of their creation or the opposite one.

        Raises:
            RunNotFound: the run of `query.after` does not exist, or no longer.
        """
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run, or None."""
        ...


class Leases(Protocol):
    """The right to drive a run, held by one worker at a time."""

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
        """Take the lease of open, ready runs without a lease, for `ttl_s` seconds.

        A store on a server goes by the server's clock, so that those of the workers may differ. A
        lease that ends more than a day and an hour ahead is void: it was taken by a wrong clock.

        Args:
            owner: the worker; unique among live ones.
            ttl_s: how long the lease lasts unless renewed; at most `MAX_LEASE_S`, a day.
            run_id: only this run, even if it is not ready; None for any ready one, oldest first.
            limit: at most so many.
            algorithms: only runs of these; None for any.
            skip: none of these runs. A claim carries them all to the store, which looks at each:
                meant for hundreds, works with ten thousand.
        """
        ...

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Return the lease with a later end, or None if it has been lost."""
        ...

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        """Give the lease back; without effect if it has been lost.

        Args:
            lease: the lease.
            idle_at: the head up to which there is nothing to do: if nothing has been appended
                since, no worker claims the run until something is.
        """
        ...


class Marks(Protocol):
    """Small durable values under names, such as the cursors of the bus."""

    async def mark(self, name: str) -> str | None:
        """Return the value of a mark, or None."""
        ...

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return the marks whose names have this prefix, ordered by name."""
        ...

    async def set_mark(self, name: str, value: str) -> None:
        """Set a mark."""
        ...

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        """Set a mark if its value is the expected one; return True if it was.

        Args:
            name: of the mark.
            expected: its present value, None for no mark.
            value: its new value, None to delete it.
        """
        ...


class Feed(Protocol):
    """One order over the events of all runs of a partition: the order of commits."""

    @property
    def partitions(self) -> int:
        """The number of partitions, once the store is set up; it never changes."""
        ...

    @property
    def wakeups(self) -> Wakeups:
        """Wakes listeners of this event loop when logs have new events."""
        ...

    async def feed(self, after: str = START, *, limit: int = 512, partition: int = 0) -> FeedPage:
        """Return events of all runs of a partition in commit order, after a cursor.

        A reader that goes from cursor to cursor sees every event once and skips none, whatever
        is written meanwhile. Fewer than `limit` events: the page is the last one.

        Raises:
            ValueError: there is no such partition.
        """
        ...


class Erasure(Protocol):
    """Deletes runs for good, and finds the runs that still use a blob."""

    async def erase(self, run_id: str) -> bool:
        """Delete the run, its events and its marks (see `run_mark`) for good.

        A tombstone is left, and no run of this id can ever be started again. The run's children
        are runs of their own and stay: see `lib.privacy` for whole trees and tenants.

        Returns:
            True if there was such a run.
        """
        ...

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return the tombstone of an erased run, or None."""
        ...

    async def blob_users(self, digest: str, *, limit: int = 1) -> list[str]:
        """Return the ids of up to `limit` runs whose logs refer to this blob."""
        ...


class EventStore(Log, Leases, Marks, Feed, Erasure, Protocol):
    """An append-only log for each run, and an order over all of them.

    Runs are spread over partitions, a run and all that descends from it in one of them, by its
    root (`partition_of`); the order of commits is one within a partition, and none between two.

    Every method but `setup` raises `StoreClosed` before `setup()` and after `close()`. A method
    that was cancelled may or may not have had its effect: read before you repeat it.
    """

    @property
    def store_id(self) -> str:
        """The id that tells this store from every other, once it is set up; it never changes.

        Ids of runs that are derived from a key hold it. It is empty for a store that was made
        before stores had one: its runs keep the ids that they have.
        """
        ...

    async def setup(self) -> None:
        """Open the store, create or migrate its layout; safe to repeat and to race.

        Raises:
            SchemaTooNew: a newer release has written it.
            MigrationNeeded: it is read-only and older than this release reads.
            StoreCorrupt: it is damaged.
            StoreReadOnly: it does not exist and cannot be created.
        """
        ...

    async def schema_version(self) -> int:
        """Return the layout version of the stored data."""
        ...

    async def close(self) -> None:
        """Finish what is under way and release everything; safe to repeat."""
        ...


class ChecksIntegrity:
    """Base class of the event stores that can check their storage beneath the logs."""

    async def integrity_faults(self) -> list[str]:
        """Return the faults that the storage reports of itself; none if it is sound."""
        raise NotImplementedError


class CountsErasures:
    """Base class of the event stores that count erasures, and return the count in constant time.

    Readers with a cache look for erased runs only when the count has changed. Of a store without
    it, they list the runs each time.
    """

    async def erasures(self) -> int | None:
        """Return a number that every erasure of a run raises, in whatever process.

        It changes in the transaction that erases, does not show which runs were erased, and may
        grow for other reasons. None: the store beneath this one has no such number.
        """
        raise NotImplementedError


async def erasures_of(store: EventStore) -> int | None:
    """Return the number of erasures of a store, None where it does not count them."""
    return await store.erasures() if isinstance(store, CountsErasures) else None


async def end_lease(store: EventStore, info: RunInfo) -> Lease | None:
    """End the lease of a run whose worker is dead now instead of later; return the ended lease.

    The run stays its owner's until another worker claims it, which counts as a takeover: whatever
    the owner appends then is refused. An owner that is alive renews its lease before that.

    A lease is identified by its owner and its epoch. The store shows the owner only, so each epoch
    is tried, from the last one in the log on.

    Args:
        store: open for writing.
        info: the run, as the store lists it.

    Returns:
        None if the run has no owner, or has changed its owner meanwhile.
    """
    if info.owner is None or info.lease_until is None:
        return None
    for epoch in range(await _last_epoch(store, info.run_id), _MAX_EPOCHS_TRIED):
        lease = Lease(run_id=info.run_id, owner=info.owner, epoch=epoch, until=info.lease_until)
        if (ended := await store.renew(lease, ttl_s=_EXPIRED_TTL_S)) is not None:
            return ended
        now = await store.run(info.run_id)
        if now is None or now.owner != info.owner:
            return None
    return None


async def _last_epoch(store: EventStore, run_id: str) -> int:
    kinds = k.REQUESTS | {k.RUN_RESUMED}
    epochs = [event.data.get("epoch") for event in await store.read(run_id) if event.kind in kinds]
    return max((epoch for epoch in epochs if isinstance(epoch, int)), default=1)
