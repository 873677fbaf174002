"""PostgreSQL whose connections have settings of their own: isolation, encoding."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from lib.errors import StoreUnavailable
from lib.vector import F, PostgresVectorStore, Record
from lib.vector.stores.postgres import setup
from servers import postgres

_names = count()
LEVELS = ["repeatable%5C%20read", "serializable"]


@pytest.fixture(scope="module")
def dsn() -> str:
    return postgres.url()


@pytest.fixture
def name() -> str:
    return f"isolation_{next(_names)}"


def isolated(dsn: str, level: str) -> str:
    return f"{dsn}&options=-c%20default_transaction_isolation%3D{level}"


@pytest.mark.parametrize("level", LEVELS)
async def test_many_stores_make_a_table_at_once_whatever_transactions_see_by_default(
    level: str,
) -> None:
    dsn = isolated(postgres.fresh_url(), level)

    for turn in range(3):
        stores = [PostgresVectorStore(dsn, dimension=2, table=f"t{turn}") for _ in range(4)]
        await asyncio.gather(*(store.setup() for store in stores))
        for store in stores:
            await store.close()


async def test_a_table_that_is_dropped_while_it_is_looked_at_is_none(
    dsn: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.setup()
    monkeypatch.setattr(setup, "_TABLE", sql.SQL("SELECT 0 WHERE %(oid)s IS NULL"))
    assert await store.existing() is None
    await store.close()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("by_option", [True, False])
async def test_writers_of_the_same_records_wait_whatever_transactions_see_by_default(
    dsn: str, name: str, level: str, by_option: bool
) -> None:
    own = isolated(dsn, level)
    async with AsyncConnectionPool(own, min_size=1, max_size=6, open=False) as pool:
        store = (
            PostgresVectorStore(pool=pool, dimension=2, table=name)
            if by_option
            else PostgresVectorStore(own, dimension=2, table=name)
        )
        await store.setup()
        batches = [
            [Record(f"{row}", [1.0, row], "words", {"batch": batch}) for row in range(300)]
            for batch in range(5)
        ]
        for _ in range(3):
            await asyncio.gather(
                *(store.upsert(batch) for batch in batches),
                *(store.delete(filter=F("batch") == batch) for batch in range(3)),
            )
        await store.close()


async def test_texts_are_kept_whatever_encoding_the_dsn_asks_for(dsn: str, name: str) -> None:
    store = PostgresVectorStore(f"{dsn}&client_encoding=latin1", dimension=2, table=name)
    await store.upsert([Record("č", [1.0, 0.0], "日本", {"š": "ž"})])
    assert await store.get(["č"]) == [Record("č", [1.0, 0.0], "日本", {"š": "ž"})]
    await store.close()


async def test_a_pool_whose_connections_cannot_say_every_text_is_refused(
    dsn: str, name: str
) -> None:
    latin = f"{dsn}&client_encoding=latin1"
    async with AsyncConnectionPool(latin, min_size=1, max_size=1, open=False) as pool:
        store = PostgresVectorStore(pool=pool, dimension=2, table=name)
        with pytest.raises(StoreUnavailable, match="UTF8") as failure:
            await store.upsert([Record("č", [1.0, 0.0])])
        assert "č" not in str(failure.value)
        assert await store.count() == 0
        await store.close()
