"""`existing` returns the layout of what is stored, or refuses it, and creates nothing."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from lib.errors import SchemaTooNew, StoreClosed, StoreCorrupt, StoreUnavailable
from lib.vector import (
    ChromaVectorStore,
    LanceDBVectorStore,
    PostgresVectorStore,
    QdrantVectorStore,
    Record,
    SQLiteVectorStore,
)
from lib.vector.records import Layout
from servers import postgres

KEPT: dict[str, Callable[[Path], Any]] = {
    "sqlite": lambda place: SQLiteVectorStore(place / "v.db", dimension=3),
    "lancedb": lambda place: LanceDBVectorStore(place / "l", dimension=3),
    "qdrant": lambda place: QdrantVectorStore(dimension=3, path=str(place / "q")),
    "chroma": lambda place: ChromaVectorStore(dimension=3, path=str(place / "c")),
    "postgres": lambda _: PostgresVectorStore("postgresql://", dimension=3),
}


@pytest.mark.parametrize("name", KEPT)
async def test_a_closed_store_tells_nothing(tmp_path: Path, name: str) -> None:
    store = KEPT[name](tmp_path)
    await store.close()

    with pytest.raises(StoreClosed):
        await store.existing()


async def test_a_store_that_is_open_tells_the_same(tmp_path: Path) -> None:
    for name in ("sqlite", "lancedb", "qdrant", "chroma"):
        store = KEPT[name](tmp_path)
        await store.setup()
        await store.upsert([Record("a", [1.0, 2.0, 3.0])])

        assert await store.existing() == Layout(dimension=3, metric="cosine")
        assert await store.count() == 1
        await store.close()


@pytest.mark.parametrize("name", ["sqlite", "lancedb", "qdrant", "chroma"])
async def test_asking_leaves_the_files_as_they_are(tmp_path: Path, name: str) -> None:
    async def ask() -> None:
        store = KEPT[name](tmp_path)
        assert await store.existing() == Layout(dimension=3, metric="cosine")
        await store.close()

    def files() -> set[Path]:
        return {place.relative_to(tmp_path) for place in tmp_path.rglob("*")}

    store = KEPT[name](tmp_path)
    await store.upsert([Record("a", [1.0, 2.0, 3.0])])
    await store.close()
    before = files()
    await ask()

    assert files() == before


async def test_a_sqlite_file_in_memory_is_nowhere() -> None:
    assert (await SQLiteVectorStore(dimension=2).existing()) is None


async def test_another_sqlite_table_and_a_newer_one_are_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "v.db") as connection:
        connection.execute("CREATE TABLE lib_vectors (x)")
    connection.close()
    with pytest.raises(StoreCorrupt):
        await KEPT["sqlite"](tmp_path).existing()

    store = SQLiteVectorStore(tmp_path / "n.db", dimension=2)
    await store.setup()
    await store.close()
    with sqlite3.connect(tmp_path / "n.db") as connection:
        connection.execute("UPDATE lib_vectors_layout SET value = 9 WHERE key = 'layout'")
    connection.close()
    with pytest.raises(SchemaTooNew):
        await SQLiteVectorStore(tmp_path / "n.db", dimension=2).existing()


async def test_another_collection_of_qdrant_is_refused() -> None:
    from qdrant_client import AsyncQdrantClient, models

    client = AsyncQdrantClient(location=":memory:")
    one = models.VectorParams(size=3, distance=models.Distance.DOT)
    await client.create_collection("lib_vectors", vectors_config={"named": one})
    with pytest.raises(StoreCorrupt, match="name another"):
        await QdrantVectorStore(dimension=3, client=client).existing()

    await client.create_collection("odd", vectors_config=one)
    odd = QdrantVectorStore(dimension=3, client=client, collection="odd", metric="dot")
    await odd.upsert([Record("a", [1.0, 2.0, 3.0])], namespace="n")
    (point,), _ = await client.scroll("odd", with_payload=True)
    namespace = next(key for key, value in (point.payload or {}).items() if value == "n")
    stranger = models.PointStruct(id=1, vector=[1.0, 2.0, 3.0], payload={namespace: "n"})
    await client.upsert("odd", [stranger])
    with pytest.raises(StoreCorrupt, match="has not written"):
        await odd.scan(namespace="n")
    await client.close()


async def test_all_ids_of_qdrant_are_read_however_many_there_are() -> None:
    store = QdrantVectorStore(dimension=1, location=":memory:", metric="dot")
    names = [f"{number:04}" for number in range(2050)]
    await store.upsert([Record(name, [1.0]) for name in names])

    found = await store.scan(limit=2049)
    assert [record.id for record in found] == names[:2049]
    assert [record.id for record in await store.scan(after=found[-1].id)] == names[2049:]
    await store.close()


async def test_another_table_of_lancedb_is_refused(tmp_path: Path) -> None:
    import lancedb

    connection = await cast(Any, lancedb).connect_async(str(tmp_path / "l"))
    await connection.create_table("lib_vectors", [{"x": 1}])
    connection.close()
    with pytest.raises(StoreCorrupt, match="name another"):
        await KEPT["lancedb"](tmp_path).existing()
    other = LanceDBVectorStore(tmp_path / "l", dimension=2, table="other")
    assert (await other.existing()) is None


async def test_another_table_of_postgresql_is_refused_and_one_without_a_metric_tells_none() -> None:
    url = postgres.fresh_url()
    psycopg: Any = pytest.importorskip("psycopg")

    def execute(*statements: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    async def existing(table: str) -> Layout | None:
        store = PostgresVectorStore(url, dimension=7, table=table)
        try:
            return await store.existing()
        finally:
            await store.close()

    assert (await existing("first")) is None
    execute(
        "CREATE EXTENSION vector",
        "CREATE TABLE theirs (namespace text, id text, v vector(2), text text, meta jsonb,"
        " PRIMARY KEY (namespace, id))",
        "CREATE TABLE other (x text)",
    )
    assert (await existing("theirs")) == Layout(dimension=2, metric=None)
    with pytest.raises(StoreCorrupt):
        await existing("other")
    execute("COMMENT ON COLUMN theirs.v IS 'lib.vector layout=9 metric=dot'")
    with pytest.raises(SchemaTooNew):
        await existing("theirs")


async def test_a_missing_server_is_an_error() -> None:
    store = PostgresVectorStore("postgresql://127.0.0.1:1/none", dimension=2)
    with pytest.raises(StoreUnavailable):
        await store.existing()
    await store.close()
