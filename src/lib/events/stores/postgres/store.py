"""The event store in PostgreSQL: checks its input, then hands the work to its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import ClassVar, Final, TypeVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncStore
from lib._util.postgres import Connections
from lib._util.tasks import cancelled
from lib.errors import StoreClosed, StoreReadOnly
from lib.events.event import Event, NewEvent
from lib.events.live import CarriesDeltas, LiveChannel, RemoteLive
from lib.events.runs import (
    Lease,
    RunInfo,
    RunQuery,
    check_batch,
    check_text,
    lease_length,
    partition_of,
)
from lib.events.store import START, CountsErasures, FeedPage, Tombstone
from lib.events.stores.postgres import layout
from lib.events.stores.postgres.batch import Append, WrongPartition
from lib.events.stores.postgres.leases import Leases
from lib.events.stores.postgres.live import MAX_BYTES, postgres_link
from lib.events.stores.postgres.marks import Changes
from lib.events.stores.postgres.reader import Reader
from lib.events.stores.postgres.schema import place_of, typed_errors
from lib.events.stores.postgres.writer import Limits, Writer
from lib.events.wakeups import Wakeups, poll_for_commits

_MAX_PARTITIONS: Final = 1_024
_SPARE: Final = 4
_NEEDED_SPARE: Final = 2
_READING: Final = 4
_LONGEST_PAUSE_S: Final = 1.0

T = TypeVar("T")


class PostgresEventStore(CarriesDeltas, CountsErasures, AsyncStore):
    """Event logs in one schema of a PostgreSQL database, for the processes of many machines.

    Appends of one process that wait for the same partition share a transaction. Processes see
    each other's commits within 50 ms to a second, and look for them only while there are listeners.

    Nothing rests on the state of a session, so a pooler in transaction mode may stand between.
    """

    _limits: ClassVar[Limits] = Limits()

    def __init__(
        self,
        url: str,
        *,
        schema: str = "public",
        partitions: int | None = None,
        pool_size: int | None = None,
        timeout_s: float = 30.0,
        read_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe the store; `setup()` opens it.

        Args:
            url: of the database (`postgresql://…`), or key=value pairs as libpq takes them.
            schema: where its tables are, made when it is missing; each schema is a store.
            partitions: how many there are, each with an order of commits of its own; fixed when
                the store is made. None takes what it has, or 8 for a new one.
            pool_size: connections of this process at most: for appends, which take 2 at most,
                as what waits shares a transaction; and for what may go on beside them in every
                partition, above all the reads of the bus. None is partitions + 4. Deltas take two
                more, from the first run on that is driven or watched here.
            timeout_s: how long a call waits for a connection, and then for its answer, before it
                fails; `setup` and `erase`, which may have much to do, wait for theirs.
            read_only: never write, not even a migration.
            clock: paces the look for other processes' commits. Leases end by the server's time,
                unless this is another clock than the machine's, as in tests: then by this one.

        Raises:
            ValueError: the URL cannot be read, a schema has a name that is not plain, or the
                pool is too small for the partitions, or for a single one where none are named.
        """
        self._id = ""
        self._place = place_of(url, schema)
        if partitions is not None and not 1 <= partitions <= _MAX_PARTITIONS:
            raise ValueError(f"a store has 1 to {_MAX_PARTITIONS} partitions, not {partitions}")
        self._wanted, self._pool_size = partitions, pool_size
        self._read_only = read_only
        self._check_pool(partitions or 1)  # `setup` knows how many there are
        self._url, self._timeout_s = url, timeout_s
        self._clock = clock
        self._wakeups = Wakeups()
        self._live = RemoteLive(
            partial(postgres_link, url, self._place.name, lambda: self._id),
            store=self._place.name,
            max_bytes=MAX_BYTES,
        )
        self._gate = asyncio.Lock()
        self._held = AsyncExitStack()
        self._partitions = partitions or layout.DEFAULT_PARTITIONS
        self._reader: Reader | None = None
        self._changes: Changes | None = None
        self._leases: Leases | None = None
        self._writer: Writer | None = None
        self._run_partitions: dict[str, int] = {}

    def _check_pool(self, partitions: int) -> None:
        """Refuse a pool in which partitions would wait for each other's connections."""
        needed = 1 if self._read_only else partitions + _NEEDED_SPARE
        if self._pool_size is not None and self._pool_size < needed:
            raise ValueError(
                f"pool_size={self._pool_size} is too small: {self._place.name} has {partitions} "
                f"partitions, each of which may be read beside the appends, and needs "
                f"at least {needed} (partitions + {_NEEDED_SPARE}); leave it out for "
                f"{partitions + _SPARE}"
            )

    @property
    def partitions(self) -> int:
        """The number of partitions, once the store is set up."""
        return self._partitions

    @property
    def store_id(self) -> str:
        """The unique id of this store, once it is set up; empty for older stores."""
        return self._id

    @property
    def wakeups(self) -> Wakeups:
        """Tells listeners of this event loop that logs have grown."""
        return self._wakeups

    @property
    def live(self) -> LiveChannel:
        """Carries deltas by NOTIFY; none arrive through a pooler in transaction mode."""
        return self._live

    # -- life ------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Open the store, create or migrate its layout; see `EventStore.setup`.

        Raises:
            ValueError: it was made with another number of partitions, or the pool is too small
                for those that it has; nothing was changed.
        """
        async with self._gate:
            if self._reader is None:
                async with AsyncExitStack() as held:
                    await self._open(held)
                    self._held = held.pop_all()

    async def _open(self, held: AsyncExitStack) -> None:
        """Open what the store needs; `held` closes it in the reverse order."""
        with typed_errors(self._place.name, writes=False):  # it may be called again as it is
            looking = Connections(self._url, name=self._place.name)
            opened = (
                layout.readable
                if self._read_only
                else partial(layout.opened, check=self._check_pool)
            )
            async with looking.first() as connection:
                self._partitions = await opened(connection, self._place, self._wanted)
                self._id = await layout.store_id(connection, self._place, make=not self._read_only)
            self._check_pool(self._partitions)
            connections = await self._connect(held)
        reader = Reader(self._place, connections, self._partitions, read_only=self._read_only)
        heads = await reader.heads()
        watch = Watch(reader, self._wakeups, heads, self._limits)
        polling = poll_for_commits(
            watch.look,
            wakeups=self._wakeups,
            clock=self._clock,
            longest_pause_s=_LONGEST_PAUSE_S,
            store=self._place.name,
        )
        held.push_async_callback(cancelled, asyncio.create_task(polling, name="lib.events.watch"))
        if not self._read_only:
            self._changes = Changes(self._place, connections)
            self._leases = Leases(self._place, connections, self._clock)
            held.push_async_callback(self._leases.drained)
            self._writer = Writer(
                self._place, connections, self._partitions, watch.appended, self._limits
            )
            held.push_async_callback(self._writer.drained)
        self._reader = reader
        self._live.open(self._id)
        held.push_async_callback(self._live.close)

    async def _connect(self, held: AsyncExitStack) -> Connections:
        usual = _READING if self._read_only else self._partitions + _SPARE
        connections = Connections(
            self._url,
            name=self._place.name,
            max_size=self._pool_size or usual,
            timeout_s=self._timeout_s,
        )
        held.push_async_callback(connections.close)
        await connections.open()
        return connections

    async def close(self) -> None:
        """Commit what waits, and close the connections; safe to repeat."""
        async with self._gate:
            self._reader = self._changes = self._leases = self._writer = None
            held, self._held = self._held, AsyncExitStack()
            await held.aclose()

    # -- writing ---------------------------------------------------------------------------

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        """Append all events or none, durably; see `EventStore.append`.

        Raises:
            StoreError: also when a connection is lost under way; then it is unknown whether the
                events are stored: read the log.
        """
        self._opened(self._writer)
        check_batch(run_id, events, expected)
        append = Append.of(self._partition_of(run_id, events, expected), run_id, events, expected)
        while True:
            writer = self._opened(self._writer)
            try:
                stored = await writer.put(append)
            except WrongPartition as found:
                append.partition = found.partition
            else:
                self._remember(run_id, append.partition)
                return stored

    def _partition_of(self, run_id: str, events: Sequence[NewEvent], expected: int | None) -> int:
        """Return the partition of a run: the cached one, else that of a root of this id."""
        cached = self._run_partitions.get(run_id)
        if cached is not None:
            return cached
        match events[0].data:
            case {"root": str(root)} if expected == 0:
                return partition_of(root, self._partitions)
            case _:
                return partition_of(run_id, self._partitions)

    def _remember(self, run_id: str, partition: int) -> None:
        if len(self._run_partitions) >= self._limits.partitions:
            self._run_partitions.clear()
        self._run_partitions[run_id] = partition

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
        """Take the leases of open, unleased runs; see `EventStore.claim`."""
        leases = self._opened(self._leases)
        check_text(owner)
        return await leases.claim(
            owner,
            lasts=lease_length(ttl_s),
            run_id=run_id,
            limit=limit,
            algorithms=algorithms,
            skip=skip,
        )

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Return the lease with a later end, or None if it has been lost."""
        return await self._opened(self._leases).renew(lease, lease_length(ttl_s))

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        """Give the lease back; see `EventStore.release`."""
        await self._opened(self._leases).release(lease, idle_at)

    async def set_mark(self, name: str, value: str) -> None:
        """Keep a small durable value."""
        changes = self._writing()
        check_text(name)
        check_text(value)
        await changes.set_mark(name, value)

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        """Change a small durable value that is as expected; return whether it was."""
        changes = self._writing()
        check_text(name)
        check_text(value or "")
        return await changes.compare_and_set_mark(name, expected, value)

    async def erase(self, run_id: str) -> bool:
        """Delete the run and its events for good; return whether there was one."""
        erased = await self._writing().erase(run_id, self._clock.now())
        if erased:
            self._wakeups.committed(run_id, signal=True)
        return erased

    def _writing(self) -> Changes:
        return self._opened(self._changes)

    def _opened(self, part: T | None) -> T:
        if part is None:
            self._reading()
            raise StoreReadOnly(f"{self._place.name} was opened with read_only=True")
        return part

    # -- reading ---------------------------------------------------------------------------

    async def schema_version(self) -> int:
        """Return the layout version of the stored data."""
        return await self._reading().schema_version()

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the run's events with `seq > after` in order."""
        return await self._reading().read(run_id, after, limit)

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """Return the runs that the query lists, in the order of their creation."""
        return await self._reading().runs(query or RunQuery())

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run, or None."""
        return await self._reading().run(run_id)

    async def feed(self, after: str = START, *, limit: int = 512, partition: int = 0) -> FeedPage:
        """Return events of all runs of a partition in commit order; see `EventStore.feed`."""
        return await self._reading().feed(after, limit, partition)

    async def mark(self, name: str) -> str | None:
        """Return a small durable value, or None."""
        return await self._reading().mark(name)

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return the small durable values whose names have this prefix, ordered by name."""
        return await self._reading().marks(prefix)

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what is left of an erased run, or None."""
        return await self._reading().tombstone(run_id)

    async def erasures(self) -> int:
        """Return how many runs have been erased; see `CountsErasures`."""
        return await self._reading().erasures()

    async def blob_users(self, digest: str, *, limit: int = 1) -> list[str]:
        """Return the ids of up to `limit` runs whose logs refer to this blob."""
        return await self._reading().blob_users(digest, limit)

    def _reading(self) -> Reader:
        if self._reader is None:
            raise StoreClosed(
                f"{self._place.name} is not open: call setup(), or `async with` its engine"
            )
        return self._reader


_MAX_EVENTS: Final = 1_000


class Watch:
    """The position in each partition up to which listeners have been woken."""

    def __init__(
        self, reader: Reader, wakeups: Wakeups, heads: Mapping[int, int], limits: Limits
    ) -> None:
        """Begin at the present heads of the partitions."""
        self._limits = limits
        self._reader, self._wakeups = reader, wakeups
        self._positions = dict(heads)
        self._own_heads: dict[str, int] = {}

    def appended(
        self, partition: int, before: int, after: int, runs: Mapping[str, tuple[int, bool]]
    ) -> None:
        """Wake listeners for a commit of this process."""
        if before == self._positions[partition]:
            self._positions[partition] = after
        if len(self._own_heads) > self._limits.runs:
            self._own_heads.clear()
        for run_id, (head, signal) in runs.items():
            self._own_heads[run_id] = head
            self._wakeups.committed(run_id, signal=signal, partition=partition)

    async def look(self) -> bool:
        """Wake listeners for commits of other processes; return whether anything was new."""
        changed = False
        for partition, head in (await self._reader.heads()).items():
            position = self._positions[partition]
            if head > position:
                changed = True
                await self._wake(partition, position, head)
        return changed

    async def _wake(self, partition: int, position: int, head: int) -> None:
        rows = await self._reader.appended(partition, position, head, _MAX_EVENTS)
        self._positions[partition] = max(head, self._positions[partition])
        if len(rows) == _MAX_EVENTS:
            self._wakeups.foreign(partition)
            return
        foreign = {run_id for run_id, seq in rows if seq > self._own_heads.get(run_id, 0)}
        for run_id in foreign:  # as for a signal: the owner of the run must look, too
            self._wakeups.committed(run_id, signal=True, partition=partition)
