"""Appends: those that wait at the same time share a transaction.

One or two transactions of this process are under way at a time, each with all that waits for the
partitions that the other one does not write to. The slower the server, the larger the batches.

A batch is first planned on the cached states of its runs and written in one statement. Appends that
the statement did not write (another process has written to their runs meanwhile) are tried again
under the lock of their partitions, on states that are read there. Cached state never refuses an
append.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lib._util.postgres import (
    Connection,
    Connections,
    array,
    cursor,
    integers,
    psycopg,
    run,
    transaction,
)
from lib.errors import StoreCorrupt, StoreError
from lib.events.stores.postgres import layout
from lib.events.stores.postgres.batch import BYTEA, ERASED, Append, Batch, StoredRun, write
from lib.events.stores.postgres.rows import Row, run_of
from lib.events.stores.postgres.schema import Place, typed_errors

_TRIES: Final = 5
_TURNS: Final = 8
_LANES: Final = 2

_LOAD: Final = "SELECT {run_columns}, name FROM {lib_runs} WHERE name = ANY(%(names)s::bytea[])"
_LOCK: Final = """
    SELECT id FROM {lib_partitions} WHERE id = ANY(%(parts)s::bigint[]) ORDER BY id FOR UPDATE
"""

_CONTENDED: Final = "others write to the same runs all the time"

Waiting = tuple[Append, asyncio.Future[Any]]
Appended = Callable[[int, int, int, Mapping[str, tuple[int, bool]]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of what a store writes with one statement, and of its caches.

    Attributes:
        appends: of one statement.
        chars: of the payloads of one statement, unless a single append has more.
        runs: whose states are cached, for appends and for wake-ups each.
        partitions: how many runs have their partition cached.
    """

    appends: int = 512
    chars: int = 8_000_000
    runs: int = 10_000
    partitions: int = 100_000


@dataclass(frozen=True, slots=True)
class _Written:
    """A batch that was written, as far as it could be.

    Attributes:
        names: of the runs that were written.
        bases: of each partition its position before the batch.
    """

    plan: Batch
    names: Collection[bytes]
    bases: Mapping[int, int]


class Writer:
    """Appends to one store, a batch at a time on each of its lanes."""

    def __init__(
        self,
        place: Place,
        connections: Connections,
        partitions: int,
        appended: Appended,
        limits: Limits,
    ) -> None:
        """Begin without work.

        Args:
            place: where the store is.
            connections: where connections come from; a lane holds one while it has work.
            partitions: how many there are.
            appended: called after each transaction for each of its partitions, with the partition,
                the positions before and after it, and the runs appended to, each with its
                head and whether by a signal.
            limits: of a statement, and of the cache.
        """
        self._limits = limits
        self._place, self._connections = place, connections
        self._partitions, self._appended = partitions, appended
        self._cached: dict[str, StoredRun] = {}
        self._waiting: dict[int, list[Waiting]] = {}
        self._busy: set[int] = set()
        self._lanes: set[asyncio.Task[None]] = set()

    def put(self, append: Append) -> asyncio.Future[Any]:
        """Return the outcome to come; cancelled before its transaction, it is not carried out."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(append.partition, []).append((append, future))
        if append.partition not in self._busy and len(self._lanes) < _LANES:
            self._lanes.add(asyncio.create_task(self._work(), name="lib.events.append"))
        return future

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._lanes:
            await asyncio.wait(self._lanes)

    def _free(self) -> list[int]:
        """Return the partitions with waiting appends that no lane writes to."""
        return [partition for partition in self._waiting if partition not in self._busy]

    async def _work(self) -> None:
        lane = asyncio.current_task()
        try:
            while self._free():
                await self._connect_and_work()
        finally:  # at once: what waits from now on needs another lane
            self._lanes = {other for other in self._lanes if other is not lane}

    async def _connect_and_work(self) -> None:
        try:
            with typed_errors(self._place.name, writes=False):
                async with self._connections.one() as connection:
                    while (batch := self._next()) and await self._done(batch, connection):
                        if len(batch) > 1:
                            await self._gather(len(batch))
        except Exception as error:  # noqa: BLE001 - the callers get it: there is no connection
            for partition in self._free():
                self._fail(self._waiting.pop(partition), error)

    async def _done(self, batch: Sequence[Waiting], connection: Connection) -> bool:
        """Carry out a batch; return whether the connection is good for another."""
        partitions = {append.partition for append, _ in batch}
        self._busy |= partitions
        try:
            with typed_errors(self._place.name):
                async with self._connections.answered():
                    await self._carry_out(batch, connection)
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._fail(batch, error)
            return False
        finally:
            self._busy -= partitions
        return True

    async def _gather(self, expected: int) -> None:
        """Let the callers of the last batch run: their next appends then share a batch."""
        loop = asyncio.get_running_loop()
        for _ in range(_TURNS):
            if sum(len(self._waiting[partition]) for partition in self._free()) >= expected:
                return
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn

    def _next(self) -> list[Waiting]:
        """Take appends of partitions that no lane writes to, as many as fit into a statement."""
        batch: list[Waiting] = []
        limits, size = self._limits, 0
        for partition in self._free():
            waiting = self._waiting.pop(partition)
            for place, (append, _) in enumerate(waiting):
                size += append.size
                if batch and (size > limits.chars or len(batch) >= limits.appends):
                    self._waiting[partition] = waiting[place:]
                    return batch
                batch.append(waiting[place])
        return batch

    def _fail(self, batch: Sequence[Waiting], error: BaseException) -> None:
        self._cached.clear()
        for _, future in batch:
            if not future.done():
                future.set_exception(error)

    async def _carry_out(self, batch: Sequence[Waiting], connection: Connection) -> None:
        """Carry out appends in their order, and settle the future of each."""
        left = await self._try([waiting for waiting in batch if not waiting[1].done()], connection)
        for _ in range(_TRIES):
            if not left:
                return
            left = await self._try_alone(left, connection)
        self._fail(left, StoreError(f"{self._place.name}: {_CONTENDED}", retryable=True))

    async def _try(self, batch: list[Waiting], connection: Connection) -> list[Waiting]:
        """Write appends on cached states; return those that must be tried again."""
        if len(self._cached) > self._limits.runs:
            self._cached.clear()
        try:
            written = await self._write(batch, connection, self._cached)
        except psycopg.OperationalError as error:
            if not _rolled_back(error):
                raise
            return batch
        return self._committed(batch, written)

    async def _try_alone(self, batch: list[Waiting], connection: Connection) -> list[Waiting]:
        """Write appends under the lock of their partitions, on states that are read there."""
        self._cached.clear()
        partitions = {append.partition for append, _ in batch}
        names = {append.run_id: append.name for append, _ in batch}
        try:
            async with transaction(connection) as using:
                await run(using, self._place.put(_LOCK), {"parts": integers(list(partitions))})
                if len(await using.fetchall()) < len(partitions):
                    raise StoreCorrupt(f"{self._place.name} lacks one of partitions {partitions}")
                await layout.version_of(using, self._place)
                states = await self._load(connection, names)
                written = await self._write(batch, connection, states)
        except psycopg.OperationalError as error:
            if not _rolled_back(error):
                raise
            return batch
        return self._committed(batch, written)

    async def _write(
        self, batch: Sequence[Waiting], connection: Connection, states: dict[str, StoredRun]
    ) -> _Written:
        """Plan a batch and write it; states are read again before they refuse an append."""
        fresh: dict[str, StoredRun] = {}
        newest = ChainMap(fresh, states)
        appends = [append for append, _ in batch]
        while True:
            plan = Batch.of(appends, newest, self._partitions)
            unverified = {k: v for k, v in plan.unverified.items() if k not in fresh}
            if not unverified:
                break
            fresh |= await self._load(connection, unverified)
        if not plan.runs:
            return _Written(plan, (), {})
        statement, parameters = write(self._place, plan)
        async with cursor(connection) as using:
            rows = await (await run(using, statement, parameters)).fetchall()
        names = {name for _, _, name in rows if name is not None}
        return _Written(plan, names, {partition: base for partition, base, _ in rows})

    async def _load(
        self, connection: Connection, names: Mapping[str, bytes]
    ) -> dict[str, StoredRun]:
        async with cursor(connection) as using:
            parameters = {"names": array(BYTEA, list(names.values()))}
            await run(using, self._place.fixed(_LOAD), parameters)
            rows = {row[-1]: row for row in await using.fetchall()}
        return {run_id: _state(rows.get(name)) for run_id, name in names.items()}

    def _committed(self, batch: Sequence[Waiting], written: _Written) -> list[Waiting]:
        """Settle the appends that are committed or refused; return those to try again."""
        plan = written.plan
        appended: dict[int, dict[str, tuple[int, bool]]] = {
            partition: {} for partition in written.bases
        }
        for run_id, change in plan.runs.items():
            if change.name in written.names:
                self._cached[run_id] = change.info
                appended[change.partition][run_id] = (change.info.head, change.signal)
            else:
                self._cached.pop(run_id, None)
        left: list[Waiting] = []
        for waiting, outcome in zip(batch, plan.outcomes, strict=True):
            if waiting[0].run_id in plan.runs and waiting[0].name not in written.names:
                left.append(waiting)
            else:
                _settle(waiting[1], outcome)
        for partition, base in written.bases.items():
            self._appended(partition, base, base + plan.sizes[partition], appended[partition])
        return left


def _rolled_back(error: psycopg.Error) -> bool:
    """Return True if the server rolled the transaction back, as after a deadlock."""
    return (error.sqlstate or "").startswith("40")


def _state(row: Row | None) -> StoredRun:
    if row is None:
        return None
    return ERASED if row[0] is None else run_of(row)


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
