"""Vectors of `SQLiteVectorStore` in scratch files: where they are, and what goes wrong there."""

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from lib.errors import StoreError
from lib.vector import InMemoryVectorStore, Metric, Record, SQLiteVectorStore, open_vector_store
from lib.vector.exact.search import nearest

RECORDS = [Record(f"{row:03}", [1.0, row / 100], f"word{row}", {"row": row}) for row in range(300)]
QUERY = [1.0, 0.5]
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]


@contextmanager
def files_up_to(size: int) -> Generator[None]:
    """Let no file of this process grow beyond a size: as a full disk does, writes fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def beside_memory(place: Path, scratch_dir: Path) -> SQLiteVectorStore:
    return SQLiteVectorStore(
        place / "vectors.db", dimension=2, cache_bytes=0, scratch_dir=scratch_dir
    )


def along_a_line(start: int, end: int) -> list[Record]:
    return [Record(f"{row:04}", [1.0, *[row / 1_000] * 255]) for row in range(start, end)]


def lines_beside_memory(folder: Path) -> SQLiteVectorStore:
    return SQLiteVectorStore(
        folder / "vectors.db",
        dimension=256,
        metric="euclidean",
        cache_bytes=0,
        scratch_dir=folder,
    )


def unnamed_files(folder: Path) -> list[str]:
    """Return the files in a directory that this process has open and that have no name."""
    found = list[str]()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:  # that of the directory itself
            continue
        if target.startswith(str(folder)) and target.endswith("(deleted)"):
            found.append(target)
    return found


async def test_vectors_lie_in_files_without_a_name_until_the_store_is_closed(
    tmp_path: Path,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with beside_memory(tmp_path, scratch) as store:
        await store.upsert(RECORDS)
        (best,) = await store.query(QUERY, 1)
        assert best.id == "050"
        assert unnamed_files(scratch)
        assert not list(scratch.iterdir())
    assert not unnamed_files(scratch)


async def test_few_vectors_stay_in_memory(tmp_path: Path) -> None:
    store = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2, scratch_dir=tmp_path)
    async with store:
        await store.upsert(RECORDS)
        assert len(await store.query(QUERY, 3)) == 3
        assert not unnamed_files(tmp_path)


async def test_purging_lets_go_of_what_was_erased(tmp_path: Path) -> None:
    async with beside_memory(tmp_path, tmp_path) as store:
        await store.upsert(RECORDS)
        await store.query(QUERY, 1)
        await store.delete(["050"])
        assert unnamed_files(tmp_path)

        await store.purge()

        assert not unnamed_files(tmp_path)
        assert "050" not in [match.id for match in await store.query(QUERY, 300)]


async def test_a_directory_that_takes_no_files_is_refused_at_once(tmp_path: Path) -> None:
    store = beside_memory(tmp_path, tmp_path / "missing")
    with pytest.raises(StoreError, match="missing"):
        await store.setup()
    await store.close()


async def test_a_query_fails_while_the_disk_is_full(tmp_path: Path) -> None:
    async with beside_memory(tmp_path, tmp_path) as store:
        await store.upsert(RECORDS)
        # less than the first room that a scratch file takes
        with files_up_to(900_000), pytest.raises(StoreError, match="no room for vectors"):
            await store.query(QUERY, 1)
        assert [match.id for match in await store.query(QUERY, 1)] == ["050"]


async def test_a_write_is_stored_where_only_the_scratch_file_has_no_room(tmp_path: Path) -> None:
    async with lines_beside_memory(tmp_path) as store:
        await store.upsert(along_a_line(0, 500))
        await store.query([1.0] * 256, 1)
        # more than the database takes, and less than a scratch file that has grown
        with files_up_to(2_050_000):
            await store.upsert(along_a_line(500, 1_020))
            with pytest.raises(StoreError, match="no room for vectors"):
                await store.query([1.0] * 256, 1)
        assert await store.count() == 1_020
        assert [match.id for match in await store.query([1.0] * 256, 1)] == ["1000"]


@pytest.mark.parametrize("call", ["upsert", "delete", "count", "query"])
async def test_calls_that_search_nothing_go_on_where_scratch_files_cannot_follow_others(
    call: str, tmp_path: Path
) -> None:
    async with lines_beside_memory(tmp_path) as store, lines_beside_memory(tmp_path) as other:
        await store.upsert(along_a_line(0, 500))
        await store.query([1.0] * 256, 1)
        await other.upsert(along_a_line(500, 1_020))
        with files_up_to(2_050_000):
            match call:
                case "upsert":
                    await store.upsert(along_a_line(1_020, 1_021))
                case "delete":
                    assert await store.delete(["0000"]) == 1
                case "count":
                    assert await store.count() == 1_020
                case _:
                    with pytest.raises(StoreError, match="no room for vectors"):
                        await store.query([1.0] * 256, 1)
        assert [match.id for match in await store.query([1.0] * 256, 1)] == ["1000"]


async def test_a_file_that_was_full_is_let_go(tmp_path: Path) -> None:
    async with lines_beside_memory(tmp_path) as store:
        await store.upsert(along_a_line(0, 500))
        with files_up_to(900_000), pytest.raises(StoreError, match="no room for vectors"):
            await store.query([1.0] * 256, 1)
        assert await store.count() == 500
        assert not unnamed_files(tmp_path)


async def test_a_file_lives_as_long_as_a_search_in_it(tmp_path: Path) -> None:
    """Tests that what replaces rows, moves them or closes the store changes no old snapshot."""
    store = beside_memory(tmp_path, tmp_path)
    await store.upsert(RECORDS)
    expected = await store.query(QUERY, 300)
    database = vars(store)["_database"]
    snapshot = database.current("")
    await store.delete([record.id for record in RECORDS[100:]])
    await store.upsert([Record("000", [0.5, 1.0])])
    await store.close()

    assert unnamed_files(tmp_path)
    found = nearest(
        snapshot.rows, np.array(QUERY, np.float32), 300, metric="cosine", among=snapshot.living
    )
    assert [(snapshot.rows.ids[row], score) for row, score in found] == [
        (match.id, match.score) for match in expected
    ]
    del snapshot, database
    assert not unnamed_files(tmp_path)


def test_stores_without_scratch_files_load_nothing_of_them() -> None:
    program = (
        "import sys; from lib.vector import InMemoryVectorStore, SQLiteVectorStore;"
        "SQLiteVectorStore(dimension=2); print('lib.vector.exact.scratch' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True
    )
    assert ended.stdout == "False\n"


def test_a_directory_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name of a directory, got ''"):
        SQLiteVectorStore(dimension=2, scratch_dir="")


async def test_a_directory_is_the_same_wherever_the_process_goes(tmp_path: Path) -> None:
    before = Path.cwd()
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path)
    try:
        store = beside_memory(tmp_path, Path("elsewhere"))
        os.chdir(tmp_path / "elsewhere")
        async with store:
            await store.upsert(RECORDS)
            await store.query(QUERY, 1)
            assert unnamed_files(tmp_path / "elsewhere")
    finally:
        os.chdir(before)


async def test_a_database_that_cannot_be_written_is_searched(tmp_path: Path) -> None:
    async with SQLiteVectorStore(tmp_path / "vectors.db", dimension=2) as store:
        await store.upsert(RECORDS)
        expected = await store.query(QUERY, 7, filter={"row": {"$gt": 60}})
    (tmp_path / "vectors.db").chmod(0o444)
    async with beside_memory(tmp_path, tmp_path) as store:
        assert await store.query(QUERY, 7, filter={"row": {"$gt": 60}}) == expected


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("number", [0.0, np.nan, np.inf])
async def test_vectors_that_another_program_has_spoiled_hide_no_others(
    number: float, metric: Metric, tmp_path: Path
) -> None:
    """Tests as many rows as have sketches."""
    path, noise = tmp_path / "vectors.db", np.random.default_rng(1)
    async with SQLiteVectorStore(path, dimension=4, metric=metric) as store:
        vectors = noise.standard_normal((2_500, 4))
        await store.upsert([Record(f"{row:04}", vector) for row, vector in enumerate(vectors)])
        best = [match.id for match in await store.query([1.0, 2.0, 3.0, 4.0], 5)]
    spoiled = [f"{row:04}" for row in range(0, 2_500, 50) if f"{row:04}" not in best]
    with closing(sqlite3.connect(path)) as connection, connection:
        blob = np.full(4, number, np.float32).tobytes()
        connection.executemany(
            "UPDATE lib_vectors SET vector = ? WHERE id = ?", [(blob, name) for name in spoiled]
        )
    async with SQLiteVectorStore(
        path, dimension=4, metric=metric, cache_bytes=0, scratch_dir=tmp_path
    ) as store:
        found = await store.query([1.0, 2.0, 3.0, 4.0], 5 + len(spoiled))
        assert [match.id for match in found if match.id not in spoiled][:5] == best


async def in_four_clusters(folder: Path, metric: Metric = "cosine") -> list[Record]:
    """Store rows of four clusters in turns, as many as have sketches, and return them."""
    noise = np.random.default_rng(2)
    vectors = np.eye(8)[np.arange(3_000) % 4] + noise.standard_normal((3_000, 8)) / 50
    records = [
        Record(f"{row:04}", vector, f"text {row}", {"row": row})
        for row, vector in enumerate(vectors)
    ]
    async with SQLiteVectorStore(folder / "vectors.db", dimension=8, metric=metric) as store:
        await store.upsert(records)
    return records


async def test_rows_that_are_like_each_other_lie_together(tmp_path: Path) -> None:
    records = await in_four_clusters(tmp_path)
    async with SQLiteVectorStore(
        tmp_path / "vectors.db", dimension=8, cache_bytes=0, scratch_dir=tmp_path
    ) as store:
        await store.query(records[0].vector, 1, filter={"row": 0})
        snapshot = vars(store)["_database"].current("")

    clusters = snapshot.rows.vectors.argmax(axis=1)
    assert np.count_nonzero(np.diff(clusters)) < 100


@pytest.mark.parametrize("metric", METRICS)
async def test_what_stands_beside_vectors_stays_with_them(metric: Metric, tmp_path: Path) -> None:
    records = await in_four_clusters(tmp_path, metric)
    store = SQLiteVectorStore(
        tmp_path / "vectors.db", dimension=8, metric=metric, cache_bytes=0, scratch_dir=tmp_path
    )
    async with InMemoryVectorStore(metric=metric) as memory, store:
        await memory.upsert(records)
        for change in range(3):
            for only in (None, {"row": {"$gt": 2_900}}, {"row": {"$lt": 300}}):
                query = records[5 + change].vector
                found = await store.query(query, 30, filter=only, include_vectors=True)
                assert found == await memory.query(query, 30, filter=only, include_vectors=True)
            some = [Record(f"{row:04}", [change] * 7 + [1], "new", {"row": row}) for row in (7, 99)]
            for changed in (memory, store):
                await changed.upsert(some)
                await changed.delete([f"{change + 200:04}"])


def test_vectors_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 4096 numbers, got dimension 5000"):
        SQLiteVectorStore(dimension=5_000, scratch_dir="/tmp")


async def test_a_url_names_the_directory(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/vectors.db?scratch_dir={tmp_path}/missing"
    store = open_vector_store(url, dimension=2)
    with pytest.raises(StoreError, match="missing"):
        await store.setup()
    await store.close()
