"""The database and schema of a store, for statements and for messages."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from lib._util.postgres import Fixed, failure, psycopg, psycopg_pool, settings, sql
from lib.errors import StoreCorrupt, StoreError, StoreReadOnly
from lib.events.stores.postgres.rows import RUN_COLUMNS

_SCHEMA: Final = re.compile("[a-z_][a-z0-9_]{0,62}")
_PORT: Final = "5432"
_TABLES: Final = (
    "lib_meta",
    "lib_partitions",
    "lib_runs",
    "lib_events",
    "lib_blob_uses",
    "lib_marks",
)

_UNWRITABLE: Final = ("25006", "42501")  # read-only transactions, missing rights
_DAMAGED: Final = ("XX001", "XX002", "22P05")
_LOST: Final = ("08", "57P")
_UNKNOWN: Final = "; what was being written may or may not have been stored"


@dataclass(frozen=True, slots=True)
class Place:
    """One schema of one database.

    Attributes:
        name: for messages; no user and no password.
    """

    schema: str
    name: str

    @property
    def quoted(self) -> str:
        """The schema as SQL."""
        return f'"{self.schema}"'

    def put(self, statement: str) -> sql.SQL:
        """Return the statement with the names of the tables and the columns of a run in it."""
        return _put(self.schema, statement)

    def fixed(self, statement: str) -> Fixed:
        """Return a statement as `put` does, to be prepared: its best plan is always the same."""
        return _fixed(self.schema, statement)

    def schema_made(self) -> sql.SQL:
        """Return a statement that makes the schema unless it is there, which needs no right."""
        return _made(self.schema)


def place_of(url: str, schema: str) -> Place:
    """Return where a store is.

    Raises:
        ValueError: the URL cannot be read, or the schema has not a plain name.
    """
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(
            "a schema is named by up to 63 small letters, digits and _, "
            f"and begins with no digit: {schema!r} is not"
        )
    options = settings(url)
    port = str(options.get("port", _PORT))
    host = f"{options.get('host', '')}{'' if port == _PORT else f':{port}'}"
    database = f"{host}/{options.get('dbname', '')}"
    return Place(schema, f"PostgresEventStore({database!r}, schema={schema!r})")


@lru_cache(256)
def _put(schema: str, statement: str) -> sql.SQL:
    text = statement.replace("{run_columns}", RUN_COLUMNS)
    for table in _TABLES:
        text = text.replace(f"{{{table}}}", f'"{schema}".{table}')
    return sql.SQL(text)  # pyright: ignore[reportArgumentType] - the schema has been checked


@lru_cache(256)
def _fixed(schema: str, statement: str) -> Fixed:
    return Fixed(_put(schema, statement).as_string())  # pyright: ignore[reportArgumentType] - as above


@lru_cache(16)
def _made(schema: str) -> sql.SQL:
    return sql.SQL(
        f"DO $$ BEGIN IF to_regnamespace('\"{schema}\"') IS NULL "  # pyright: ignore[reportArgumentType] - the name was checked
        f'THEN CREATE SCHEMA "{schema}"; END IF; END $$'
    )


@contextmanager
def typed_errors(store: str, *, writes: bool = True) -> Generator[None]:
    """Raise what the driver raises as a `StoreError` of the right type, without its message.

    A connection that was lost leaves open whether a write under way has been committed.

    Args:
        store: for messages.
        writes: False for reads, after which the log need not be checked.
    """
    try:
        yield
    except psycopg.Error as error:
        failed = failure(store, error)
        state = error.sqlstate or ""
        message = failed.message
        if state.startswith(_LOST):
            message = f"{store} closed the connection: {type(error).__name__}, SQLSTATE {state}"
        kind = _kind(state)
        sent = writes and not isinstance(error, psycopg_pool.PoolTimeout)
        if sent and failed.retryable and (not state or state.startswith(_LOST)):
            message += _UNKNOWN
        raise kind(message, retryable=failed.retryable) from error


def _kind(state: str) -> type[StoreError]:
    if state in _UNWRITABLE:
        return StoreReadOnly
    if state in _DAMAGED:
        return StoreCorrupt
    return StoreError
