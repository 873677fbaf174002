"""Stores on a disk leave no byte of what was deleted, once they are purged."""

import asyncio
import sqlite3
from pathlib import Path
from random import Random

import pytest

from lib.errors import StoreError, StoreReadOnly
from lib.vector import LanceDBVectorStore, Record, SQLiteVectorStore
from lib.vector.contract import PurgingStore
from lib.vector.stores.sqlite import database

FORGOTTEN = b"forgotten"


def bytes_of(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_was_done_before_a_purged_file_holds_nothing_deleted(
    seed: int, tmp_path: Path
) -> None:
    random = Random(seed)

    def record(name: str, word: str) -> Record:
        text = f"{word} {word}{random.randrange(99)} {'x ' * random.randrange(400)}"
        return Record(name, [random.random(), 1.0], text, {word: word})

    store = SQLiteVectorStore(tmp_path / "v.db", dimension=2)
    assert isinstance(store, PurgingStore)
    for _ in range(12):
        words = ["kept"] * random.randrange(20) + ["forgotten"] * random.randrange(20)
        names = [f"{word}-{random.randrange(60)}" for word in words]
        await store.upsert([record(name, name.partition("-")[0]) for name in names])
        await store.delete([f"forgotten-{random.randrange(60)}" for _ in range(5)])
    await store.upsert([record("replaced", "forgotten"), record("replaced", "kept")])
    await store.delete([f"forgotten-{number}" for number in range(60)])
    left = await store.count()
    await store.purge()
    await store.purge()

    assert FORGOTTEN not in await asyncio.to_thread(bytes_of, tmp_path)
    assert await store.count() == left > 0
    assert await store.query_hybrid([1.0, 1.0], "kept", 1)
    await store.close()


class Impatient(SQLiteVectorStore):
    _busy_s = 0.01


async def test_a_file_with_an_open_reader_cannot_be_purged_yet(tmp_path: Path) -> None:
    path = tmp_path / "v.db"
    store = Impatient(path, dimension=2)
    await store.upsert([Record("1", [1.0, 0.0], "forgotten words")])
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM lib_vectors").fetchone()

    async def main() -> None:
        await store.delete(["1"])
        with pytest.raises(StoreError, match="purge it again"):
            await store.purge()
        await asyncio.to_thread(reader.close)
        await store.purge()

        assert FORGOTTEN not in await asyncio.to_thread(bytes_of, tmp_path)
        await store.close()

    try:
        await main()
    finally:
        reader.close()


async def test_a_file_without_a_full_text_index_is_purged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lib.vector.stores.sqlite.schema._QUERY_TABLES", ("CREATE nothing",))

    store = SQLiteVectorStore(tmp_path / "v.db", dimension=2)
    await store.upsert([Record("1", [1.0, 0.0], "forgotten")])
    await store.delete(["1"])
    await store.purge()
    await store.close()
    assert FORGOTTEN not in bytes_of(tmp_path)


async def test_a_file_that_cannot_be_written_is_not_purged(tmp_path: Path) -> None:
    path = tmp_path / "v.db"

    async def refuse_writes(opened: database.Database) -> None:
        opened._connection.execute("PRAGMA query_only=1")  # pyright: ignore[reportPrivateUsage] - a disk that refuses, even to root

    async def purge() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        await store.setup()
        await store._run(refuse_writes)  # pyright: ignore[reportPrivateUsage] - a disk that refuses, even to root
        with pytest.raises(StoreReadOnly):
            await store.purge()
        await store.close()

    store = SQLiteVectorStore(path, dimension=2)
    await store.setup()
    await store.close()
    await purge()


async def test_an_empty_lancedb_table_is_purged_too(tmp_path: Path) -> None:
    store = LanceDBVectorStore(tmp_path, dimension=2)
    await store.upsert([Record("1", [1.0, 0.0], "forgotten")])
    await store.delete(["1"])
    await store.purge()

    assert FORGOTTEN not in await asyncio.to_thread(bytes_of, tmp_path)
    assert await store.count() == 0
    await store.close()
