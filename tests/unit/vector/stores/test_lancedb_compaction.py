"""Tests when a LanceDB store merges its small files, and what comes of it among other writers."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from lib.errors import StoreUnavailable
from lib.vector import LanceDBVectorStore
from lib.vector.stores.lancedb import table
from lib.vector.stores.lancedb.config import TableConfig

from .lancedb_kit import driver_table, points, store_at


async def test_small_files_are_merged_and_old_versions_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_KEPT", timedelta(seconds=0.01))
    monkeypatch.setattr(table, "_WRITES_A_COMPACTION", 10)

    for row in range(4):  # stores that write only once are compacted, too
        store = store_at(tmp_path)
        await store.upsert(points(f"a{row}"))
        await store.close()
    store = store_at(tmp_path)
    for row in range(40):
        await store.upsert(points(f"b{row}"))
    driver = await driver_table(tmp_path)
    stats = await driver.stats()

    assert stats["fragment_stats"]["num_fragments"] < 11
    assert len(await driver.list_versions()) < 20
    assert await store.count() == 44
    await store.close()


async def test_a_large_table_is_compacted_after_more_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_WRITES_A_COMPACTION", 2)
    monkeypatch.setattr(table, "_ROWS_A_WRITE", 10)

    store = store_at(tmp_path)
    await store.upsert(points(*map(str, range(100))))
    driver = await driver_table(tmp_path)
    seen: list[int] = []
    for row in range(12):
        await store.upsert(points(f"new {row}"))
        seen.append((await driver.stats())["fragment_stats"]["num_fragments"])

    assert max(seen) == seen[8] == 10
    assert seen[-1] < 10
    await store.close()


async def test_a_writer_that_comes_between_puts_a_compaction_off_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_WRITES_A_COMPACTION", 2)

    async def write_some(store: LanceDBVectorStore, place: int) -> None:
        for row in range(10):
            await store.upsert(points(f"{place} {row}"))

    stores = [store_at(tmp_path) for _ in range(4)]
    await asyncio.gather(*(store.setup() for store in stores))
    await asyncio.gather(*(write_some(store, place) for place, store in enumerate(stores)))
    assert await stores[0].count() == 40
    for store in stores:
        await store.close()


@pytest.mark.parametrize("retryable", [True, False])
async def test_a_compaction_tolerates_a_conflict_with_another_writer_only(
    tmp_path: Path, retryable: bool
) -> None:
    class Busy:
        """A table that another process is writing."""

        async def count_rows(self) -> int:
            return 1

        async def optimize(self, **_: object) -> None:
            raise RuntimeError("Retryable commit conflict" if retryable else "disk full")

    config = TableConfig(
        uri="", table="t", dimension=2, metric="dot", storage_options=None, initial_batch=1
    )

    async def main() -> None:
        busy = table.Table(None, Busy(), config, 40)
        if retryable:
            await busy._compact()  # pyright: ignore[reportPrivateUsage] - the moment cannot be met
            return
        with pytest.raises(StoreUnavailable):
            await busy._compact()  # pyright: ignore[reportPrivateUsage] - the moment cannot be met

    await main()
