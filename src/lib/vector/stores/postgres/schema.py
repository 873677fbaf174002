"""The table of a store: its columns, its indexes, and what is made of a database that has neither.

The columns are those below; a table may have more. A role that may not change the table can
still use one that is complete, since nothing is made that is already there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lib.vector.records import Metric
from lib.vector.stores.postgres.config import Index, Table
from lib.vector.stores.postgres.driver import sql

COLUMNS: Final = {"namespace": "text", "id": "text", "v": "vector", "text": "text", "meta": "jsonb"}

# `meta` is what filters read, `meta_raw` what `get` returns: jsonb keeps neither the order of keys
# nor how a float was written, and would return 1e308 as an integer of 309 digits.
TABLE: Final = sql.SQL("""
    CREATE TABLE {table} (
        namespace text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        v {ext}.vector({dimension}) NOT NULL,
        text text NOT NULL,
        meta jsonb NOT NULL,
        meta_raw text,
        PRIMARY KEY (namespace, id)
    )
""")
META_RAW: Final = sql.SQL("ALTER TABLE {table} ADD COLUMN meta_raw text")
TS: Final = sql.SQL(
    "ALTER TABLE {table} ADD COLUMN ts tsvector GENERATED ALWAYS AS ({terms}) STORED"
)
# Without `fastupdate = off`, what was written lies in a list until the server finds time to sort it
# in, and each term of a query reads all of that list.
META_INDEX: Final = sql.SQL(
    "CREATE INDEX ON {table} USING gin (meta jsonb_path_ops) WITH (fastupdate = off)"
)
TS_INDEX: Final = sql.SQL("CREATE INDEX ON {table} USING gin (ts) WITH (fastupdate = off)")
FULL_INDEX: Final = sql.SQL("CREATE INDEX ON {table} USING hnsw (v {ext}.{operators})")
HALF_INDEX: Final = sql.SQL(
    "CREATE INDEX ON {table} USING hnsw (({half}) {ext}.halfvec_cosine_ops)"
)

# No text search vector may exceed a megabyte, whence the cut. Accents of Latin letters are folded
# before words are stemmed, as PostgreSQL's manual does with `unaccent`, which few servers have;
# others stay: without its breve a Cyrillic letter is another one.
_TERMS: Final = sql.SQL(r"""
    to_tsvector({config}::regconfig, CASE
        WHEN octet_length(left({text}, 100000)) = char_length(left({text}, 100000))
        THEN left({text}, 100000)
        ELSE normalize(regexp_replace(
            normalize(left({text}, 100000), NFKD), '([A-Za-z])[\u0300-\u036f]+', '\1', 'g'), NFKC)
    END)
""")
FOLDING: Final = "regexp_replace("  # stands in the expression of a column that was made so
_PLAIN_TERMS: Final = sql.SQL("to_tsvector({config}::regconfig, left({text}, 100000))")

_OPERATORS: Final[dict[Metric, sql.SQL]] = {
    "cosine": sql.SQL("<=>"),
    "dot": sql.SQL("<#>"),
    "euclidean": sql.SQL("<->"),
}
_CLASSES: Final[dict[Metric, str]] = {
    "cosine": "vector_cosine_ops",
    "dot": "vector_ip_ops",
    "euclidean": "vector_l2_ops",
}
# 32-bit floats, as in every store: ties are ties although sums were rounded on the way.
_SCORES: Final[dict[Metric, sql.SQL]] = {
    "cosine": sql.SQL("(1 - ({}))::real"),
    "dot": sql.SQL("(0 - ({}))::real"),
    "euclidean": sql.SQL("({})::real"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The facts of a ready table that statements need.

    Attributes:
        table: its configuration.
        ext: the schema that pgvector is in; it need not be on the search path.
        vector_type: the number of the type `vector` in this database.
        config: the text search configuration, as the database names it.
        folding: True if the column `ts` was made without accents.
        index: what an HNSW index that can be used holds; None if searches are exact.
        rows: about how many rows there are; 0 if not counted yet.
    """

    table: Table
    ext: str
    vector_type: int
    config: str
    folding: bool
    index: Index | None
    rows: int

    def put(self, statement: sql.SQL, **parts: sql.Composable) -> sql.Composed:
        """Return the statement with the names of table and types in it."""
        return statement.format(table=identifier(self.table), ext=sql.Identifier(self.ext), **parts)

    def score(self) -> sql.Composable:
        """Return the score of a row beside the parameter `query`."""
        distance = self.put(
            sql.SQL("v OPERATOR({ext}.{operator}) %(query)s::{ext}.vector"),
            operator=_OPERATORS[self.table.metric],
        )
        return _SCORES[self.table.metric].format(distance)

    def order(self) -> sql.Composable:
        """Return what the HNSW index orders rows by."""
        if self.index == "full":
            return self.put(
                sql.SQL("v OPERATOR({ext}.{operator}) %(query)s::{ext}.vector"),
                operator=_OPERATORS[self.table.metric],
            )
        query = half(self.ext, self.table.dimension, sql.SQL("%(query)s"))
        stored = half(self.ext, self.table.dimension, sql.SQL("v"))
        return self.put(
            sql.SQL("({stored}) OPERATOR({ext}.<=>) ({query})"), stored=stored, query=query
        )

    def direction(self) -> sql.SQL:
        """Return in which direction scores become worse."""
        return sql.SQL("ASC") if self.table.metric == "euclidean" else sql.SQL("DESC")

    def terms(self, text: sql.Composable) -> sql.Composable:
        """Return the terms of a text, cut as those of the stored texts were."""
        return terms(self.config, text, folding=self.folding)


def filled(table: Table, columns: Iterable[str]) -> sql.Composable:
    """Return what lets no NULL into these columns: no record has one, and no search copes."""
    shape = sql.SQL("ALTER COLUMN {} SET NOT NULL")
    changes = sql.SQL(", ").join(shape.format(sql.Identifier(name)) for name in columns)
    return sql.SQL("ALTER TABLE {table} {changes}").format(table=identifier(table), changes=changes)


def half(ext: str, dimension: int, value: sql.Composable) -> sql.Composable:
    """Return the direction of a vector in 16-bit floats."""
    return sql.SQL("{ext}.l2_normalize({value}::{ext}.vector)::{ext}.halfvec({dimension})").format(
        ext=sql.Identifier(ext), value=value, dimension=sql.Literal(dimension)
    )


def identifier(table: Table) -> sql.Identifier:
    """Return the table's name in statements, where the driver reads a percent sign twice."""
    return sql.Identifier(*table.name.replace("%", "%%").split("."))


def quoted(table: Table) -> str:
    """Return the table's name as a value that casts to `regclass`."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.name.split("."))


def literal(value: str) -> sql.Literal:
    """Return a constant in a statement that has no parameters."""
    return sql.Literal(value.replace("%", "%%"))


def terms(config: str, text: sql.Composable, *, folding: bool = True) -> sql.Composable:
    """Return the text search vector of a text."""
    shape = _TERMS if folding else _PLAIN_TERMS
    return shape.format(config=literal(config), text=text)


def operators(metric: Metric, index: Index) -> str:
    """Return the operator class of an index."""
    return _CLASSES[metric] if index == "full" else "halfvec_cosine_ops"
