"""Opening a table: looked at first, made or completed where something is missing.

All that is made is made in one transaction under one lock, so several processes may do so at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast

from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    SchemaTooNew,
    StoreCorrupt,
    StoreUnavailable,
)
from lib.vector import records
from lib.vector.records import Metric
from lib.vector.stores.postgres import schema
from lib.vector.stores.postgres.config import NAME, Index, Table
from lib.vector.stores.postgres.driver import (
    Connection,
    Cursor,
    cursor,
    psycopg,
    run,
    sql,
    transaction,
)
from lib.vector.stores.postgres.schema import Layout

_LAYOUT: Final = 1
_LOCK: Final = 0x6C69622E76656374  # "lib.vect": one lock for all tables, and for the extension
_ITERATIVE_SCAN: Final = (0, 8)

_DATABASE: Final = sql.SQL("""
    SELECT current_setting('server_encoding'), to_regclass(%(table)s)::oid, e.extversion,
        n.nspname, t.oid
    FROM (SELECT) AS one
    LEFT JOIN pg_extension e ON e.extname = 'vector'
    LEFT JOIN pg_namespace n ON n.oid = e.extnamespace
    LEFT JOIN pg_type t ON t.typname = 'vector' AND t.typnamespace = n.oid
""")
_TABLE: Final = sql.SQL("SELECT reltuples::float8 FROM pg_class WHERE oid = %(oid)s")
_COLUMNS: Final = sql.SQL("""
    SELECT a.attname::text, t.typname::text, a.atttypmod, a.attnotnull, a.attgenerated::text = 's',
        pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
""")
# The columns of each index, in any order; how it works, by which operators, and what on, first.
_INDEXES: Final = sql.SQL("""
    SELECT array(
            SELECT a.attname::text FROM pg_attribute a
            WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
        ), i.indisunique AND i.indimmediate,
        m.amname::text, c.opcname::text, pg_get_indexdef(i.indexrelid, 1, true)
    FROM pg_index i JOIN pg_opclass c ON c.oid = i.indclass[0]
    JOIN pg_class k ON k.oid = i.indexrelid JOIN pg_am m ON m.oid = k.relam
    WHERE i.indrelid = %(oid)s AND i.indisvalid AND i.indpred IS NULL
""")
# Names of another schema than those on the search path stand with it.
_INDEXED: Final[dict[Index, str]] = {
    "full": "v",
    "half": r"\((?:.+\.)?l2_normalize\(v::(?:.+\.)?vector\)::(?:.+\.)?halfvec\({}\)\)",
}
_CONFIG: Final = sql.SQL("SELECT %(config)s::text::regconfig::text")
_RECORD: Final = re.compile(r"lib\.vector layout=(\d+) metric=(\w+)").search
_CONFIGURED: Final = re.compile(r"to_tsvector\('((?:[^']|'')+)'::regconfig").match


@dataclass(frozen=True, slots=True)
class _Column:
    type: str
    modifier: int
    filled: bool
    generated: bool
    expression: str | None
    comment: str | None


@dataclass(frozen=True, slots=True)
class _Index:
    columns: list[str]
    unique: bool
    method: str
    operators: str
    key: str

    def serves(self, method: str, operators: str, key: str) -> bool:
        """Return True if it is the index of this method on this key, given as a pattern."""
        kind = (self.method, self.operators)
        return kind == (method, operators) and re.fullmatch(key, self.key) is not None


@dataclass(frozen=True, slots=True)
class _Found:
    """The parts of a table that a database holds."""

    table: Table
    config: str
    ext: str | None = None
    vector_type: int = 0
    version: tuple[int, ...] = ()
    rows: int = 0
    columns: dict[str, _Column] | None = None
    indexes: tuple[_Index, ...] = ()

    def index(self) -> Index | None:
        """Return what an HNSW index holds that this version can be trusted to search."""
        return self.table.wanted_index if self.version >= _ITERATIVE_SCAN else None

    def layout(self) -> Layout:
        """Return what statements need to know, once nothing is missing."""
        expression = (self.columns or {})["ts"].expression or ""
        return Layout(
            table=self.table,
            ext=self.ext or "",
            vector_type=self.vector_type,
            config=self.config,
            folding=schema.FOLDING in expression,
            index=self.index(),
            rows=self.rows,
        )


async def opened(connection: Connection, table: Table) -> Layout:
    """Return the layout of a table, made or completed if need be.

    Raises:
        DimensionMismatch, MetricMismatch, ValueError: it was made for something else.
        SchemaTooNew: a newer release has made it.
        StoreCorrupt: a table of this name is not a vector store's.
        StoreUnavailable: the extension is missing, or the right to make something.
    """
    async with transaction(connection) as reading:
        config = await _config(reading, table.config)
        found = await _look(reading, table, config)
        if not _missing(found):
            return found.layout()
    async with transaction(connection) as making:
        await run(making, sql.SQL("SELECT pg_advisory_xact_lock(%(lock)s)"), {"lock": _LOCK})
        found, made = await _look(making, table, config), list[sql.Composable]()
        while missing := [one for one in _missing(found) if one not in made]:
            made.append(missing[0])
            await make(making, table, missing[0])
            found = await _look(making, table, config)
        return found.layout()


async def existing(connection: Connection, table: Table) -> records.Layout | None:
    """Return how a table was made; None if there is none.

    Raises:
        SchemaTooNew: a newer release has made it.
        StoreCorrupt: a table of this name is not a vector store's.
    """
    async with cursor(connection) as reading:
        found = await _look(reading, table)
    if found.columns is None:
        return None
    _check_shape(found, found.columns)
    metric = _recorded(table, found.columns["v"].comment)
    return records.Layout(dimension=found.columns["v"].modifier, metric=metric)


async def make(cursor: Cursor, table: Table, statement: sql.Composable) -> None:
    """Make something that is missing.

    Raises:
        StoreCorrupt: rows hold NULL where records never do.
        StoreUnavailable: the right to, the schema or the extension is missing.
    """
    try:
        await run(cursor, statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreUnavailable(
            f"{table.place} is not ready, and this role may not make it so: have its owner, "
            f"or for the extension a superuser, run {_shown(statement, cursor)}"
        ) from error
    except psycopg.errors.NotNullViolation as error:
        raise StoreCorrupt(
            f"{table.place} is not a vector store's: some of its rows hold NULL in one of the "
            f"columns {', '.join(schema.COLUMNS)}"
        ) from error
    except psycopg.errors.InvalidSchemaName as error:
        raise StoreUnavailable(f"{table.place}: there is no such schema, create it") from error
    except (psycopg.errors.UndefinedFile, psycopg.errors.FeatureNotSupported) as error:
        raise StoreUnavailable(
            f"{table.place} needs the extension pgvector, which this server does not have: "
            "install it there (github.com/pgvector/pgvector)"
        ) from error


def _shown(statement: sql.Composable, cursor: Cursor) -> str:
    return " ".join(statement.as_string(cursor).replace("%%", "%").split())


async def _look(cursor: Cursor, table: Table, config: str = "") -> _Found:
    named = {"table": schema.quoted(table)}
    ((encoding, oid, version, ext, vector_type),) = await _all(cursor, _DATABASE, named)
    if encoding != "UTF8":
        raise StoreUnavailable(f"{NAME} needs a database whose encoding is UTF8, not {encoding}")
    found = _Found(table, config)
    if version is None:
        return found
    numbers = tuple(int(number) for number in re.findall(r"\d+", version))
    found = _Found(table, found.config, ext, vector_type, numbers)
    if oid is None:
        return found
    counted = await _all(cursor, _TABLE, {"oid": oid})
    if not counted:  # dropped meanwhile
        return found
    ((rows,),) = counted
    columns = {name: _Column(*facts) for name, *facts in await _all(cursor, _COLUMNS, {"oid": oid})}
    indexes = tuple(_Index(*facts) for facts in await _all(cursor, _INDEXES, {"oid": oid}))
    return _Found(
        table, found.config, ext, vector_type, numbers, max(0, int(rows)), columns, indexes
    )


async def _all(
    cursor: Cursor, statement: sql.SQL, parameters: dict[str, Any]
) -> list[tuple[Any, ...]]:
    return await (await run(cursor, statement, parameters)).fetchall()


async def _config(cursor: Cursor, name: str) -> str:
    try:
        async with cursor.connection.transaction():
            ((config,),) = await _all(cursor, _CONFIG, {"config": name})
    except psycopg.errors.ProgrammingError as error:  # unknown, or no name at all
        raise ValueError(
            f"this database has no text search configuration {name!r}: pg_ts_config lists them"
        ) from error
    return config


def _missing(found: _Found) -> list[sql.Composable]:
    """Return the statements that make what is missing, after checking what is there."""
    table = found.table
    if found.ext is None:
        return [sql.SQL("CREATE EXTENSION IF NOT EXISTS vector")]
    parts: dict[str, sql.Composable] = {
        "table": schema.identifier(table),
        "ext": sql.Identifier(found.ext),
        "dimension": sql.Literal(table.dimension),
    }
    if found.columns is None:
        return [schema.TABLE.format(**parts)]
    _check_columns(found, found.columns)
    missing: list[sql.Composable] = []
    comment = _checked_record(table, found.columns["v"].comment)
    if comment is not None:
        record = sql.SQL("COMMENT ON COLUMN {table}.v IS {comment}")
        missing.append(
            record.format(table=schema.identifier(table), comment=schema.literal(comment))
        )
    empty = [name for name in schema.COLUMNS if not found.columns[name].filled]
    if empty:
        missing.append(schema.filled(table, empty))
    if "meta_raw" not in found.columns:
        missing.append(schema.META_RAW.format(**parts))
    if "ts" not in found.columns:
        terms = schema.terms(found.config, sql.Identifier("text"))
        missing.append(schema.TS.format(terms=terms, **parts))
    return missing + _missing_indexes(found, parts)


def _missing_indexes(found: _Found, parts: dict[str, sql.Composable]) -> list[sql.Composable]:
    table, wanted = found.table, found.index()

    def there(method: str, operators: str, key: str) -> bool:
        return any(index.serves(method, operators, key) for index in found.indexes)

    missing: list[sql.Composable] = []
    if not any(there("gin", operators, "meta") for operators in ("jsonb_path_ops", "jsonb_ops")):
        missing.append(schema.META_INDEX.format(**parts))
    if not there("gin", "tsvector_ops", "ts"):
        missing.append(schema.TS_INDEX.format(**parts))
    if wanted is not None:
        operators = schema.operators(table.metric, wanted)
        if not there("hnsw", operators, _INDEXED[wanted].format(table.dimension)):
            shape = schema.FULL_INDEX if wanted == "full" else schema.HALF_INDEX
            half = schema.half(found.ext or "", table.dimension, sql.SQL("v"))
            named = sql.Identifier(operators)
            missing.append(shape.format(operators=named, half=half, **parts))
    return missing


def _check_shape(found: _Found, columns: dict[str, _Column]) -> None:
    place = found.table.place
    for name, type_ in schema.COLUMNS.items():
        if name not in columns or columns[name].type != type_:
            raise StoreCorrupt(f"{place} is not a vector store's: it has no {type_} column {name}")
    if columns["v"].modifier < 1:
        raise StoreCorrupt(f"{place} is not a vector store's: its column v has no dimension")
    if "meta_raw" in columns and columns["meta_raw"].type != "text":
        raise StoreCorrupt(f"{place} is not a vector store's: its column meta_raw is not text")
    key = ["id", "namespace"]
    if not any(index.unique and sorted(index.columns) == key for index in found.indexes):
        raise StoreCorrupt(f"{place} is not a vector store's: namespace and id are not its key")


def _check_columns(found: _Found, columns: dict[str, _Column]) -> None:
    _check_shape(found, columns)
    if columns["v"].modifier != found.table.dimension:
        raise DimensionMismatch(expected=columns["v"].modifier, got=found.table.dimension)
    if "ts" in columns:
        _check_terms(found, columns["ts"])


def _check_terms(found: _Found, column: _Column) -> None:
    made = _CONFIGURED(column.expression or "")
    if not column.generated or made is None:
        raise StoreCorrupt(
            f"{found.table.place} is not a vector store's: its column ts is not generated by "
            "to_tsvector"
        )
    config = made[1].replace("''", "'")
    if config != found.config:
        raise ValueError(
            f"{found.table.place} was made with text_search_config {config!r}, it is opened with "
            f"{found.config!r}: take that one, or drop its column ts to have it made anew"
        )


def _checked_record(table: Table, comment: str | None) -> str | None:
    """Return the comment that records the metric, if it is not recorded yet.

    A table of other origin has no record: the first to open it settles its metric.
    """
    metric = _recorded(table, comment)
    if metric is None:
        before = f"{comment}; " if comment else ""
        return f"{before}lib.vector layout={_LAYOUT} metric={table.metric}"
    if metric != table.metric:
        raise MetricMismatch(expected=metric, got=table.metric)
    return None


def _recorded(table: Table, comment: str | None) -> Metric | None:
    """Return the metric that a comment records."""
    record = _RECORD(comment or "")
    if record is None:
        return None
    if int(record[1]) > _LAYOUT:
        raise SchemaTooNew(table.place, found=int(record[1]), supported=_LAYOUT)
    return cast(Metric, record[2])
