"""Queries that a SQLite store answers from memory, on the event loop: never out of date."""

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.errors import StoreClosed, StoreCorrupt
from lib.vector import F, InMemoryVectorStore, Record, SQLiteVectorStore
from lib.vector.exact.search import row_lengths
from lib.vector.offload import is_small
from lib.vector.stores.sqlite.cache import CachedNamespace, QueryPlan

from .sqlite_at_once_kit import RECORDS, CountingStore


def alter(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(statement)


@pytest.mark.parametrize("name", [":memory:", "vectors.db"])
@pytest.mark.parametrize("filter", [None, {"x": 1}])
async def test_a_repeated_query_is_answered_from_memory(
    name: str, filter: dict[str, Any] | None, tmp_path: Path
) -> None:
    path = name if name == ":memory:" else tmp_path / name
    store, same = CountingStore(path, dimension=2), InMemoryVectorStore()
    for each in (store, same):
        await each.upsert(RECORDS)
    for include_vectors in (False, True):
        expected = await same.query([1.0, 3.0], 4, filter=filter, include_vectors=include_vectors)
        for _ in range(3):
            found = await store.query([1.0, 3.0], 4, filter=filter, include_vectors=include_vectors)
            assert found == expected
            found[0].meta["x"] = "changed"
    await store.close()
    # the namespace, the column of the filter, the records
    assert store.visits == (2 if filter is None else 3)


async def test_rows_that_were_not_found_before_are_read_and_not_searched_again(
    tmp_path: Path,
) -> None:
    store = CountingStore(tmp_path / "vectors.db", dimension=2)
    await store.upsert(RECORDS)
    assert [match.id for match in await store.query([1.0, 0.0], 2)] == ["0", "1"]
    assert store.visits == 2
    assert [match.text for match in await store.query([1.0, 0.0], 3)][2:] == ["text 2"]
    assert store.visits == 3
    assert len(await store.query([1.0, 0.0], 3)) == 3
    await store.close()
    assert store.visits == 3


async def test_filters_on_fields_that_were_read_are_answered_from_memory_whatever_they_say(
    tmp_path: Path,
) -> None:
    store, same = CountingStore(tmp_path / "vectors.db", dimension=2), InMemoryVectorStore()
    records = [
        Record(str(row), [1.0, row], "", {"user": f"u{row % 50}", "n": row}) for row in range(500)
    ]
    for each in (store, same):
        await each.upsert(records)
    await store.query([1.0, 0.0], 500, filter=F("user").exists() & F("n").exists())
    visits = store.visits
    for user in range(50):
        for filter in (F("user") == f"u{user}", (F("n") < 3 * user) & (F("user") != f"u{user}")):
            found = await store.query([1.0, 0.0], 5, filter=filter)
            assert found == await same.query([1.0, 0.0], 5, filter=filter)
            assert await store.count(filter=filter) == await same.count(filter=filter)
    await store.upsert([Record("new", [1.0, 0.0], "", {"user": "u7", "n": 1})])
    assert [match.id for match in await store.query([1.0, 0.0], 1, filter={"user": "u7"})] == [
        "new"
    ]
    await store.close()
    assert store.visits <= visits + 101  # one for each count, and one for the new record


async def test_a_search_is_repeated_after_a_concurrent_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vectors.db"
    store = CountingStore(path, dimension=2)
    await store.upsert(RECORDS)
    assert [match.id for match in await store.query([1.0, 0.0], 2)] == ["0", "1"]
    store.before = lambda: alter(path, "DELETE FROM lib_vectors WHERE id = '1'")
    assert [match.id for match in await store.query([1.0, 0.0], 3)] == ["0", "2", "3"]
    await store.close()


async def test_a_store_sees_its_own_writes_in_the_next_query(tmp_path: Path) -> None:
    store, same = CountingStore(tmp_path / "vectors.db", dimension=2), InMemoryVectorStore()
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
    assert store.visits <= 500


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


async def test_queries_wait_for_writes_to_their_namespace_alone(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    store = SQLiteVectorStore(path, dimension=2)
    for name in ("here", "there"):
        await store.upsert(RECORDS, namespace=name)
        assert len(await store.query([1.0, 0.0], 1, filter={"x": 0}, namespace=name)) == 1
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        record = Record("0", [1.0, 0.0], "new", {"x": 0})
        writing = asyncio.create_task(store.upsert([record], namespace="there"))
        await asyncio.wait([writing], timeout=0.01)
        for _ in range(100):  # the thread of the file is busy all the while
            (match,) = await store.query([1.0, 0.0], 1, filter={"x": 0}, namespace="here")
            assert match.text == "text 0"
        cancelled, waiting = (
            asyncio.create_task(store.query([1.0, 0.0], 1, namespace="there")) for _ in range(2)
        )
        await asyncio.wait([cancelled, waiting], timeout=0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not writing.done()
        assert not waiting.done()
        await asyncio.to_thread(other.execute, "ROLLBACK")
    await writing
    assert [match.text for match in await waiting] == ["new"]
    await store.close()


async def test_queries_that_one_write_has_kept_waiting_share_the_loop_with_others(
    tmp_path: Path,
) -> None:
    store, rows = SQLiteVectorStore(tmp_path / "vectors.db", dimension=1024), 1_400
    vectors = np.random.default_rng(7).standard_normal((rows, 1024))
    await store.upsert([Record(str(row), vector) for row, vector in enumerate(vectors)])
    await store.query(vectors[0], 1)
    ended, rounds, running = list[int](), 0, True

    def count() -> None:
        nonlocal rounds
        rounds += 1
        if running:
            asyncio.get_running_loop().call_soon(count)

    async def query() -> None:
        await store.query(vectors[0], 1)
        ended.append(rounds)

    count()
    await asyncio.gather(store.upsert([Record("0", vectors[0])]), *(query() for _ in range(32)))
    running = False
    await store.close()
    assert max(Counter(ended).values()) < 32  # a millisecond of them in each round


async def test_a_namespace_that_is_read_lets_other_calls_have_their_turns_and_follows_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vectors.db"
    store, same = CountingStore(path, dimension=2), InMemoryVectorStore()
    records = [Record(str(row), [1.0, row], "", {"a": row}) for row in range(10_000)]
    for each in (store, same):
        await each.upsert(records)
    reading = [asyncio.create_task(store.query([1.0, 0.5], 100)) for _ in range(3)]
    await asyncio.wait(reading, timeout=0)
    later = [Record("1", [1.0, 9.0]), Record("9999", [1.0, 0.6]), Record("new", [1.0, 0.7])]
    for each in (store, same):  # after a part of the rows
        await each.delete([str(row) for row in (0, 5, 9_998)])
        await each.upsert(later)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:  # takes the row of another
        other.execute("UPDATE lib_vectors SET namespace = 'x', rid = 1 WHERE id = '9997'")
    await same.delete(["9997"])
    assert not any(task.done() for task in reading)
    await asyncio.wait(reading)
    for filter in (None, F("a") < 50):
        expected = await same.query([1.0, 0.5], 100, filter=filter)
        assert await store.query([1.0, 0.5], 100, filter=filter) == expected
    await store.close()


async def test_a_filter_on_a_new_field_lets_other_calls_have_their_turns(tmp_path: Path) -> None:
    store = CountingStore(tmp_path / "vectors.db", dimension=2)
    records = [Record(str(row), [1.0, row], "", {"a": row, "b": row}) for row in range(10_000)]
    await store.upsert(records)
    await store.query([1.0, 0.0], 1)
    cold = [asyncio.create_task(store.query([1.0, 0.0], 1, filter=F("a") >= row)) for row in (5, 6)]
    await asyncio.wait(cold, timeout=0)
    assert len(await store.get(["7"])) == 1  # after a part of the column
    assert not any(task.done() for task in cold)
    assert [match.id for task in cold for match in await task] == ["5", "6"]
    # the rows, the record; get; the column, and that it is there, which the second query may have
    # to look up by itself; the records
    assert store.visits - (5 + 1 + 1 + 10 + 1 + 2) in {0, 1}
    await store.close()


@pytest.mark.parametrize(
    ("k", "include_vectors", "small"), [(10, False, True), (80, False, False), (20, True, False)]
)
async def test_large_answers_are_made_off_the_event_loop(
    k: int, include_vectors: bool, small: bool
) -> None:
    rows = np.random.default_rng(7).standard_normal((100, 1024)).astype(np.float32)
    cached = CachedNamespace("dot", 1024, 0)
    names, nothing = [str(row) for row in range(100)], dict[str, Any]()
    cached.upsert(names, rows, row_lengths(rows), [(0, nothing)] * 100)
    plan = QueryPlan(
        namespace="", vector=rows[0], k=k, filter=None, include_vectors=include_vectors
    )
    assert is_small(plan.effort(cached.snapshot, cached.snapshot.living)) is small


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


async def test_damaged_metadata_is_reported_each_time(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"

    store = SQLiteVectorStore(path, dimension=2)
    await store.upsert(RECORDS)
    await asyncio.to_thread(alter, path, "UPDATE lib_vectors SET meta = '{'")
    for _ in range(3):
        with pytest.raises(StoreCorrupt):
            await store.query([1.0, 0.0], 2)
    await store.close()
