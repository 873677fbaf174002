"""Where connections come from: a pool of our own, or the caller's."""

from __future__ import annotations

from typing import Any

from lib._util import postgres
from lib._util.postgres import Connection
from lib.vector.stores.postgres.config import NAME


class Connections(postgres.Connections):
    """A pool of connections to one database."""

    def __init__(self, dsn: str | None, pool: Any) -> None:
        """Connect to nothing yet.

        Args:
            dsn: of the database; None leaves it to the environment, as libpq does.
            pool: an open `AsyncConnectionPool` to be used instead, and left open.

        Raises:
            ValueError: the dsn cannot be read.
        """
        super().__init__(dsn, pool, name=NAME, configure=_configure)


async def _configure(connection: Connection) -> None:
    # A search is estimated as dear enough to be compiled, which takes longer than to run it.
    await connection.execute("SET jit = off")
