"""What every event store promises."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from urllib.parse import quote

from lib.events.event import Event, NewEvent
from lib.events.runs import Lease, RunInfo, RunQuery
from lib.events.wakeups import Wakeups

START: Final = ""
"""The feed cursor before the first event."""

END: Final = "$"
"""The feed cursor after the last event there is: a feed from it is empty and holds the real one."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A page of a partition's events in commit order, and the cursor after it."""

    events: list[Event]
    cursor: str


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of an erased run: that there was one, and nothing that was in it.

    Attributes:
        name: the SHA-256 of its run id, see `tombstone_name`; the id itself is gone, too.
        events: how many events it had.
    """

    name: str
    events: int
    erased_at: datetime


def tombstone_name(run_id: str) -> str:
    """Return what the tombstone of this run is called."""
    return hashlib.sha256(f"run/{run_id}".encode("utf-8", "surrogatepass")).hexdigest()


def run_mark(run_id: str, name: str = "") -> str:
    """Return the name of a mark that is erased with a run."""
    return f"run/{quote(run_id, safe='', errors='surrogatepass')}/{name}"


def new_store_id() -> str:
    """Return an id for a new store: 128 random bits."""
    return secrets.token_hex(16)


class ChecksIntegrity:
    """Base class of the event stores that can check their storage beneath the logs."""

    async def integrity_faults(self) -> list[str]:
        """Return what is wrong with the storage, in its own words; none if it is sound."""
        raise NotImplementedError


class CountsErasures:
    """Base class of the event stores that can tell in constant time whether anything was erased.

    Readers that keep what they have read look for erased runs only when the number has changed.
    Of a store without it, they list the runs each time.
    """

    async def erasures(self) -> int | None:
        """Return a number that every erasure of a run raises, by whatever process.

        It changes in the transaction that erases, says nothing of which runs were erased, and
        may grow for other reasons. None: the store beneath this one has no such number.
        """
        raise NotImplementedError


async def erasures_of(store: EventStore) -> int | None:
    """Return the number of erasures of a store, None where it does not count them."""
    return await store.erasures() if isinstance(store, CountsErasures) else None


class EventStore(Protocol):
    """An append-only log for each run, and an order over all of them.

    Runs are spread over partitions, a run and all that descends from it in one of them, by its
    root (`partition_of`); the order of commits is one within a partition, and none between two.

    Every method but `setup` raises `StoreClosed` before `setup()` and after `close()`. A method
    that was cancelled may or may not have had its effect: read before you repeat it.
    """

    @property
    def partitions(self) -> int:
        """How many partitions there are, once the store is set up; they never change."""
        ...

    @property
    def store_id(self) -> str:
        """What tells this store from every other, once it is set up; it never changes.

        Ids of runs that are derived from a key hold it. It is empty for a store that was made
        before stores had one: its runs keep the ids that they have.
        """
        ...

    @property
    def wakeups(self) -> Wakeups:
        """Tells listeners of this event loop that logs have grown."""
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
            RunErased: the run has been erased, and nothing can be appended to it any more.
            InvalidEvent: the payload of a `lib.` event lacks what its readers rely on.
            ValueError: the batch breaks a rule of `lib.events.runs`.
            TypeError: a payload is not JSON.
            StoreReadOnly: the store cannot be written.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the run's events with `seq > after` in order; none if there is no such run.

        The list and its events are the caller's, who may change them.
        """
        ...

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """Return the runs that the query lists, in the order of their creation.

        Raises:
            RunNotFound: the query goes on after a run that is not here (any more).
        """
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run, or None."""
        ...

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
        """Take the lease of open, ready runs that nobody holds, for `ttl_s` seconds.

        A store on a server goes by the server's time, so that workers need not agree on theirs. A
        lease that ends more than a day and an hour ahead holds nothing: it was taken by a wrong
        clock.

        Args:
            owner: who claims; unique among live workers.
            ttl_s: how long the lease lasts unless renewed; at most `MAX_LEASE_S`, a day.
            run_id: only this run, even if it is not ready; None for any ready one, oldest first.
            limit: at most so many.
            algorithms: only runs of these; None for any.
            skip: none of these runs. A claim carries them all to the store, which looks at each:
                meant for hundreds, works with ten thousand.
        """
        ...

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Return the lease with a later end, or None if somebody else has taken it."""
        ...

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        """Give the lease back; without effect if it has been lost.

        Args:
            lease: the lease.
            idle_at: the head up to which there is nothing to do: if nothing has been appended
                since, no worker claims the run until something is.
        """
        ...

    async def feed(self, after: str = START, *, limit: int = 512, partition: int = 0) -> Feed:
        """Return events of all runs of a partition in commit order, from a cursor on.

        A reader that goes from cursor to cursor sees every event once and skips none, whatever
        the writers do meanwhile. Fewer than `limit` events: that was the end.

        Raises:
            ValueError: there is no such partition.
        """
        ...

    async def mark(self, name: str) -> str | None:
        """Return a small durable value, or None."""
        ...

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return the small durable values whose names begin so, ordered by name."""
        ...

    async def set_mark(self, name: str, value: str) -> None:
        """Keep a small durable value."""
        ...

    async def swap_mark(self, name: str, *, expected: str | None, value: str | None) -> bool:
        """Change a small durable value that is as expected; return whether it was.

        Args:
            name: of the value.
            expected: what it must be, None for none.
            value: what it becomes, None to delete it.
        """
        ...

    async def erase(self, run_id: str) -> bool:
        """Delete the run, its events and its marks (see `run_mark`) for good.

        A tombstone is left, and no run of this id can ever be started again. The run's children
        are runs of their own and stay: see `lib.privacy` for whole trees and tenants.

        Returns:
            Whether there was such a run.
        """
        ...

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what is left of an erased run, or None."""
        ...

    async def blob_users(self, digest: str, *, limit: int = 1) -> list[str]:
        """Return the ids of up to `limit` runs whose logs refer to this blob."""
        ...

    async def close(self) -> None:
        """Finish what is under way and release everything; safe to repeat."""
        ...
