"""Tests the end of calls and stores of LanceDB, and empty or dropped places."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.errors import DimensionMismatch, StoreClosed, StoreUnavailable
from lib.vector import Record
from lib.vector.records import Layout
from lib.vector.stores.lancedb import table
from lib.vector.stores.lancedb.config import TableConfig
from lib.vector.validate import checked_batch

from .lancedb_kit import Driver, store_at

CONFIG = TableConfig(
    uri="", table="t", dimension=2, metric="cosine", storage_options=None, initial_batch=64
)


def files(place: Path) -> list[Path]:
    return sorted(place.rglob("*"))


async def drop(place: Path) -> None:
    connection = await Driver.connect_async(str(place))
    await connection.drop_table("lib_vectors")
    connection.close()


async def test_a_store_is_closed_after_the_calls_that_run(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((4000, 2)).astype(np.float32)
    records = [Record(str(row), vector, "", {"x": row % 9}) for row, vector in enumerate(vectors)]
    store = store_at(tmp_path)
    await store.upsert(records)
    await store.close()
    for delay_s in (0.0, 0.002, 0.005, 0.01, 0.02):
        store = store_at(tmp_path)
        await store.setup()
        calls = [
            asyncio.create_task(store.query(vector, 5, filter={"x": 1})) for vector in vectors[:4]
        ]
        await asyncio.wait(calls, timeout=delay_s)
        closing = asyncio.create_task(store.close())
        await asyncio.wait([closing], timeout=0)
        with pytest.raises(StoreClosed):
            await store.count()
        closing.cancel()
        await store.close()

        assert all(call.done() for call in calls)
        for found in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(found, StoreClosed) or len(found) == 5  # pyright: ignore[reportArgumentType] - else it fails, and should


async def test_a_store_that_is_closed_while_it_opens_stays_closed(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    opening = asyncio.create_task(store.setup())
    await asyncio.wait([opening], timeout=0)
    waiting = asyncio.create_task(store.count())
    await asyncio.wait([waiting], timeout=0)
    await store.close()
    await asyncio.wait([opening, waiting])

    assert isinstance(waiting.exception(), StoreClosed)
    await store.close()


class Engine:
    """A table whose commit goes on when the call that waits for it is cancelled, as Rust's does."""

    def __init__(self) -> None:
        self.commits = list[str]()
        self.let = asyncio.Event()

    def merge_insert(self, _: Any) -> Any:
        return self

    def when_matched_update_all(self) -> Any:
        return self

    def when_not_matched_insert_all(self) -> Any:
        return self

    async def execute(self, _: Any) -> None:
        await asyncio.shield(asyncio.ensure_future(self.commit("upsert")))

    async def count_rows(self, _: str) -> int:
        return 1

    async def delete(self, _: str) -> None:
        await self.commit("delete")

    async def commit(self, name: str) -> None:
        await self.let.wait()
        self.commits.append(name)


async def test_a_cancelled_write_is_over_before_the_next_one_begins() -> None:
    engine = Engine()
    opened = table.Table(None, engine, CONFIG, 0)
    batch = checked_batch([Record("a", [1.0, 0.0])], metric="cosine", dimension=2)
    assert batch is not None
    upserting = asyncio.create_task(opened.upsert("", batch))
    await asyncio.wait([upserting], timeout=0.01)
    deleting = asyncio.create_task(opened.delete("", ["a"], None))
    for _ in range(2):
        upserting.cancel()
        await asyncio.wait([upserting, deleting], timeout=0.01)
        assert not upserting.done()
    engine.let.set()
    await deleting

    assert upserting.cancelled()
    assert engine.commits == ["upsert", "delete"]


@pytest.mark.parametrize("uri", ["{}", "file://{}", "file:{}", "FILE://localhost{}"])
async def test_asking_for_a_table_that_is_not_there_makes_nothing(tmp_path: Path, uri: str) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        store = store_at(uri.format(place))
        assert await store.existing() is None
        await store.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["{}", "file://{}", "file:{}", "file-object-store://{}"])
async def test_a_table_is_found_by_whatever_names_its_folder(tmp_path: Path, uri: str) -> None:
    store = store_at(uri.format(tmp_path / "a%20b"))
    await store.upsert([Record("a", [1.0, 0.0])])
    await store.close()
    before = await asyncio.to_thread(files, tmp_path)
    store = store_at(uri.format(tmp_path / "a%20b"), dimension=3)
    assert await store.existing() == Layout(dimension=2, metric="cosine")
    await store.close()

    assert await asyncio.to_thread(files, tmp_path) == before


async def test_a_folder_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="File name too long"):
        await store_at(tmp_path / ("x" * 300)).existing()


async def test_a_dropped_table_is_unavailable_until_the_next_setup(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    await store.upsert([Record("a", [1.0, 0.0])])
    await drop(tmp_path)
    with pytest.raises(StoreUnavailable):
        await store.upsert([Record("a", [1.0, 0.0])])
    with pytest.raises(StoreUnavailable):
        await store.delete(["a"])
    await store.setup()
    await store.upsert([Record("b", [1.0, 0.0])])
    await store.setup()

    assert [record.id for record in await store.scan()] == ["b"]
    await store.close()


async def test_a_table_that_was_made_anew_is_looked_at_by_setup(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    await store.setup()
    await drop(tmp_path)
    other = store_at(tmp_path, dimension=3)
    await other.setup()
    with pytest.raises(DimensionMismatch):
        await store.setup()
    for one in (store, other):
        await one.close()


async def test_a_relative_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = store_at("here")
    await store.setup()
    assert await store.existing() == Layout(dimension=2, metric="cosine")
    await store.close()
    assert [place.name for place in tmp_path.iterdir()] == ["here"]
