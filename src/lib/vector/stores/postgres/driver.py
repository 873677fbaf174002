"""The driver, and what this store adds to it: typed errors, vectors in the binary format."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lib._util.postgres import (
    Connection,
    Cursor,
    Wire,
    cursor,
    failure,
    psycopg,
    psycopg_pool,
    run,
    sql,
)
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

_LATEST_STATE: Final = sql.SQL("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")


@contextmanager
def typed_errors(place: str) -> Generator[None]:
    """Raise what the driver raises as `StoreUnavailable`.

    The driver's own message is left to the traceback: it may name hosts, users and values.
    """
    try:
        yield
    except psycopg.Error as error:
        failed = failure(place, error)
        raise StoreUnavailable(failed.message, retryable=failed.retryable) from error
    except UnicodeEncodeError:  # whose own message has the text in it
        raise StoreUnavailable(
            f"a connection of the pool given for {place} cannot say every text: "
            "let its client_encoding be UTF8"
        ) from None


def vector(row: NDArray[np.float32]) -> Wire:
    """Return a parameter of pgvector's type `vector`.

    Source: vector_recv in https://github.com/pgvector/pgvector/blob/v0.8.1/src/vector.c
    """
    return Wire(struct.pack(">hh", len(row), 0) + row.astype(">f4").tobytes())


def vectors(matrix: NDArray[np.float32], element_type: int) -> Wire:
    """Return a parameter of type `vector[]`.

    Args:
        matrix: n rows of d floats, n being at least 1.
        element_type: the number of the type `vector` in this database.

    Source: array_recv in PostgreSQL's src/backend/utils/adt/arrayfuncs.c
    """
    count, dimension = matrix.shape
    element = [("bytes", ">i4"), ("dimension", ">i2"), ("zero", ">i2"), ("v", ">f4", (dimension,))]
    rows = np.zeros(count, np.dtype(element))
    rows["bytes"], rows["dimension"], rows["v"] = 4 + 4 * dimension, dimension, matrix
    return Wire(struct.pack(">iiIii", 1, 0, element_type, count, 1) + rows.tobytes())


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncGenerator[Cursor]:
    """Begin a transaction that sees what others commit, whatever connections do by default.

    One that saw the state of its first statement only could not wait for a writer of the same
    rows: it would fail.
    """
    async with connection.transaction(), cursor(connection) as using:
        await run(using, _LATEST_STATE)
        yield using
