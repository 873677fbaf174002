"""PostgreSQL tables made by other programs: completed, queried, or refused with a reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import numpy as np
import psycopg
import pytest

from lib.errors import StoreCorrupt
from lib.vector import InMemoryVectorStore, PostgresVectorStore, Record
from lib.vector.records import Layout
from lib.vector.stores.postgres import search as plans
from servers import postgres

_names = count()
TABLE = """
    CREATE TABLE {name} (
        namespace text, id text, v vector({dimension}), text text, meta jsonb {more},
        PRIMARY KEY (namespace, id)
    );
"""


@pytest.fixture(scope="module")
def dsn() -> str:
    url = postgres.url()
    execute(url, "CREATE EXTENSION IF NOT EXISTS vector")
    return url


@pytest.fixture
def name() -> str:
    return f"existing_{next(_names)}"


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def found(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return [value for (value,) in connection.execute(statement.encode())]


async def with_store(
    store: PostgresVectorStore, work: Callable[[PostgresVectorStore], Awaitable[None]]
) -> None:
    try:
        await work(store)
    finally:
        await store.close()


def methods(dsn: str, name: str) -> list[str]:
    """Return how the indexes of a table work, sorted."""
    return found(
        dsn,
        f"""
        SELECT m.amname::text FROM pg_index i JOIN pg_class k ON k.oid = i.indexrelid
        JOIN pg_am m ON m.oid = k.relam WHERE i.indrelid = '{name}'::regclass ORDER BY 1
        """,
    )


@pytest.mark.parametrize("beside", [True, False])
async def test_an_ivfflat_index_is_not_taken_for_one_that_finds_the_nearest(
    dsn: str, name: str, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """With one of its lists looked into, as by default, it finds a quarter of them."""
    monkeypatch.setattr(plans, "_FEW", 200)
    monkeypatch.setattr(plans, "_FEW_OF_MANY", 0.0)
    noise = np.random.default_rng(5)
    vectors = noise.standard_normal((3_000, 16)).astype(np.float32)
    records = [Record(f"{row}", vector) for row, vector in enumerate(vectors)]

    async def fill(store: PostgresVectorStore) -> None:
        await store.upsert(records)

    await with_store(PostgresVectorStore(dsn, dimension=16, table=name), fill)
    index = f"CREATE INDEX ON {name} USING ivfflat (v vector_cosine_ops) WITH (lists = 100)"
    execute(dsn, f"{'' if beside else f'DROP INDEX {name}_v_idx'}; {index}; ANALYZE {name}")

    async def ask(store: PostgresVectorStore) -> None:
        memory = InMemoryVectorStore()
        await memory.upsert(records)
        agreeing = 0
        for query in noise.standard_normal((20, 16)):
            wanted = {match.id for match in await memory.query(query, 10)}
            agreeing += len(wanted & {match.id for match in await store.query(query, 10)})
        await memory.close()
        assert agreeing >= 190

    await with_store(PostgresVectorStore(dsn, dimension=16, table=name), ask)
    assert methods(dsn, name).count("hnsw") == 1


@pytest.mark.parametrize("dimension", [2, 2_500])
async def test_an_index_on_something_else_than_is_searched_counts_for_nothing(
    dsn: str, name: str, dimension: int
) -> None:
    key, kind = (
        ("subvector(v, 1, 2)::vector(2)", "vector")
        if dimension == 2
        else (f"v::halfvec({dimension})", "halfvec")
    )
    more = ", b jsonb, words tsvector"
    execute(
        dsn,
        TABLE.format(name=name, dimension=dimension, more=more)
        + f"CREATE INDEX ON {name} USING hnsw (({key}) {kind}_cosine_ops);"
        f"CREATE INDEX ON {name} USING gin (b); CREATE INDEX ON {name} USING gin (words);"
        f"CREATE INDEX ON {name} USING hash (namespace)",
    )
    for _ in range(2):
        await with_store(
            PostgresVectorStore(dsn, dimension=dimension, table=name), lambda s: s.setup()
        )
        assert methods(dsn, name) == ["btree", *["gin"] * 4, "hash", "hnsw", "hnsw"]


async def test_columns_of_any_name_beside_those_of_the_store_change_nothing(
    dsn: str, name: str
) -> None:
    others = "query term weight score passes rank name found best passing rows n df total ids"
    more = "".join(f", {other} text DEFAULT 'x'" for other in others.split())
    execute(dsn, TABLE.format(name=name, dimension=2, more=more))

    async def ask(store: PostgresVectorStore) -> None:
        await store.upsert([Record("a", [1, 0], "apple"), Record("b", [0, 1], "pear", {"x": 1})])
        assert [match.id for match in await store.query([1.0, 0.0])] == ["a", "b"]
        assert [match.id for match in await store.query_hybrid([1.0, 0.0], "pear", 1)] == ["b"]
        assert await store.count(filter={"x": 1}) == len(await store.scan(after="a")) == 1
        assert await store.namespaces() == [""]
        await store.delete(filter={"x": 1})

    for hnsw in (True, False):
        await with_store(PostgresVectorStore(dsn, dimension=2, table=name, hnsw=hnsw), ask)


async def test_columns_that_may_be_empty_are_made_not_to_be(dsn: str, name: str) -> None:
    execute(dsn, TABLE.format(name=name, dimension=2, more=""))
    await with_store(PostgresVectorStore(dsn, dimension=2, table=name), lambda store: store.setup())

    row = (
        f"INSERT INTO {name} (namespace, id, v, text, meta) VALUES ('', 'a', '[1,0]', NULL, '{{}}')"
    )
    with pytest.raises(psycopg.errors.NotNullViolation):
        execute(dsn, row)


@pytest.mark.parametrize("row", ["NULL, 'x', '{}'", "'[1,0]', NULL, '{}'", "'[1,0]', 'x', NULL"])
async def test_a_table_with_rows_that_are_no_records_is_refused(
    dsn: str, name: str, row: str
) -> None:
    execute(dsn, TABLE.format(name=name, dimension=2, more=""))
    execute(dsn, f"INSERT INTO {name} VALUES ('', 'a', {row})")

    async def refused(store: PostgresVectorStore) -> None:
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match="hold NULL"):
                await store.setup()

    await with_store(PostgresVectorStore(dsn, dimension=2, table=name), refused)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("v vector, text text, meta jsonb", "no dimension"),
        ("v vector(2), text text, meta jsonb, meta_raw jsonb", "meta_raw"),
    ],
)
async def test_a_column_of_another_kind_is_refused(
    dsn: str, name: str, columns: str, reason: str
) -> None:
    key = "PRIMARY KEY (namespace, id)"
    execute(dsn, f"CREATE TABLE {name} (namespace text, id text, {columns}, {key})")

    async def refused(store: PostgresVectorStore) -> None:
        for call in (store.existing, store.setup):
            with pytest.raises(StoreCorrupt, match=reason):
                await call()

    await with_store(PostgresVectorStore(dsn, dimension=2, table=name), refused)


async def test_the_language_of_a_table_is_found_whatever_the_configuration(
    dsn: str, name: str
) -> None:
    await with_store(PostgresVectorStore(dsn, dimension=2, table=name), lambda store: store.setup())

    async def tell(store: PostgresVectorStore) -> None:
        assert await store.existing() == Layout(dimension=2, metric="cosine")

    await with_store(
        PostgresVectorStore(dsn, dimension=3, table=name, text_search_config="klingon"), tell
    )
