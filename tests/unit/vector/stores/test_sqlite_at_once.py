"""Queries that a SQLite store answers from memory, on the event loop: never out of date."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from lib.errors import StoreClosed, StoreCorrupt
from lib.vector import InMemoryVectorStore, Match, Record, SQLiteVectorStore
from lib.vector.stores.sqlite import walindex
from lib.vector.stores.sqlite.database import Database

from .sqlite_at_once_kit import RECORDS, noted


def alter(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(statement)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    return noted(monkeypatch)


@pytest.mark.parametrize("name", [":memory:", "vectors.db"])
@pytest.mark.parametrize("filter", [None, {"x": 1}])
async def test_a_repeated_query_is_answered_from_memory(
    name: str, filter: dict[str, Any] | None, tmp_path: Path, queries: list[bool]
) -> None:
    path = name if name == ":memory:" else tmp_path / name
    store, same = SQLiteVectorStore(path, dimension=2), InMemoryVectorStore()
    for each in (store, same):
        await each.upsert(RECORDS)
    for include_vectors in (False, True):
        expected = await same.query([1.0, 3.0], 4, filter=filter, include_vectors=include_vectors)
        for _ in range(3):
            found = await store.query([1.0, 3.0], 4, filter=filter, include_vectors=include_vectors)
            assert found == expected
            found[0].meta["x"] = "changed"
    await store.close()
    assert len(queries) == 1


async def test_rows_that_were_not_found_before_are_read_and_not_searched_again(
    tmp_path: Path, queries: list[bool]
) -> None:
    store = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
    await store.upsert(RECORDS)
    assert [match.id for match in await store.query([1.0, 0.0], 2)] == ["0", "1"]
    assert [match.text for match in await store.query([1.0, 0.0], 3)][2:] == ["text 2"]
    assert len(await store.query([1.0, 0.0], 3)) == 3
    await store.close()
    assert queries == [False, True]


async def test_a_search_is_repeated_after_a_concurrent_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, near = tmp_path / "vectors.db", list[bool]()
    nearest = Database.nearest

    async def late(self: Database, plan: Any, remembered: Any) -> list[Match]:
        near.append(remembered is not None)
        if remembered is not None:
            alter(path, "DELETE FROM lib_vectors WHERE id = '1'")
        return await nearest(self, plan, remembered)

    monkeypatch.setattr(Database, "nearest", late)
    store = SQLiteVectorStore(path, dimension=2)
    await store.upsert(RECORDS)
    assert [match.id for match in await store.query([1.0, 0.0], 2)] == ["0", "1"]
    assert [match.id for match in await store.query([1.0, 0.0], 3)] == ["0", "2", "3"]
    await store.close()
    assert near == [False, True]


async def test_a_store_sees_its_own_writes_in_the_next_query(
    tmp_path: Path, queries: list[bool]
) -> None:
    store, same = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2), InMemoryVectorStore()
    chance = random.Random(7)
    for step in range(200):
        name = str(chance.randrange(60))
        record = Record(name, [1.0, chance.random()], f"step {step}", {"x": step % 3})
        for each in (store, same):
            if step % 5:
                await each.upsert([record])
            else:
                await each.delete([name])
        for filter in (None, {"x": 1}, None, {"x": 1}):
            found = await store.query([1.0, 0.5], 40, filter=filter)
            assert found == await same.query([1.0, 0.5], 40, filter=filter)
    await store.close()
    assert 200 < len(queries) <= 500


async def test_queries_run_after_the_writes_submitted_before(
    tmp_path: Path,
) -> None:
    store = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
    await store.upsert(RECORDS)
    await store.query([1.0, 0.0], 1)
    for step in range(20):
        _, (match,) = await asyncio.gather(
            store.upsert([Record("0", [1.0, 0.0], f"step {step}")]), store.query([1.0, 0.0], 1)
        )
        assert match.text == f"step {step}"
    await store.close()


async def test_closing_waits_for_a_running_query_and_refuses_later_ones(
    tmp_path: Path,
) -> None:
    store = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
    await store.upsert(RECORDS)
    waiting = asyncio.create_task(store.query([1.0, 0.0], 1))
    await asyncio.wait([waiting], timeout=0)
    closes = asyncio.create_task(store.close())
    await asyncio.wait([closes], timeout=0)
    with pytest.raises(StoreClosed):
        await store.query([1.0, 0.0], 1)
    assert [match.id for match in await waiting] == ["0"]
    await closes
    with pytest.raises(StoreClosed):
        await store.query([1.0, 0.0], 1)


async def test_a_query_that_was_cancelled_does_not_keep_the_next_ones_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: list[bool]
) -> None:
    begun, go_on = Event(), Event()
    count = Database.count

    async def slowly(self: Database, *given: Any) -> int:
        begun.set()
        go_on.wait(10)
        return await count(self, *given)

    monkeypatch.setattr(Database, "count", slowly)

    store = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
    await store.upsert(RECORDS)
    expected = await store.query([1.0, 0.0], 1)
    counting = asyncio.create_task(store.count())
    await asyncio.to_thread(begun.wait, 10)
    waiting = asyncio.create_task(store.query([1.0, 0.0], 1))
    await asyncio.wait([waiting], timeout=0)
    for task in (counting, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    held = asyncio.create_task(store.query([1.0, 0.0], 1))
    await asyncio.wait([held], timeout=0.01)
    assert not held.done()  # the count is still under way
    go_on.set()
    assert await held == expected
    assert len(queries) == 2
    assert await store.query([1.0, 0.0], 1) == expected
    assert len(queries) == 2
    await store.close()


@pytest.mark.parametrize(("k", "include_vectors"), [(80, False), (20, True)])
async def test_large_answers_are_made_off_the_event_loop(
    tmp_path: Path, queries: list[bool], k: int, include_vectors: bool
) -> None:
    store = SQLiteVectorStore(tmp_path / "vectors.db", dimension=1024)
    rows = np.random.default_rng(7).standard_normal((100, 1024))
    await store.upsert([Record(str(row), vector) for row, vector in enumerate(rows)])
    for _ in range(3):
        await store.query(rows[0], k, include_vectors=include_vectors)
    assert queries == [False, False, False]
    for _ in range(3):
        await store.query(rows[0], 10)
    assert queries == [False, False, False]
    await store.close()


@pytest.mark.parametrize("cache_bytes", [0, 16 * 1_000])
async def test_however_little_of_what_was_found_is_kept_everything_is_found(
    cache_bytes: int,
) -> None:
    store = SQLiteVectorStore(dimension=2, cache_bytes=cache_bytes)
    large = Record("large", [1.0, 0.0], "", {"x": "y" * 10_000})
    await store.upsert([*RECORDS, large])
    for _ in range(3):
        found = await store.query([1.0, 0.0], 21)
        assert {match.id: match.text for match in found} == {
            record.id: record.text for record in [*RECORDS, large]
        }
        assert next(match.meta for match in found if match.id == "large") == large.meta
        assert len(await store.query([1.0, 19.0], 1)) == 1
    await store.close()


@pytest.mark.parametrize("reason", ["not mapped", "gone", "too many"])
async def test_where_the_header_cannot_be_read_every_query_asks_the_file(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: list[bool]
) -> None:
    def refuse(_: object) -> bool:
        if reason == "not mapped":
            return False
        raise FileNotFoundError

    if reason == "too many":
        monkeypatch.setattr(walindex, "_held", [])
        monkeypatch.setattr(walindex, "_MOST_HELD", 0)
    else:
        monkeypatch.setattr(walindex, "_is_shared", refuse)

    store = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
    await store.upsert(RECORDS)
    for _ in range(3):
        assert [match.id for match in await store.query([1.0, 0.0], 2)] == ["0", "1"]
    await store.close()
    assert queries == [False, False, False]


async def test_damaged_metadata_is_reported_each_time(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"

    store = SQLiteVectorStore(path, dimension=2)
    await store.upsert(RECORDS)
    await asyncio.to_thread(alter, path, "UPDATE lib_vectors SET meta = '{'")
    for _ in range(3):
        with pytest.raises(StoreCorrupt):
            await store.query([1.0, 0.0], 2)
    await store.close()
