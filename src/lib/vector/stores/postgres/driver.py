"""The driver, and what this store adds to it: typed errors, vectors in the binary format."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
import psycopg
import psycopg_pool
from numpy.typing import NDArray
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.rows import tuple_row

from lib.errors import StoreUnavailable

__all__ = [
    "Connection",
    "Cursor",
    "Wire",
    "cursor",
    "psycopg",
    "psycopg_pool",
    "run",
    "sql",
    "transaction",
    "typed_errors",
    "vector",
    "vectors",
]

Connection: TypeAlias = "psycopg.AsyncConnection[Any]"
Cursor: TypeAlias = "psycopg.AsyncCursor[tuple[Any, ...]]"

# What passes by itself or by trying again: lost connections, deadlocks, full or stopping servers.
_PASSING: Final = ("08", "40", "53", "55P03", "57")
_PASSING_REFUSALS: Final = ("starting up", "shutting down", "too many", "connection slots")
_LATEST_STATE: Final = sql.SQL("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")


@contextmanager
def typed_errors(place: str) -> Generator[None]:
    """Raise what the driver raises as `StoreUnavailable`.

    The driver's own message is left to the traceback: it may name hosts, users and values.
    """
    try:
        yield
    except psycopg_pool.PoolTimeout as error:
        raise StoreUnavailable(
            f"no connection for {place} became free in time: the server does not answer, "
            "or the pool is too small for so many calls at once",
            retryable=True,
        ) from error
    except psycopg_pool.PoolClosed as error:
        raise StoreUnavailable(f"the pool given for {place} is not open: open it first") from error
    except psycopg.Error as error:
        raise _unavailable(place, error) from error
    except UnicodeEncodeError:  # whose own message has the text in it
        raise StoreUnavailable(
            f"a connection of the pool given for {place} cannot say every text: "
            "let its client_encoding be UTF8"
        ) from None


def _unavailable(place: str, error: psycopg.Error) -> StoreUnavailable:
    if error.sqlstate is not None:
        code = f"{type(error).__name__}, SQLSTATE {error.sqlstate}"
        return StoreUnavailable(
            f"{place} failed and has changed nothing: {code}{_advice(error)}",
            retryable=error.sqlstate.startswith(_PASSING),
        )
    said = str(error)
    if "FATAL" in said:  # the server was reached, and has refused
        passing = any(reason in said for reason in _PASSING_REFUSALS)
        return StoreUnavailable(
            f"the server refused a connection for {place}: "
            "check user, password and database of the dsn",
            retryable=passing,
        )
    if isinstance(error, psycopg.OperationalError):
        return StoreUnavailable(
            f"{place} is unreachable, or its connection was lost: is the server up, "
            "and does the dsn name its host and port?",
            retryable=True,
        )
    return StoreUnavailable(f"{place} failed: {type(error).__name__}")


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


class Wire(bytes):
    """A parameter in the binary format of the type that the statement casts it to."""

    __slots__ = ()


class _WireDumper(Dumper):
    format = Format.BINARY  # and no type: PostgreSQL takes it from the cast

    def dump(self, obj: Wire) -> bytes:
        return obj


def vector(row: NDArray[np.float32]) -> Wire:
    """Return a parameter of pgvector's type `vector`.

    Source: vector_recv in https://github.com/pgvector/pgvector/blob/v0.8.1/src/vector.c
    """
    return Wire(struct.pack(">hh", len(row), 0) + row.astype(">f4").tobytes())


def vectors(matrix: NDArray[np.float32], element_type: int) -> Wire:
    """Return a parameter of type `vector[]`.

    Args:
        matrix: n rows of d floats, n being at least 1.
        element_type: the number that this database has given to the type `vector`.

    Source: array_recv in PostgreSQL's src/backend/utils/adt/arrayfuncs.c
    """
    count, dimension = matrix.shape
    element = [("bytes", ">i4"), ("dimension", ">i2"), ("zero", ">i2"), ("v", ">f4", (dimension,))]
    rows = np.zeros(count, np.dtype(element))
    rows["bytes"], rows["dimension"], rows["v"] = 4 + 4 * dimension, dimension, matrix
    return Wire(struct.pack(">iiIii", 1, 0, element_type, count, 1) + rows.tobytes())


def cursor(connection: Connection) -> Cursor:
    """Return a cursor that is ours, whatever row factory or format the connection has."""
    made = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    made.format = Format.BINARY
    made.adapters.register_dumper(Wire, _WireDumper)
    return made


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncGenerator[Cursor]:
    """Begin a transaction that sees what others commit, whatever connections do by default.

    One that saw the state of its first statement only could not wait for a writer of the same
    rows: it would fail.
    """
    async with connection.transaction(), cursor(connection) as using:
        await run(using, _LATEST_STATE)
        yield using


async def run(
    cursor: Cursor, statement: sql.Composable, parameters: Mapping[str, Any] | None = None
) -> Cursor:
    """Execute a statement, planned for its very parameters.

    A plan that is kept for later parameters would have to suit them all, which no plan does where
    a filter may let through ten rows or all; and poolers such as PgBouncer lose prepared ones.
    """
    return await cursor.execute(sql.Composed([statement]), parameters or {}, prepare=False)
