"""Where connections come from: a pool of our own, or the caller's."""

from __future__ import annotations

import os
import selectors
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from psycopg.conninfo import conninfo_to_dict

from lib.vector.stores.postgres.driver import Connection, psycopg, psycopg_pool
from lib.vector.stores.postgres.table import NAME

_CONNECT_TIMEOUT_S: Final = 10
_MAX_CONNECTIONS: Final = 10


class Connections:
    """A pool of connections to one database."""

    def __init__(self, dsn: str | None, pool: Any) -> None:
        """Connect to nothing yet.

        Args:
            dsn: of the database; None leaves it to the environment, as libpq does.
            pool: an open `AsyncConnectionPool` to be used instead, and left open.

        Raises:
            ValueError: the dsn cannot be read.
        """
        self._dsn, self._given = dsn or "", pool
        self._options = _options(self._dsn)
        self._own: Any = None

    @property
    def _pool(self) -> Any:
        return self._own if self._given is None else self._given

    @asynccontextmanager
    async def first(self) -> AsyncGenerator[Connection]:
        """Lend a connection before there is a pool: it fails at once, and says why."""
        if self._given is not None:
            async with self._given.connection() as connection:
                yield connection
            return
        connection = await psycopg.AsyncConnection.connect(self._dsn, **self._options)
        async with connection:
            yield connection

    async def open(self) -> None:
        """Open the pool, unless it is the caller's."""
        if self._given is None:
            self._own = psycopg_pool.AsyncConnectionPool(
                self._dsn,
                kwargs=self._options,
                min_size=1,
                max_size=_MAX_CONNECTIONS,
                open=False,
                configure=_configure,
                name=NAME,
            )
            await self._own.open()

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Connection]:
        """Lend a connection; what was done with it is committed, or undone after an error.

        Those that were lost while they lay in the pool are closed, and so replaced, at once: the
        pool's own check waits a second and more after each of them.
        """
        while True:
            async with self._pool.connection() as connection:
                if await _is_alive(connection):
                    yield connection
                    return

    async def close(self) -> None:
        """Close the pool, unless it is the caller's."""
        if self._own is not None:
            await self._own.close()


def _options(dsn: str) -> dict[str, Any]:
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ValueError(
            "dsn is a URL (postgresql://...) or key=value pairs, as libpq takes them"
        ) from None
    options: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}
    if "connect_timeout" not in given and "PGCONNECT_TIMEOUT" not in os.environ:
        options["connect_timeout"] = _CONNECT_TIMEOUT_S
    return options


async def _configure(connection: Connection) -> None:
    # A search is estimated as dear enough to be compiled, which takes longer than to run it.
    await connection.execute("SET jit = off")


async def _is_alive(connection: Connection) -> bool:
    """Return whether the server still listens; if not, the connection is closed.

    On an idle one there is nothing to read, unless the server has said goodbye: only then it is
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
