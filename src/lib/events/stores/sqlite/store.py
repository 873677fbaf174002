"""The event store in one SQLite file: an asynchronous shell around a writer and a reader."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, ClassVar, Final, Literal, TypeVar, get_args

from lib._util.batcher import Batcher
from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncStore
from lib._util.sqlite import BUSY_S, MEMORY
from lib._util.tasks import cancelled
from lib.errors import StoreClosed, StoreReadOnly
from lib.events.codec import encode_data
from lib.events.event import Event, NewEvent
from lib.events.live import CarriesDeltas, LocalLive, RemoteLive
from lib.events.runs import (
    Lease,
    RunInfo,
    RunQuery,
    check_batch,
    check_partition,
    check_text,
    lease_length,
)
from lib.events.store import START, ChecksIntegrity, CountsErasures, FeedPage, Tombstone
from lib.events.stores.sqlite.live import MAX_BYTES, socket_link
from lib.events.stores.sqlite.reader import Reader
from lib.events.stores.sqlite.writer import Operation, Writer
from lib.events.wakeups import Wakeups, poll_for_commits

Durability = Literal["full", "normal"]

_LONGEST_PAUSE_S: Final = 0.25

T = TypeVar("T")
Opened = TypeVar("Opened", Writer, Reader)


class SQLiteEventStore(CarriesDeltas, ChecksIntegrity, CountsErasures, AsyncStore):
    """Event logs in one SQLite file, for the processes of one machine.

    Appends that wait at the same time share a transaction. Processes that write to the same file
    take turns, and see each other's commits within a quarter of a second.

    After a file is deleted, moved or replaced while it is open, reads and writes raise
    `StoreCorrupt`: no commit is confirmed that only a file without a name holds.
    """

    _busy_s: ClassVar[float] = BUSY_S

    def __init__(
        self,
        path: str | os.PathLike[str] = MEMORY,
        *,
        durability: Durability = "full",
        read_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Describe the store; `setup()` opens it.

        Args:
            path: the file, created if it is missing; ":memory:" for a store that ends with `close`.
            durability: "full" survives a power cut; "normal" may lose its last commits in one, and
                survives everything else.
            read_only: never write, not even a migration. The file may be in use, or left by a
                crash; SQLite may put its `-wal` and `-shm` files beside it.
            clock: decides when a lease ends, and paces the looks for commits of other processes.

        Raises:
            ValueError: an unknown durability, or a read-only store in memory.
        """
        self._path = os.fspath(path)
        self._in_memory = self._path == MEMORY
        if durability not in get_args(Durability):
            raise ValueError(f"expected durability 'full' or 'normal', got {durability!r}")
        if read_only and self._in_memory:
            raise ValueError("a store in memory begins empty: expected read_only=False, got True")
        self._name = f"{type(self).__name__}({self._path!r})"
        self._id = ""
        self._synchronous = durability
        self._read_only = read_only
        self._clock = clock
        self._wakeups = Wakeups()
        self._remote: RemoteLive | None = None
        if not self._in_memory and hasattr(socket, "AF_UNIX"):
            link = partial(socket_link, self._path)
            self._remote = RemoteLive(link, store=self._name, max_bytes=MAX_BYTES)
        self._local = LocalLive()
        self._gate = asyncio.Lock()
        self._resources = AsyncExitStack()
        self._reading: ThreadPoolExecutor | None = None
        self._reader: Reader | None = None
        self._queue: Batcher[Operation, Any] | None = None

    @property
    def partitions(self) -> int:
        """One: a file is written by one connection at a time."""
        return 1

    @property
    def store_id(self) -> str:
        """The id of this store, once it is set up; empty for older ones."""
        return self._id

    @property
    def wakeups(self) -> Wakeups:
        """Wakes listeners of this event loop when logs have new events."""
        return self._wakeups

    @property
    def live(self) -> LocalLive:
        """Carries deltas between processes of one user, and within this one."""
        return self._remote or self._local

    # -- life ------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Open the file, create or migrate its layout; see `EventStore.setup`."""
        async with self._gate:
            if self._reader is None:
                async with AsyncExitStack() as held:
                    await self._open(held)
                    self._resources = held.pop_all()

    async def _open(self, held: AsyncExitStack) -> None:
        """Open the connections and threads; `held` closes them in the reverse order."""
        reading = writing = _thread(held, "lib-events-read")
        if self._read_only:
            reader = await self._open_reader(held, reading)
            self._start_watch(held, reading, reader.look)
        else:
            if not self._in_memory:
                writing = _thread(held, "lib-events-write")
            opened = partial(
                Writer.open, self._path, self._name, self._synchronous, busy_s=self._busy_s
            )
            writer = await _opened(held, writing, opened)
            if self._in_memory:
                reader = Reader(writer.connection, self._name)
            else:
                reader = await self._open_reader(held, reading)
                self._start_watch(held, writing, writer.look)
            commit = partial(self._commit, writing, writer)
            self._queue = Batcher(commit, name="lib.events.commit")
            held.push_async_callback(self._queue.drained)
        self._id = await _run(reading, reader.store_id)
        self._reading, self._reader = reading, reader
        if self._remote is not None:
            self._remote.open(self._id)
            held.push_async_callback(self._remote.close)

    async def _open_reader(self, held: AsyncExitStack, thread: ThreadPoolExecutor) -> Reader:
        return await _opened(held, thread, partial(Reader.open, self._path, self._name))

    def _start_watch(
        self, held: AsyncExitStack, thread: ThreadPoolExecutor, look: Callable[[], bool]
    ) -> None:
        polling = poll_for_commits(
            partial(self._look, thread, look),
            wakeups=self._wakeups,
            clock=self._clock,
            longest_pause_s=_LONGEST_PAUSE_S,
            store=self._name,
        )
        task = asyncio.create_task(polling, name="lib.events.watch")
        held.push_async_callback(cancelled, task)

    async def _look(self, thread: ThreadPoolExecutor, look: Callable[[], bool]) -> bool:
        changed = await _run(thread, look)
        if changed:
            self._wakeups.foreign()
        return changed

    async def close(self) -> None:
        """Commit the waiting operations, and close the file; safe to repeat."""
        async with self._gate:
            self._reading = self._reader = self._queue = None
            held, self._resources = self._resources, AsyncExitStack()
            await held.aclose()

    async def _commit(
        self, thread: ThreadPoolExecutor, writer: Writer, operations: Sequence[Operation]
    ) -> Sequence[Any]:
        """Carry out operations in one transaction; return the outcome of each.

        The slower the disk, the more of them wait for the next one and share its cost.
        """
        commit = await _run(thread, partial(writer.commit, operations))
        if commit.foreign:
            self._wakeups.foreign()
        for run_id, signal in commit.appended.items():
            self._wakeups.committed(run_id, signal=signal)
        return commit.outcomes

    # -- writing ---------------------------------------------------------------------------

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        """Append all events or none, durably; see `EventStore.append`."""
        check_batch(run_id, events, expected)
        payloads = [encode_data(event.data) for event in events]
        return await self._write(lambda writer: writer.append(run_id, events, payloads, expected))

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
        """Take the lease of open, ready runs without one; see `EventStore.claim`."""
        check_text(owner)
        now = self._clock.now()
        until = now + lease_length(ttl_s)
        return await self._write(
            lambda writer: writer.claim(
                owner, now, until, run_id=run_id, limit=limit, algorithms=algorithms, skip=skip
            )
        )

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Return the lease with a later end, or None if it has been lost."""
        until = self._clock.now() + lease_length(ttl_s)
        return await self._write(lambda writer: writer.renew(lease, until))

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        """Give the lease back; see `EventStore.release`."""
        await self._write(lambda writer: writer.release(lease, idle_at))

    async def set_mark(self, name: str, value: str) -> None:
        """Set a mark."""
        check_text(name)
        check_text(value)
        await self._write(lambda writer: writer.set_mark(name, value))

    async def compare_and_set_mark(
        self, name: str, *, expected: str | None, value: str | None
    ) -> bool:
        """Set a mark if its value is the expected one; return True if it was."""
        check_text(name)
        check_text(value or "")
        return await self._write(lambda writer: writer.compare_and_set_mark(name, expected, value))

    async def erase(self, run_id: str) -> bool:
        """Delete the run, its events and its marks for good; see `EventStore.erase`.

        When this returns, the erased data is overwritten in the file and gone from its write-ahead
        log, unless another process was reading the log. That log, and copies that SQLite may have
        left in unused parts of pages, are gone when the last process has closed the store, which
        then rewrites the file; after a crash the next process does. Old blocks that a file system
        or a disk keeps are out of reach here.
        """
        now = self._clock.now()
        erased = await self._write(lambda writer: writer.erase(run_id, now))
        if erased:
            self._wakeups.committed(run_id, signal=True)
        return erased

    async def _write(self, operation: Callable[[Writer], T]) -> T:
        if self._queue is None:
            self._check_open()
            raise StoreReadOnly(f"{self._name} was opened with read_only=True")
        return await self._queue.put(operation)

    # -- reading ---------------------------------------------------------------------------

    async def schema_version(self) -> int:
        """Return the layout version of the stored data."""
        return await self._read(lambda reader: reader.schema_version())

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the run's events with `seq > after` in order."""
        return await self._read(lambda reader: reader.read(run_id, after, limit))

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """Return the runs that match the query, in the order of their creation."""
        return await self._read(lambda reader: reader.runs(query or RunQuery()))

    async def run(self, run_id: str) -> RunInfo | None:
        """Return one run, or None."""
        return await self._read(lambda reader: reader.run(run_id))

    async def feed(self, after: str = START, *, limit: int = 512, partition: int = 0) -> FeedPage:
        """Return events of all runs in commit order; see `EventStore.feed`."""
        check_partition(partition, self.partitions)
        return await self._read(lambda reader: reader.feed(after, limit))

    async def mark(self, name: str) -> str | None:
        """Return the value of a mark, or None."""
        return await self._read(lambda reader: reader.mark(name))

    async def marks(self, prefix: str) -> dict[str, str]:
        """Return the marks whose names have this prefix, ordered by name."""
        return await self._read(lambda reader: reader.marks(prefix))

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """Return the tombstone of an erased run, or None."""
        return await self._read(lambda reader: reader.tombstone(run_id))

    async def erasures(self) -> int:
        """Return a number that every erasure raises; see `CountsErasures`."""
        return await self._read(lambda reader: reader.erasures())

    async def blob_users(self, digest: str, *, limit: int = 1) -> list[str]:
        """Return the ids of up to `limit` runs whose logs refer to this blob."""
        return await self._read(lambda reader: reader.blob_users(digest, limit))

    async def integrity_faults(self) -> list[str]:
        """Return the faults that SQLite finds in the file; it reads every page."""
        return await self._read(lambda reader: reader.integrity_faults())

    async def _read(self, operation: Callable[[Reader], T]) -> T:
        reader = self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._reading, operation, reader)

    def _check_open(self) -> Reader:
        if self._reader is None:
            raise StoreClosed(f"{self._name} is not open: call setup(), or `async with` its engine")
        return self._reader


def _thread(held: AsyncExitStack, name: str) -> ThreadPoolExecutor:
    thread = ThreadPoolExecutor(1, name)
    held.callback(thread.shutdown, wait=False)
    return thread


async def _opened(
    held: AsyncExitStack, thread: ThreadPoolExecutor, opening: Callable[[], Opened]
) -> Opened:
    """Open a connection in a thread; `held` closes it, even if this call is cancelled."""
    work = asyncio.get_running_loop().run_in_executor(thread, opening)
    held.push_async_callback(_close, thread, work)
    return await asyncio.shield(work)


async def _close(thread: ThreadPoolExecutor, work: asyncio.Future[Opened]) -> None:
    await asyncio.wait([work])
    if work.exception() is None:
        await _run(thread, work.result().close)


async def _run(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, call)
