"""The appends of one partition: what waits at the same time shares a transaction.

A batch is first written on what this process knows of its runs, in one statement. Only what that
statement has not taken (another process has written to the run meanwhile) is tried again under the
lock of the partition, on what is read then. A refusal never rests on what was merely remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lib._util.postgres import (
    Connection,
    Connections,
    array,
    cursor,
    psycopg,
    run,
    transaction,
)
from lib.errors import StoreCorrupt, StoreError
from lib.events.stores.postgres import layout, statements
from lib.events.stores.postgres.batch import BYTEA, ERASED, Append, Batch, Known
from lib.events.stores.postgres.errors import typed_errors
from lib.events.stores.postgres.place import Place
from lib.events.stores.postgres.rows import Row, run_of

_KEPT_RUNS: Final = 10_000
_TRIES: Final = 5
_MAX_APPENDS: Final = 512
_MAX_CHARS: Final = 8_000_000

_LOAD: Final = "SELECT {run_columns}, name FROM {lib_runs} WHERE name = ANY(%(names)s::bytea[])"
_LOCK: Final = "SELECT head FROM {lib_partitions} WHERE id = %(part)s::smallint FOR UPDATE"

_CONTENDED: Final = "others write to the same runs all the time"

Waiting = tuple[Append, asyncio.Future[Any]]
Grown = Callable[[int, int, int, Mapping[str, tuple[int, bool]]], None]


@dataclass(frozen=True, slots=True)
class _Written:
    """A batch that was written, as far as it could be.

    Attributes:
        names: of the runs that were written.
        base: the partition's position before it.
    """

    plan: Batch
    names: Collection[bytes] = ()
    base: int = 0


class PartitionWriter:
    """Appends to one partition, a batch at a time, on one connection while there is work."""

    def __init__(
        self, place: Place, connections: Connections, partition: int, partitions: int, grown: Grown
    ) -> None:
        """Begin without work.

        Args:
            place: where the store is.
            connections: where connections come from.
            partition: which one this is.
            partitions: of how many.
            grown: called after each transaction with the partition, the positions before and after
                it, and the runs that have grown, each with its head and whether by a signal.
        """
        self._place, self._connections = place, connections
        self._partition, self._partitions = partition, partitions
        self._grown = grown
        self._known: dict[str, Known] = {}
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, append: Append) -> asyncio.Future[Any]:
        """Return the outcome to come; cancelled before its transaction, it is not carried out."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((append, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="lib.events.append")
        return future

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._work_connected()
        except BaseException as error:  # a fault of ours: nobody is left waiting for ever
            self._fail(self._waiting, error)
            self._waiting = []
            raise
        finally:
            self._task = None

    async def _work_connected(self) -> None:
        """Carry out what waits, on one connection."""
        batch = self._waiting
        try:
            with typed_errors(self._place.name):
                async with self._connections.one() as connection:
                    while batch := self._next():
                        await self._carry_out(connection, batch)
        except Exception as error:  # noqa: BLE001 - told to whoever waits
            if batch is self._waiting:  # there was no connection for any of them
                self._waiting = []
            self._fail(batch, error)

    def _next(self) -> list[Waiting]:
        """Take what waits, not more than fits into a statement."""
        taken = size = 0
        for append, _ in self._waiting[:_MAX_APPENDS]:
            size += append.size
            if taken and size > _MAX_CHARS:
                break
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    def _fail(self, batch: Sequence[Waiting], error: BaseException) -> None:
        self._known.clear()
        for _, future in batch:
            if not future.done():
                future.set_exception(error)

    async def _carry_out(self, connection: Connection, batch: Sequence[Waiting]) -> None:
        """Carry out appends in their order, and tell each what has become of it."""
        left = await self._try([waiting for waiting in batch if not waiting[1].done()], connection)
        for _ in range(_TRIES):
            if not left:
                return
            left = await self._try_alone(left, connection)
        self._fail(left, StoreError(f"{self._place.name}: {_CONTENDED}", retryable=True))

    async def _try(self, batch: list[Waiting], connection: Connection) -> list[Waiting]:
        """Write what can be written on what is known; return what must be tried again."""
        if len(self._known) > _KEPT_RUNS:
            self._known.clear()
        try:
            written = await self._write(batch, connection, self._known)
        except psycopg.errors.TransactionRollback:  # a deadlock: nothing has been changed
            return batch
        return self._committed(batch, written)

    async def _try_alone(self, batch: list[Waiting], connection: Connection) -> list[Waiting]:
        """Write under the lock of the partition, on what is read there."""
        self._known.clear()
        try:
            async with transaction(connection) as using:
                await run(using, self._place.put(_LOCK), {"part": self._partition})
                if await using.fetchone() is None:
                    raise StoreCorrupt(f"{self._place.name} lacks partition {self._partition}")
                await layout.version_of(using, self._place)
                names = {append.run_id: append.name for append, _ in batch}
                known = await self._load(connection, names)
                written = await self._write(batch, connection, known)
        except psycopg.errors.TransactionRollback:
            return batch
        return self._committed(batch, written)

    async def _write(
        self, batch: Sequence[Waiting], connection: Connection, known: Mapping[str, Known]
    ) -> _Written:
        """Plan a batch and write it; refusals rest on what was read just now."""
        fresh: dict[str, Known] = {}
        appends = [append for append, _ in batch]
        while True:
            plan = Batch.of(appends, {**known, **fresh}, self._partition, self._partitions)
            doubtful = {k: v for k, v in plan.doubtful.items() if k not in fresh}
            if not doubtful:
                break
            fresh |= await self._load(connection, doubtful)
        if not plan.runs:
            return _Written(plan)
        statement, parameters = statements.write(self._place, plan)
        async with cursor(connection) as using:
            rows = await (await run(using, statement, parameters)).fetchall()
        names = {name for _, name in rows if name is not None}
        return _Written(plan, names, rows[0][0] if rows else 0)

    async def _load(self, connection: Connection, names: Mapping[str, bytes]) -> dict[str, Known]:
        async with cursor(connection) as using:
            parameters = {"names": array(BYTEA, list(names.values()))}
            await run(using, self._place.put(_LOAD), parameters)
            rows = {row[-1]: row for row in await using.fetchall()}
        return {run_id: _known(rows.get(name)) for run_id, name in names.items()}

    def _committed(self, batch: Sequence[Waiting], written: _Written) -> list[Waiting]:
        """Tell what has been committed; return what must be tried again."""
        plan, grown = written.plan, dict[str, tuple[int, bool]]()
        for run_id, change in plan.runs.items():
            if change.name in written.names:
                self._known[run_id] = change.info
                grown[run_id] = (change.info.head, change.signal)
            else:
                self._known.pop(run_id, None)
        left: list[Waiting] = []
        for waiting, outcome in zip(batch, plan.outcomes, strict=True):
            if waiting[0].run_id in plan.runs and waiting[0].name not in written.names:
                left.append(waiting)
            else:
                _settle(waiting[1], outcome)
        if grown:
            self._grown(self._partition, written.base, written.base + plan.size, grown)
        return left


def _known(row: Row | None) -> Known:
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
