"""PostgreSQL tables that others have made: completed, asked with care, or refused by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import numpy as np
import psycopg
import pytest

from lib.testing.aio import run
from lib.testing.servers import postgres
from lib.vector import InMemoryVectorStore, PostgresVectorStore, Record
from lib.vector.stores.postgres import plans

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
    return f"adopted_{next(_names)}"


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def found(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return [value for (value,) in connection.execute(statement.encode())]


def with_store(
    store: PostgresVectorStore, work: Callable[[PostgresVectorStore], Awaitable[None]]
) -> None:
    async def main() -> None:
        try:
            await work(store)
        finally:
            await store.close()

    run(main())


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
def test_an_ivfflat_index_is_not_taken_for_one_that_finds_the_nearest(
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

    with_store(PostgresVectorStore(dsn, dimension=16, table=name), fill)
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

    with_store(PostgresVectorStore(dsn, dimension=16, table=name), ask)
    assert methods(dsn, name).count("hnsw") == 1


@pytest.mark.parametrize("dimension", [2, 2_500])
def test_an_index_on_something_else_than_is_searched_counts_for_nothing(
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
        with_store(PostgresVectorStore(dsn, dimension=dimension, table=name), lambda s: s.setup())
        assert methods(dsn, name) == ["btree", *["gin"] * 4, "hash", "hnsw", "hnsw"]
