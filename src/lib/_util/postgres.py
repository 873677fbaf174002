"""psycopg for every store in PostgreSQL: connections, errors in plain words, statements.

A pooler in transaction mode may stand between: nothing here rests on the state of a session.
Only `Fixed` statements are prepared, and `run` does without where a prepared one was lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import selectors
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import psycopg
import psycopg_pool
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.rows import tuple_row

__all__ = [
    "Connection",
    "Connections",
    "Cursor",
    "Failure",
    "Fixed",
    "Wire",
    "array",
    "cursor",
    "failure",
    "integers",
    "psycopg",
    "psycopg_pool",
    "run",
    "settings",
    "sql",
    "texts",
    "transaction",
]

Connection: TypeAlias = "psycopg.AsyncConnection[Any]"
Cursor: TypeAlias = "psycopg.AsyncCursor[tuple[Any, ...]]"

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 10
# A server that went away without a word is noticed within a minute, not after two hours.
_KEEP_ALIVE: Final = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

# Errors that pass by themselves or by trying again: lost connections, deadlocks, servers that are
# full or stopping.
_PASSING: Final = ("08", "40", "53", "55P03", "57")
# Answers of PostgreSQL where a prepared statement is not the one that was meant, before it has
# executed anything: it is not there, its name is taken, or its result has another type by now.
_NOT_PREPARED: Final = ("26000", "42P05", "0A000")
_REFUSAL: Final = "check user, password and database of the dsn"
_TOO_MANY: Final = "it has as many as it allows"
_PASSING_REFUSALS: Final = {
    "starting up": "it is starting",
    "shutting down": "it is shutting down",
    "too many": _TOO_MANY,
    "connection slots": _TOO_MANY,
}


class Overdue(psycopg.OperationalError):
    """A statement that was not answered in time, and was cancelled."""


# -- errors --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of the driver, in words that name no user, password or value.

    Attributes:
        message: what happened and what can be done about it.
        retryable: whether it may pass by itself.
    """

    message: str
    retryable: bool


def failure(place: str, error: psycopg.Error) -> Failure:
    """Return the error in our words; the driver's own message is left to the traceback."""
    if isinstance(error, psycopg_pool.PoolTimeout):
        return Failure(
            f"no connection for {place} became free in time: the server does not answer, "
            "or the pool is too small for so many calls at once",
            retryable=True,
        )
    if isinstance(error, psycopg_pool.PoolClosed):
        return Failure(f"the pool given for {place} is not open: open it first", retryable=False)
    if isinstance(error, Overdue):
        return Failure(
            f"{place} gave no answer in time: another session holds a lock, or the server hangs",
            retryable=True,
        )
    if error.sqlstate is not None:
        code = f"{type(error).__name__}, SQLSTATE {error.sqlstate}"
        return Failure(
            f"{place} failed and has changed nothing: {code}{_advice(error)}",
            retryable=error.sqlstate.startswith(_PASSING),
        )
    return _unreached(place, error)


def _unreached(place: str, error: psycopg.Error) -> Failure:
    text = str(error)
    if "FATAL" in text:  # the server was reached, and has refused
        passing = next((reason for reason in _PASSING_REFUSALS if reason in text), None)
        reason = _PASSING_REFUSALS[passing] if passing else _REFUSAL
        return Failure(
            f"the server refused a connection for {place}: {reason}", retryable=passing is not None
        )
    if isinstance(error, psycopg.OperationalError):
        return Failure(
            f"{place} is unreachable, or its connection was lost: is the server up, "
            "and does the dsn name its host and port?",
            retryable=True,
        )
    return Failure(f"{place} failed: {type(error).__name__}", retryable=False)


def _advice(error: psycopg.Error) -> str:
    match error:
        case psycopg.errors.InsufficientPrivilege():
            return ": this role lacks the right to do so"
        case psycopg.errors.UndefinedTable():
            return ": the table is gone, open the store anew"
        case psycopg.errors.ReadOnlySqlTransaction():
            return ": this server, a standby perhaps, only reads"
        case psycopg.errors.QueryCanceled():
            return ": it took longer than the server's statement_timeout"
        case _:
            return ""


# -- connections ---------------------------------------------------------------------------


def settings(dsn: str) -> dict[str, Any]:
    """Return the parts of a dsn.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        raise ValueError(
            "dsn is a URL (postgresql://...) or key=value pairs, as libpq takes them"
        ) from None


class Connections:
    """A pool of connections to one database: our own, or the caller's."""

    def __init__(
        self,
        dsn: str | None,
        pool: Any = None,
        *,
        name: str,
        max_size: int = 10,
        timeout_s: float = 30.0,
        configure: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            dsn: of the database; None leaves it to the environment, as libpq does.
            pool: an open `AsyncConnectionPool` to be used instead, and left open.
            name: of the pool, in its log messages.
            max_size: of our own pool.
            timeout_s: how long a call waits for a connection of our own pool, and `answered` for
                what is done with it.
            configure: prepares each new connection of our own pool.

        Raises:
            ValueError: the dsn cannot be read.
        """
        self._dsn, self._caller_pool = dsn or "", pool
        self._options = _options(self._dsn)
        self._own: Any = None
        self._name, self._max_size = name, max_size
        self._timeout_s, self._configure = timeout_s, configure

    @property
    def _pool(self) -> Any:
        return self._own if self._caller_pool is None else self._caller_pool

    @asynccontextmanager
    async def first(self) -> AsyncGenerator[Connection]:
        """Yield a connection before there is a pool, or fail at once with the reason."""
        if self._caller_pool is not None:
            async with self._caller_pool.connection() as connection:
                yield connection
            return
        connection = await psycopg.AsyncConnection.connect(self._dsn, **self._options)
        async with connection:
            yield connection

    async def open(self) -> None:
        """Open the pool, unless it is the caller's."""
        if self._caller_pool is None:
            self._own = psycopg_pool.AsyncConnectionPool(
                self._dsn,
                kwargs=self._options,
                min_size=1,
                max_size=self._max_size,
                timeout=self._timeout_s,
                open=False,
                configure=self._begin,
                name=self._name,
            )
            await self._own.open()

    async def _begin(self, connection: Connection) -> None:
        _name_apart(connection)
        if self._configure is not None:
            await self._configure(connection)

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Connection]:
        """Yield a connection; the block is committed, or rolled back after an error.

        Those that were lost while they lay in the pool are closed, and so replaced, at once: the
        pool's own check waits a second and more after each of them.
        """
        while True:
            async with self._pool.connection() as connection:
                if await _is_alive(connection):
                    yield connection
                    return

    @asynccontextmanager
    async def answered(self) -> AsyncGenerator[None]:
        """Cancel the block after `timeout_s`; up to 10 seconds later if the server hangs.

        Raises:
            Overdue: it was cancelled; its writes may or may not have been stored.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError as error:
            raise Overdue from error

    @asynccontextmanager
    async def asking(self) -> AsyncGenerator[Cursor]:
        """Yield a cursor whose statements have a time limit; see `one` and `answered`."""
        async with self.one() as connection, self.answered(), cursor(connection) as using:
            yield using

    async def close(self) -> None:
        """Close the pool, unless it is the caller's."""
        if self._own is not None:
            await self._own.close()


def _options(dsn: str) -> dict[str, Any]:
    own = settings(dsn)
    options: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}
    if "connect_timeout" not in own and "PGCONNECT_TIMEOUT" not in os.environ:
        options["connect_timeout"] = _CONNECT_TIMEOUT_S
    return options | {key: value for key, value in _KEEP_ALIVE.items() if key not in own}


def _name_apart(connection: Connection) -> None:
    """Let prepared statements of this connection have names like no other's, or prepare none.

    Workaround: psycopg counts them from 0 for each connection. Behind a pooler, the statement of
    that number may be another process's, on the tables of another store, and would be executed.
    """
    manager: Any = getattr(connection, "_prepared", None)
    if isinstance(getattr(manager, "_prepared_idx", None), int):
        manager._prepared_idx = secrets.randbits(60)  # noqa: SLF001 - see above
    else:  # a release of psycopg that names them in another way
        connection.prepare_threshold = None


async def _is_alive(connection: Connection) -> bool:
    """Return True if the server still listens; close the connection if it does not.

    On an idle one there is nothing to read, unless the server has closed it: only then it is
    worth asking.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        if not selector.select(0):
            return True
    try:
        await psycopg_pool.AsyncConnectionPool.check_connection(connection)
    except psycopg.OperationalError:
        await connection.close()
        return False
    return True


# -- statements ----------------------------------------------------------------------------


class Wire(bytes):
    """A parameter in the binary format of the type that the statement casts it to."""

    __slots__ = ()


class _WireDumper(Dumper):
    format = Format.BINARY  # and no type: PostgreSQL takes it from the cast

    def dump(self, obj: Wire) -> bytes:
        return obj


def array(element_type: int, items: Sequence[bytes | None]) -> Wire:
    """Return a parameter of an array type.

    Args:
        element_type: the number of the type of its elements.
        items: each in the binary format of that type, or None for NULL.

    Source: array_recv in PostgreSQL's src/backend/utils/adt/arrayfuncs.c
    """
    if not items:
        return Wire(struct.pack(">iii", 0, 0, element_type))
    parts = [struct.pack(">iiIii", 1, int(None in items), element_type, len(items), 1)]
    for item in items:
        if item is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts += (struct.pack(">i", len(item)), item)
    return Wire(b"".join(parts))


def texts(items: Sequence[str | None]) -> Wire:
    """Return a parameter of type `text[]`."""
    return array(25, [None if item is None else item.encode() for item in items])


def integers(items: Sequence[int | None]) -> Wire:
    """Return a parameter of type `bigint[]`."""
    return array(20, [None if item is None else struct.pack(">q", item) for item in items])


def cursor(connection: Connection) -> Cursor:
    """Return a cursor that is ours, whatever row factory or format the connection has."""
    made = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    made.format = Format.BINARY
    made.adapters.register_dumper(Wire, _WireDumper)
    return made


@asynccontextmanager
async def transaction(connection: Connection, *, read_only: bool = False) -> AsyncGenerator[Cursor]:
    """Begin a transaction that sees what others commit, whatever connections do by default."""
    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    await connection.set_read_only(read_only)
    async with connection.transaction(), cursor(connection) as using:
        yield using


class Fixed(sql.SQL):
    """A statement whose best plan is always the same: parsed and planned once a connection."""


async def run(
    cursor: Cursor, statement: sql.Composable, parameters: Mapping[str, Any] | None = None
) -> Cursor:
    """Execute a statement, planned for its very parameters unless it is `Fixed`.

    A plan that is kept for later parameters would have to suit them all, which no plan does where
    a filter may let through ten rows or all. Behind a pooler that gives each transaction another
    session, such as PgBouncer, a prepared statement may be missing. Then nothing has been executed,
    and from then on the connection does without, as in a transaction, which such an error ends.
    """
    connection = cursor.connection
    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if idle and isinstance(statement, Fixed):
        try:
            return await cursor.execute(sql.Composed([statement]), parameters or {}, prepare=True)
        except psycopg.Error as error:
            if error.sqlstate not in _NOT_PREPARED:
                raise
            connection.prepare_threshold = None
            _log.info("prepared statements do not last (SQLSTATE %s)", error.sqlstate)
    return await cursor.execute(sql.Composed([statement]), parameters or {}, prepare=False)
