"""The tables of a store, and opening them: made when missing, checked when there.

Statements name the tables `[table]`, `[table_fts]` and so on; `named` puts the real name in.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from lib._util import sqlite
from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.vector.records import Layout, Metric

NAME: Final = "SQLiteVectorStore"
TOKENIZER: Final = "porter unicode61 remove_diacritics 2"

_LAYOUT: Final = 1
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}").fullmatch

# The vector comes last, so that a filter does not read through it to get at the metadata.
_TABLES: Final = (
    """CREATE TABLE [table] (
        rid INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        id TEXT NOT NULL,
        meta TEXT NOT NULL,
        text TEXT NOT NULL,
        vector BLOB NOT NULL,
        UNIQUE (namespace, id)
    )""",
    "CREATE TABLE [table_layout] (key TEXT PRIMARY KEY, value NOT NULL)",
)
# External content: FTS5 keeps the index, the table keeps the text. An index entry is taken out
# with the text that it was made of, which is why a row is updated and never replaced: REPLACE
# deletes without the trigger, and what is left behind damages the index.
# Source: https://www.sqlite.org/fts5.html, section 4.4.3.
_FULL_TEXT: Final = (
    f"""CREATE VIRTUAL TABLE [table_fts] USING fts5(
        text, content='<table>', content_rowid='rid', tokenize='{TOKENIZER}'
    )""",
    """CREATE TRIGGER [table_fts_insert] AFTER INSERT ON [table] BEGIN
        INSERT INTO [table_fts](rowid, text) VALUES (new.rid, new.text);
    END""",
    """CREATE TRIGGER [table_fts_delete] AFTER DELETE ON [table] BEGIN
        INSERT INTO [table_fts]([table_fts], rowid, text) VALUES ('delete', old.rid, old.text);
    END""",
    """CREATE TRIGGER [table_fts_update] AFTER UPDATE OF text ON [table]
    WHEN old.text <> new.text BEGIN
        INSERT INTO [table_fts]([table_fts], rowid, text) VALUES ('delete', old.rid, old.text);
        INSERT INTO [table_fts](rowid, text) VALUES (new.rid, new.text);
    END""",
    "INSERT INTO [table_fts]([table_fts]) VALUES ('rebuild')",
)
# The first tokenizes a query as the documents were tokenized; the others list terms.
_QUERY_TABLES: Final = (
    f"CREATE VIRTUAL TABLE temp.query_text USING fts5(text, content='', tokenize='{TOKENIZER}')",
    "CREATE VIRTUAL TABLE temp.query_terms USING fts5vocab(temp, query_text, instance)",
)
_STORED: Final = (
    "CREATE VIRTUAL TABLE temp.stored_terms USING fts5vocab(main, [table_fts], instance)"
)
# The log of changes, see `stores.sqlite.changes`. The index leads to a namespace's own entries:
# those of others cost nothing. The log is never empty, so that its numbers only grow.
_CHANGES: Final = (
    """CREATE TABLE [table_changes] (
        number INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        id TEXT NOT NULL
    )""",
    "CREATE INDEX [table_changes_namespace] ON [table_changes] (namespace, number)",
    "INSERT INTO [table_changes] (namespace, id) VALUES ('', '')",
    """CREATE TRIGGER [table_changes_insert] AFTER INSERT ON [table] BEGIN
        INSERT INTO [table_changes] (namespace, id) VALUES (new.namespace, new.id);
    END""",
    """CREATE TRIGGER [table_changes_update] AFTER UPDATE ON [table] BEGIN
        INSERT INTO [table_changes] (namespace, id) VALUES (new.namespace, new.id);
    END""",
    """CREATE TRIGGER [table_changes_rename] AFTER UPDATE OF namespace, id ON [table] BEGIN
        INSERT INTO [table_changes] (namespace, id) VALUES (old.namespace, old.id);
    END""",
    """CREATE TRIGGER [table_changes_delete] AFTER DELETE ON [table] BEGIN
        INSERT INTO [table_changes] (namespace, id) VALUES (old.namespace, old.id);
    END""",
)
_CHANGES_COLUMNS: Final = frozenset({"number", "namespace", "id"})
# Codes of rows, see `stores.sqlite.codes`. What triggers look for stands in the index alone.
_DROP_PART: Final = """
    DELETE FROM [table_codes] WHERE namespace = {0}.namespace AND last >= {0}.rid
        AND first = (SELECT max(first) FROM [table_codes]
            WHERE namespace = {0}.namespace AND first <= {0}.rid)
"""
_CODES: Final = (
    """CREATE TABLE [table_codes] (
        number INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        size INTEGER NOT NULL,
        share REAL NOT NULL,
        centre BLOB NOT NULL,
        codes BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX [table_codes_rows] ON [table_codes] (namespace, first, last, size)",
    f"""CREATE TRIGGER [table_codes_insert] AFTER INSERT ON [table] BEGIN
        {_DROP_PART.format("new")};
    END""",
    f"""CREATE TRIGGER [table_codes_update] AFTER UPDATE OF rid, namespace, vector ON [table]
    WHEN old.vector <> new.vector OR old.namespace <> new.namespace OR old.rid <> new.rid BEGIN
        {_DROP_PART.format("old")};
        {_DROP_PART.format("new")};
    END""",
    f"""CREATE TRIGGER [table_codes_delete] AFTER DELETE ON [table] BEGIN
        {_DROP_PART.format("old")};
    END""",
)
_CODES_COLUMNS: Final = frozenset(
    {"number", "namespace", "first", "last", "size", "share", "centre", "codes"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table of a store: where it is, and for which vectors.

    Attributes:
        path: of the file, or `:memory:`.
        name: of the table; others begin with it.
        dimension: of every vector.
        metric: how nearness is measured.
        busy_s: how long to wait for another process that writes.
    """

    path: str
    name: str
    dimension: int
    metric: Metric
    busy_s: float = sqlite.BUSY_S

    def __post_init__(self) -> None:
        if not _TABLE_NAME(self.name) or self.name.lower().startswith("sqlite_"):
            raise ValueError(
                f"table is a letter and up to 63 letters, digits and underscores, got {self.name!r}"
            )

    def named(self, sql: str) -> str:
        """Return the statement with the table's name in it."""
        return sql.replace("[table", f"[{self.name}").replace("<table>", self.name)

    @property
    def label(self) -> str:
        """The place of the table, for messages."""
        return f"vector table {self.name!r} in {self.path!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A connection to a checked table.

    Attributes:
        connection: in no transaction.
        no_hybrid: why there is no full-text search; None if there is.
        writable: True if it may write.
        has_changes: True if it has a log of changes.
        has_codes: True if it has a table of codes.
    """

    connection: sqlite3.Connection
    no_hybrid: str | None
    writable: bool
    has_changes: bool
    has_codes: bool


@contextmanager
def typed_errors(label: str) -> Generator[None]:
    """Raise what SQLite raises as a `StoreError` of the right type."""
    try:
        yield
    except OSError as error:
        raise StoreReadOnly(f"{label} cannot be opened: {error.strerror}") from error
    except sqlite3.Error as error:
        match sqlite.failure(error):
            case "unwritable":
                way_out = "is its folder there, and writable?"
                message = f"{label} cannot be opened or written ({way_out}): {error}"
                raise StoreReadOnly(message) from error
            case "damaged":
                raise StoreCorrupt(f"{label} is damaged: {error}") from error
            case _:
                raise StoreError(f"{label} failed and has changed nothing: {error}") from error


def open_table(table: Table) -> Opened:
    """Open the table, made if it is missing; a file that cannot be written is opened to be read.

    Raises:
        StoreReadOnly: the table is missing and cannot be made.
        StoreCorrupt: the file is not a database, or the table not a vector store's.
        SchemaTooNew: a newer release has made it.
        DimensionMismatch: it was made for another dimension.
        MetricMismatch: it was made for another metric.
    """
    with typed_errors(table.label):
        try:
            return _opened(sqlite.connect(table.path, busy_s=table.busy_s), table, write=True)
        except sqlite3.Error as error:
            if table.path == sqlite.MEMORY or sqlite.failure(error) != "unwritable":
                raise
        return _opened(sqlite.connect_to_read(table.path), table, write=False)


def _opened(connection: sqlite3.Connection, table: Table, *, write: bool) -> Opened:
    with ExitStack() as held:
        held.callback(connection.close)
        connection.execute("PRAGMA temp_store=MEMORY")
        if write and table.path != sqlite.MEMORY:
            sqlite.use_write_ahead_log(connection)
        _ensure(connection, table, _is_made, _make, write=write)
        no_hybrid = _full_text(connection, table, write=write)
        has_changes = _made_if_writable(connection, table, _is_logged, _log, write=write)
        has_codes = _made_if_writable(connection, table, _is_coded, _code, write=write)
        held.pop_all()
        return Opened(
            connection=connection,
            no_hybrid=no_hybrid,
            writable=write,
            has_changes=has_changes,
            has_codes=has_codes,
        )


def _made_if_writable(
    connection: sqlite3.Connection,
    table: Table,
    is_there: Callable[[sqlite3.Connection, Table], bool],
    make: Callable[[sqlite3.Connection, Table], None],
    *,
    write: bool,
) -> bool:
    """Make a side table if need be; return True if there is one."""
    try:
        _ensure(connection, table, is_there, make, write=write)
    except StoreReadOnly:  # of an older release, and cannot be written now
        return False
    return True


def _full_text(connection: sqlite3.Connection, table: Table, *, write: bool) -> str | None:
    """Make the full-text index if need be; return why there is none."""
    try:
        for statement in _QUERY_TABLES:
            connection.execute(statement)
    except sqlite3.DatabaseError as error:
        return f"this SQLite was built without FTS5 ({error})"
    try:
        _ensure(connection, table, _is_indexed, _index, write=write)
    except StoreReadOnly:
        return "the table was made by an SQLite without FTS5 and cannot be written now"
    connection.execute(table.named(_STORED))
    return None


def _ensure(
    connection: sqlite3.Connection,
    table: Table,
    is_there: Callable[[sqlite3.Connection, Table], bool],
    make: Callable[[sqlite3.Connection, Table], None],
    *,
    write: bool,
) -> None:
    """Make what is not there, unless another process does so at the same moment."""
    with sqlite.transaction(connection, write=False):
        if is_there(connection, table):
            return
    if not write:
        raise StoreReadOnly(f"{table.label} is not there and cannot be made")
    with sqlite.transaction(connection):
        if not is_there(connection, table):
            make(connection, table)


def existing_layout(table: Table) -> Layout | None:
    """Return how the table was made, read-only; None if there is no file or no such table.

    Raises:
        StoreReadOnly: this process may not read enough to see if there is one.
        StoreCorrupt: the file is not a database, or the table not a vector store's.
        SchemaTooNew: a newer release has made it.
    """
    with typed_errors(table.label):
        if not _is_file(table.path):
            return None
        made = _looked_up(table)
    return None if made is None else Layout(dimension=made["dimension"], metric=made["metric"])


def _is_file(path: str) -> bool:
    try:
        return S_ISREG(Path(path).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _looked_up(table: Table) -> dict[str, Any] | None:
    with closing(sqlite.connect_to_look(table.path)) as connection:
        made = _made(connection, table)
        if not sqlite.outdated(connection):
            return made
    with closing(sqlite.connect_to_read(table.path)) as connection:
        return _made(connection, table)


def _is_made(connection: sqlite3.Connection, table: Table) -> bool:
    """Return True if the table is there and matches the configuration."""
    made = _made(connection, table)
    if made is None:
        return False
    if made["dimension"] != table.dimension:
        raise DimensionMismatch(expected=made["dimension"], got=table.dimension)
    if made["metric"] != table.metric:
        raise MetricMismatch(expected=made["metric"], got=table.metric)
    return True


def _made(connection: sqlite3.Connection, table: Table) -> dict[str, Any] | None:
    """Return what is noted of the table, if it is there."""
    there = [_exists(connection, table.named(name)) for name in ("<table>", "<table>_layout")]
    if not any(there):
        return None
    made: dict[str, Any] = {}
    if all(there):
        made.update(connection.execute(table.named("SELECT key, value FROM [table_layout]")))
    if not {"layout", "dimension", "metric"} <= made.keys():
        raise StoreCorrupt(f"{table.label} is not a vector store's")
    if made["layout"] > _LAYOUT:
        raise SchemaTooNew(table.label, found=made["layout"], supported=_LAYOUT)
    return made


def _make(connection: sqlite3.Connection, table: Table) -> None:
    for statement in _TABLES:
        connection.execute(table.named(statement))
    connection.executemany(
        table.named("INSERT INTO [table_layout] (key, value) VALUES (?, ?)"),
        [("layout", _LAYOUT), ("dimension", table.dimension), ("metric", table.metric)],
    )


def _is_indexed(connection: sqlite3.Connection, table: Table) -> bool:
    return _exists(connection, table.named("<table>_fts"))


def _index(connection: sqlite3.Connection, table: Table) -> None:
    for statement in _FULL_TEXT:
        connection.execute(table.named(statement))


def _is_logged(connection: sqlite3.Connection, table: Table) -> bool:
    return _is_own(connection, table, "changes", _CHANGES_COLUMNS)


def _log(connection: sqlite3.Connection, table: Table) -> None:
    for statement in _CHANGES:
        connection.execute(table.named(statement))


def _is_coded(connection: sqlite3.Connection, table: Table) -> bool:
    return _is_own(connection, table, "codes", _CODES_COLUMNS)


def _code(connection: sqlite3.Connection, table: Table) -> None:
    for statement in _CODES:
        connection.execute(table.named(statement))


def _is_own(
    connection: sqlite3.Connection, table: Table, ending: str, columns: frozenset[str]
) -> bool:
    """Return True if there is a side table; refuse a user's own one of that name.

    Older releases have left the name free.
    """
    found = _columns(connection, table, ending)
    if found and found != columns:
        raise StoreCorrupt(
            f"{table.label} keeps a table '{table.name}_{ending}', and the file has another one of"
            " that name, not this store's: rename it"
        )
    return bool(found)


def _columns(connection: sqlite3.Connection, table: Table, ending: str) -> frozenset[str]:
    """Return the columns of a side table, or of what has its name; none if there is nothing."""
    statement = "SELECT name FROM pragma_table_info(?, 'main')"
    found = connection.execute(statement, (f"{table.name}_{ending}",))
    return frozenset(name for (name,) in found)


def _exists(connection: sqlite3.Connection, name: str) -> bool:
    found = connection.execute(
        "SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND lower(name) = lower(?)", (name,)
    )
    return found.fetchone() is not None
