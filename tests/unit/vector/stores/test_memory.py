"""Tests what the in-memory store does beside the contract: dimensions, threads, and their order."""

import asyncio
from threading import Event, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

from lib.errors import DimensionMismatch
from lib.vector import EVERYTHING, F, InMemoryVectorStore, Record
from lib.vector.stores import memory


def many(count: int, dimension: int, *, seed: int = 0, **meta: Any) -> list[Record]:
    noise = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return [Record(f"{row:06}", noise[row], "", {"row": row, **meta}) for row in range(count)]


async def test_the_first_vector_settles_the_dimension() -> None:
    store = InMemoryVectorStore()
    assert store.dimension is None
    assert await store.query([1.0, 2.0, 3.0]) == []
    with pytest.raises(DimensionMismatch):
        await store.upsert([Record("a", [1.0, 2.0]), Record("b", [1.0])])
    assert store.dimension is None
    await store.upsert([Record("a", [1.0, 2.0])])
    await store.delete(filter=EVERYTHING)
    assert store.dimension == 2
    with pytest.raises(DimensionMismatch):
        await store.upsert([Record("a", [1.0])], namespace="other")


def test_impossible_stores_are_refused() -> None:
    for dimension in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="dimension"):
            InMemoryVectorStore(dimension)  # type: ignore[arg-type] - on purpose
    with pytest.raises(ValueError, match="metric"):
        InMemoryVectorStore(2, "manhattan")  # type: ignore[arg-type] - on purpose


async def test_a_scan_that_has_begun_does_not_see_later_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = Event(), Event()
    nearest = memory.nearest

    def waiting(*arguments: Any, **options: Any) -> Any:
        begun.set()
        go_on.wait(10)
        return nearest(*arguments, **options)

    def much(*_: object) -> int:
        return 10**9

    store = InMemoryVectorStore(metric="dot")
    records = many(20_000, 64, version=1)
    await store.upsert(records)
    query = records[0].vector
    expected = await store.query(query, 20, include_vectors=True)
    monkeypatch.setattr(memory, "nearest", waiting)
    monkeypatch.setattr(memory, "effort", much)
    scan = asyncio.create_task(store.query(query, 20, include_vectors=True))
    await asyncio.to_thread(begun.wait, 10)
    await store.upsert(many(20_000, 64, seed=1, version=2))
    await store.delete(filter=F("row") < 15_000)
    await store.upsert([Record("new", query)])
    go_on.set()

    assert await scan == expected
    assert await store.count() == 5_001


async def test_the_event_loop_goes_on_while_a_large_namespace_is_searched() -> None:
    store = InMemoryVectorStore()
    await store.upsert(many(20_000, 128))
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.wait([searching], timeout=0)

    searching = asyncio.create_task(store.query([1.0] * 128))
    ticking = asyncio.create_task(tick())
    await searching
    ticking.cancel()
    assert turns > 1


async def test_a_cancelled_write_is_whole_and_the_next_one_follows() -> None:
    store = InMemoryVectorStore()
    for _ in range(5):
        large = asyncio.create_task(store.upsert(many(2_000, 16)))
        await asyncio.wait([large], timeout=0.001)
        large.cancel()
        await asyncio.wait([large])
        assert await store.count() in (0, 2_000)
        await store.upsert([Record("000000", [1.0] * 16, "last")])
        (last,) = await store.get(["000000"])
        assert last.text == "last"
        await store.delete(filter=EVERYTHING)


async def test_writers_and_readers_at_once_leave_what_the_writers_wrote() -> None:
    store = InMemoryVectorStore()

    async def write(name: str) -> None:
        for number in range(20):
            await store.upsert(
                [Record(f"{name}{row}", [1.0, number], f"word{number}") for row in range(20)]
            )
            await store.delete([f"{name}{row}" for row in range(10)])

    async def read() -> None:
        for number in range(40):
            for match in await store.query_hybrid([1.0, 0.0], f"word{number}", 50):
                assert match.text.startswith("word")
            await store.query([1.0, 0.0], filter=F("x").exists(present=False))

    await asyncio.gather(*(write(name) for name in "abc"), *(read() for _ in range(4)))
    found = await store.query_hybrid([1.0, 0.0], "word19", 100)
    assert sorted(match.id for match in found) == sorted(
        f"{name}{row}" for name in "abc" for row in range(10, 20)
    )
    assert all(match.text == "word19" for match in found)


async def test_words_follow_the_rows_when_they_move() -> None:
    store = InMemoryVectorStore()
    for number in range(400):
        await store.upsert([Record(str(number), [1.0, 0.0], f"word{number} apple")])
        if number % 50 == 0:
            await store.query_hybrid([1.0, 0.0], "apple")
    for number in range(0, 400, 2):
        await store.delete([str(number)])
    fresh = InMemoryVectorStore()
    await fresh.upsert(
        [Record(str(number), [1.0, 0.0], f"word{number} apple") for number in range(1, 400, 2)]
    )
    for text in ("word7 apple", "word8", "apple", "word399 word1 word1"):
        found = await store.query_hybrid([1.0, 0.0], text, 20)
        assert found == await fresh.query_hybrid([1.0, 0.0], text, 20)


async def test_ids_are_deleted_without_looking_at_every_row() -> None:
    store = InMemoryVectorStore(metric="dot")
    await store.upsert(many(300, 4))
    await store.delete(["000001", "unknown"])
    backend = await store._opened()  # pyright: ignore[reportPrivateUsage] - no other sign
    (partition,) = backend._partitions.values()  # pyright: ignore[reportPrivateUsage] - no other sign
    assert "living" not in vars(partition.snapshot)
    assert await store.count() == 299
    await store.delete(["000002", "000003"], filter={"row": 3})
    await store.delete(["unknown"])
    await store.delete(["000004"], namespace="unknown")
    await store.delete(filter=F("row") == -1)
    await store.delete(filter=F("row").in_([]))
    assert [record.id for record in await store.get(["000002", "000003", "000004"])] == [
        "000002",
        "000004",
    ]


@pytest.mark.parametrize("change", ["delete", "upsert"])
async def test_the_event_loop_goes_on_while_rows_wait_to_move(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    indexing, go_on = Event(), Event()

    def waiting(text: str) -> list[str]:
        indexing.set()
        if not go_on.wait(2):
            go_on.set()
        return text.split()

    store = InMemoryVectorStore(metric="dot")
    records = many(256, 2)
    await store.upsert(records)
    await store.delete([record.id for record in records[:60]])
    monkeypatch.setattr(memory, "analyze", waiting)
    found = asyncio.create_task(store.query_hybrid([1.0, 0.0], "apple"))
    await asyncio.to_thread(indexing.wait, 5)
    last = records[60:70]  # so few that they alone would not be worth a thread
    work = store.delete([one.id for one in last]) if change == "delete" else store.upsert(last)
    changing = asyncio.create_task(work)
    await asyncio.wait([changing], timeout=0.01)
    assert not found.done()
    go_on.set()
    await asyncio.gather(found, changing)
    assert await store.count() == (186 if change == "delete" else 196)


async def test_many_records_are_copied_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied, threads = memory.copied, set[bool]()

    def noting(meta: dict[str, Any]) -> dict[str, Any]:
        threads.add(current_thread() is main_thread())
        return copied(meta)

    monkeypatch.setattr(memory, "copied", noting)

    store = InMemoryVectorStore(metric="dot")
    records = many(100, 128)
    await store.upsert(records)
    query, names = records[0].vector, [record.id for record in records]
    for work in (
        store.get(names),
        store.scan(),
        store.query(query, 1000),
        store.query(query, 70, include_vectors=True),
    ):
        threads.clear()
        await work
        assert threads == {False}
    for work in (store.get(names[:5]), store.query(query)):
        threads.clear()
        await work
        assert threads == {True}


async def test_words_of_a_record_are_found_while_a_write_replaces_it() -> None:
    store = InMemoryVectorStore(dimension=2)
    filler = [Record(str(row), [1.0, row], f"filler words number{row}") for row in range(3000)]
    same = [Record("x", [1.0, 0.0], "zebra")]
    await store.upsert(filler + same)
    found = asyncio.create_task(store.query_keywords("zebra", 5))
    fused = asyncio.create_task(store.query_hybrid([1.0, 0.0], "zebra", 1))
    for _ in range(6):  # both have seen the store, and texts are indexed in a thread
        await asyncio.wait([found], timeout=0)
    await store.upsert(same)

    assert [match.id for match in await found] == ["x"]
    assert await fused == await store.query_hybrid([1.0, 0.0], "zebra", 1)
    assert [match.id for match in await store.query_keywords("zebra", 5)] == ["x"]
