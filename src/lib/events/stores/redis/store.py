"""The event store on a Redis server: implements `EventStore` with lanes and scripts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

from lib._util.clock import SYSTEM_CLOCK, Clock, own_time
from lib._util.contexts import AsyncStore
from lib._util.places import without_password
from lib._util.tasks import cancelled
from lib.errors import (
    MigrationNeeded,
    RunErased,
    SchemaTooNew,
    StoreClosed,
    StoreReadOnly,
)
from lib.events.codec import decode_time, encode_data
from lib.events.event import Event, NewEvent
from lib.events.kinds import is_signal
from lib.events.live import CarriesDeltas, LiveChannel, RemoteLive
from lib.events.rates import Rate, RateState, SharesRates
from lib.events.runs import (
    Lease,
    RunInfo,
    RunQuery,
    check_batch,
    check_partition,
    check_text,
    lease_length,
)
from lib.events.store import LAYOUT_VERSION, START, CountsErasures, FeedPage, Tombstone
from lib.events.stores.redis import layout, operations
from lib.events.stores.redis.live import MAX_BYTES, redis_link
from lib.events.stores.redis.operations import (
    Append,
    Lane,
    Limits,
    Operation,
    Outdated,
    RunCache,
    Stored,
)
from lib.events.stores.redis.rates import take_rates
from lib.events.stores.redis.reader import Reader
from lib.events.stores.redis.server import Server, inspect, rewrite
from lib.events.stores.redis.writes import COMMIT
from lib.events.wakeups import Wakeups, poll_for_commits

_PREFIX: Final = re.compile(r"[\w.:-]+", re.ASCII)
_SPARE_CONNECTIONS: Final = 4
_FEWEST_SPARE: Final = 2
_LONGEST_PAUSE_S: Final = 1.0


class FeedLengths:
    """The lengths of the feeds of all partitions, as this process has last seen them."""

    def __init__(self, lengths: Sequence[int], wakeups: Wakeups) -> None:
        """Take the present lengths, and the listeners to wake for commits of other processes."""
        self._lengths = list(lengths)
        self._wakeups = wakeups

    def appended(self, partition: int, before: int, after: int) -> None:
        """Record an append of this process, from the length before it to the length after it."""
        if before > self._lengths[partition]:
            self._wakeups.foreign(partition)
        self._lengths[partition] = max(after, self._lengths[partition])

    def seen(self, lengths: Sequence[int]) -> bool:
        """Record lengths that were read a moment ago; return whether any is new."""
        # A feed never shrinks: an empty one is lost, which its readers find out.
        news = [
            p for p, n in enumerate(lengths) if n > self._lengths[p] or (not n and self._lengths[p])
        ]
        for partition in news:
            self._lengths[partition] = lengths[partition]
            self._wakeups.foreign(partition)
        return bool(news)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The parts of an open store; a lane for each partition, and one for all else."""

    server: Server
    reader: Reader
    lanes: Sequence[Lane]


class RedisEventStore(CarriesDeltas, CountsErasures, SharesRates, AsyncStore):
    """Event logs on a Redis server, for the processes of many machines.

    Appends of a partition that wait at the same time share a script, and so a round trip. Other
    processes' events are seen within a second, sooner while there are many.

    The server's settings decide what survives. With `appendonly yes` and `appendfsync always`, all
    that was confirmed; with `appendfsync everysec` (Redis's default), a crash of the machine loses
    up to the last second or two of confirmed events, of all runs at once; a fail-over to a replica
    loses what it had not received, whatever the settings. A tool whose intent is lost in this way
    may be called again. Without an append-only file, or with a `maxmemory-policy` that evicts any
    key, `setup` logs a warning.

    A store lives on one node: all its keys are in one slot of a Redis Cluster, so that a script may
    touch them all and creations have one order. Partitions are what the bus divides its work by.

    When an answer is lost, the outcome of the write is unknown: it is never sent again, and the
    `StoreError` says so. An append with `expected` may be repeated: if the first has been
    stored, the second is a `Conflict`. A signal may be repeated, too: readers take one of the same
    `signal_id` once.

    `erase` removes what the server holds. Its append-only file keeps the old commands until it is
    rewritten: `purge` has it rewritten now. Snapshots (`dump.rdb`) and back-ups are yours.
    """

    _limits: ClassVar[Limits] = Limits()

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "lib",
        partitions: int | None = None,
        max_connections: int | None = None,
        read_only: bool = False,
        timeout_s: float = 20.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe the store; `setup()` opens it.

        Args:
            url: `redis://[user:password@]host:port/database`, `rediss://…` for TLS, or
                `unix:///path`; the server is Redis 6.2 or newer.
            prefix: begins the store's keys, so that several stores can share a database.
            partitions: how many there are; fixed when the store is made. None takes what it has,
                or 8 for a new one; so does a read-only store.
            max_connections: at most so many at once; None for 4 more than there are partitions,
                of which each may write at the same time. Deltas take two more, from the first run
                on that is driven or watched here.
            read_only: never write, not even a migration.
            timeout_s: how long to wait for a free connection, and for an answer.
            clock: paces the look for other processes' events. Leases end by the server's time,
                unless this is another clock than the machine's, as in tests: then by this one.

        Raises:
            MissingDriver: redis is not installed.
            ValueError: no such URL, a prefix with other than letters, digits, `_`, `.`, `:`, `-`,
                no partition, or fewer than 2 more connections than partitions, or than the one
                that every store has where none are named.
        """
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"a prefix is letters, digits, '_', '.', ':' and '-', not {prefix!r}")
        if partitions is not None and partitions < 1:
            raise ValueError(f"a store has at least one partition, not {partitions}")
        self._wanted, self._max_connections = partitions, max_connections
        self._partitions = partitions or layout.DEFAULT_PARTITIONS
        self._id = ""
        self._key = f"{{{prefix}}}"
        self._name = f"{type(self).__name__}({without_password(url)!r}, prefix={prefix!r})"
        self._server = partial(Server, url, self._name, timeout_s=timeout_s)
        self._read_only = read_only
        self._server(connections=self._connections(partitions or 1))  # refuses what is no URL
        self._clock = clock
        self._wakeups = Wakeups()
        self._live = RemoteLive(
            partial(redis_link, partial(self._server, connections=1)),
            store=self._name,
            max_bytes=MAX_BYTES,
        )
        self._cache = RunCache(self._limits.cached_runs)
        self._gate = asyncio.Lock()
        self._held = AsyncExitStack()
        self._opened: _Opened | None = None

    def _connections(self, partitions: int) -> int:
        """Return how many connections there are at once; refuse to have too few."""
        if self._max_connections is None:
            return partitions + _SPARE_CONNECTIONS
        needed = 1 if self._read_only else partitions + _FEWEST_SPARE
        if self._max_connections < needed:
            raise ValueError(
                f"too few connections: max_connections is {self._max_connections}, and "
                f"{partitions} partitions need at least {needed} (one each, one for other writes, "
                f"one for reads); leave it out for {partitions + _SPARE_CONNECTIONS}"
            )
        return self._max_connections

    @property
    def partitions(self) -> int:
        """The number of partitions, once the store is set up; it never changes."""
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
        """Carries deltas by publish and subscribe of the server."""
        return self._live

    # -- life ------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Connect, create or migrate the layout; see `EventStore.setup`.

        Raises:
            ValueError: it was made with another number of partitions, or there are too few
                connections for those that it has; nothing was changed.
        """
        async with self._gate:
            if self._opened is None:
                async with AsyncExitStack() as held:
                    self._opened = await self._open(held)
                    self._held = held.pop_all()

    async def _open(self, held: AsyncExitStack) -> _Opened:
        """Open what the store needs; `held` closes it in the reverse order."""
        self._partitions = await self._found()
        server = self._server(connections=self._connections(self._partitions))
        held.push_async_callback(server.close)
        self._cache = RunCache(self._limits.cached_runs)
        seen = FeedLengths(await self._feed_lengths(server), self._wakeups)
        reader = Reader(server, self._key, self._name, self._id, page=self._limits.runs)
        opened = _Opened(server, reader, self._lanes(server, seen))
        polling = poll_for_commits(
            partial(self._look, server, seen),
            wakeups=self._wakeups,
            clock=self._clock,
            longest_pause_s=_LONGEST_PAUSE_S,
            store=self._name,
        )
        held.push_async_callback(cancelled, asyncio.create_task(polling, name="lib.events.watch"))
        for lane in opened.lanes:
            held.push_async_callback(lane.drained)
        self._live.open(self._id)
        held.push_async_callback(self._live.close)
        return opened

    async def _look(self, server: Server, seen: FeedLengths) -> bool:
        return seen.seen(await self._feed_lengths(server))

    async def _feed_lengths(self, server: Server) -> list[int]:
        """Return how long the feeds are, in one round trip."""
        feeds = range(self._partitions)
        return await server.together([("LLEN", f"{self._key}:feed:{p}") for p in feeds])

    async def _found(self) -> int:
        """Look at the server and at the layout, mend it if need be; return the partitions."""
        server = self._server(connections=1)
        try:
            await inspect(server, self._name)
            if self._read_only:
                partitions = await layout.check_readable(server, self._key, self._name)
            else:
                partitions = await layout.migrate(
                    server, self._key, self._name, self._wanted, check=self._connections
                )
            self._id = await layout.store_id(server, self._key)
        finally:
            await server.close()
        return partitions

    def _lanes(self, server: Server, seen: FeedLengths) -> Sequence[Lane]:
        if self._read_only:
            return ()
        commit, committed = partial(self._commit, server), partial(self._committed, seen)
        return [
            Lane(commit, committed, self._limits.operations) for _ in range(self._partitions + 1)
        ]

    async def close(self) -> None:
        """Write what waits, and disconnect; safe to repeat."""
        async with self._gate:
            self._opened = None
            held, self._held = self._held, AsyncExitStack()
            await held.aclose()

    def _committed(self, seen: FeedLengths, outcomes: Sequence[Any]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Stored):
                seen.appended(outcome.partition, outcome.before, outcome.after)
                last = outcome.events[-1]
                self._wakeups.committed(
                    last.run_id, signal=is_signal(last.kind), partition=outcome.partition
                )

    # -- writing ---------------------------------------------------------------------------

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        """Append all events or none; see `EventStore.append` and the docstring of this class."""
        opened = self._check_writable()
        check_batch(run_id, events, expected)
        payloads = [encode_data(event.data) for event in events]
        append = Append(self._cache, self._partitions, run_id, events, payloads, expected)
        info = self._cache.get(run_id)
        while True:
            with suppress(Outdated):
                stored: Stored = await opened.lanes[append.partition(info)].put(append)
                return stored.events
            info = await self._find(opened.reader, run_id)
            append.advance(info)  # a refusal on the server's state is final

    async def _find(self, reader: Reader, run_id: str) -> RunInfo | None:
        """Read a run from the server into the cache, and return it, or None.

        Raises:
            RunErased: it has been erased.
        """
        self._cache.forget(run_id)
        found = await reader.find(run_id)
        if isinstance(found, Tombstone):
            raise RunErased(run_id)
        if found is not None:
            self._cache.put(found)
        return found

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
        """Take the leases of open, ready, unleased runs; see `EventStore.claim`."""
        check_text(owner)
        if run_id is not None and (limit < 1 or run_id in skip):
            limit, run_id = 0, None
        which = limit if run_id is None else run_id
        now, lasts = own_time(self._clock), lease_length(ttl_s)
        claim = operations.claim(owner, now, lasts, which, algorithms=algorithms, skip=skip)
        return operations.leases(await self._write(claim), owner)

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Return the lease with a later end, or None if it has been lost."""
        renewal = operations.renew(lease, own_time(self._clock), lease_length(ttl_s))
        until = await self._write(renewal)
        return replace(lease, until=decode_time(int(until))) if until else None

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        """Give the lease back; see `EventStore.release`."""
        await self._write(operations.release(lease, idle_at))

    async def set_mark(self, name: str, value: str) -> None:
        """Keep a small durable value."""
        check_text(name)
        check_text(value)
        await self._write(operations.set_mark(name, value))

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        """Change a small durable value that is as expected; return whether it was."""
        check_text(name)
        check_text(value or "")
        return bool(await self._write(operations.compare_and_set_mark(name, expected, value)))

    async def erase(self, run_id: str) -> bool:
        """Delete the run and its events for good; return whether there was one."""
        erased = bool(await self._write(operations.erase(run_id, self._clock.now())))
        self._cache.forget(run_id)
        if erased:
            self._wakeups.committed(run_id, signal=True)
        return erased

    async def purge(self) -> None:
        """Have the server rewrite its append-only file, which keeps what was erased; may take long.

        Raises:
            StoreError: it could not, or does not permit the command.
        """
        opened = self._check_writable()
        await rewrite(opened.server, self._name, self._clock)

    async def _write(self, operation: Operation) -> Any:
        return await self._check_writable().lanes[-1].put(operation)

    async def _commit(self, server: Server, args: Sequence[bytes]) -> Sequence[Any]:
        status, answer = await server.run(COMMIT, self._key, LAYOUT_VERSION, self._id, *args)
        if status == b"done":
            return answer
        if answer is None:
            raise layout.gone(self._name)
        found = int(answer)
        kind = SchemaTooNew if found > LAYOUT_VERSION else MigrationNeeded
        raise kind(self._name, found=found, supported=LAYOUT_VERSION)

    # -- reading ---------------------------------------------------------------------------

    async def schema_version(self) -> int:
        """Return the layout version of the stored data."""
        return await self._check_open().reader.schema_version()

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the run's events with `seq > after` in order."""
        return await self._check_open().reader.read(run_id, after, limit)

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """Return the runs that the query lists, in the order of their creation."""
        return await self._check_open().reader.runs(query or RunQuery())

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run, or None."""
        found = await self._check_open().reader.find(run_id)
        return found if isinstance(found, RunInfo) else None

    async def feed(self, after: str = START, *, limit: int = 512, partition: int = 0) -> FeedPage:
        """Return events of a partition's runs in commit order; see `EventStore.feed`."""
        reader = self._check_open().reader
        check_partition(partition, self._partitions)
        return await reader.feed(after, limit, partition)

    async def mark(self, name: str) -> str | None:
        """Return a small durable value, or None."""
        return await self._check_open().reader.mark(name)

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return the small durable values whose names have this prefix, ordered by name."""
        return await self._check_open().reader.marks(prefix)

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what is left of an erased run, or None."""
        found = await self._check_open().reader.find(run_id)
        return found if isinstance(found, Tombstone) else None

    async def erasures(self) -> int:
        """Return how many runs have been erased; see `CountsErasures`."""
        return await self._check_open().reader.erasures()

    async def blob_users(self, digest: str, *, limit: int = 1) -> list[str]:
        """Return the ids of up to `limit` runs whose logs refer to this blob."""
        return await self._check_open().reader.blob_users(digest, limit)

    async def take_rates(self, wanted: Sequence[tuple[str, Rate]]) -> list[RateState]:
        """Count a request of any process; see `SharesRates`."""
        server, own = self._check_writable().server, own_time(self._clock)
        now_us = None if own is None else int(own.timestamp() * 1_000_000)
        return await take_rates(server, self._key, now_us, wanted)

    def _check_open(self) -> _Opened:
        if self._opened is None:
            raise StoreClosed(f"{self._name} is not open: call setup(), or `async with` its engine")
        return self._opened

    def _check_writable(self) -> _Opened:
        opened = self._check_open()
        if not opened.lanes:
            raise StoreReadOnly(f"{self._name} was opened with read_only=True")
        return opened
