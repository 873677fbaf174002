"""A process is killed in the middle of an upsert: all of the batch is there, or none of it."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from lib.vector import InMemoryVectorStore

sys.path.insert(0, str(Path(__file__).parent))

from upserter import DIMENSION, SIZE, STORES

UPSERTER = Path(__file__).with_name("upserter.py")
MOMENTS = [0.05, 0.3, 0.6, 0.9]  # of the time that a batch takes


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", STORES)
async def test_a_killed_upsert_leaves_all_of_the_batch_or_none(
    kind: str, moment: float, tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    place = str(tmp_path / "place")
    stored = killed_while_upserting(kind, place, moment, unmeasured)

    await check(kind, place, stored)
    assert all(path.name.startswith("place") for path in tmp_path.iterdir())
    if kind.startswith("sqlite"):
        with closing(sqlite3.connect(place)) as connection:
            index = (
                "INSERT INTO lib_vectors_fts(lib_vectors_fts, rank) VALUES('integrity-check', 1)"
            )
            connection.execute(index)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_reader_shows_what_the_file_holds_each_time_a_writer_was_killed(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    place = str(tmp_path / "place")
    reader = STORES["sqlite"](place)
    await reader.setup()
    for moment in (*MOMENTS, *MOMENTS[::-1]):
        killed_while_upserting("sqlite", place, moment, unmeasured)

        records = await reader.scan(limit=10_000)
        same, fresh = InMemoryVectorStore(DIMENSION), STORES["sqlite"](place)
        await same.upsert(records)
        (number,) = {record.meta["n"] for record in records}
        for filter in (None, {"n": number}, {"n": number + 1}):
            expected = await same.query([1.0] * DIMENSION, 50, filter=filter)
            for store in (reader, fresh):
                assert await store.query([1.0] * DIMENSION, 50, filter=filter) == expected
                assert await store.count(filter=filter) == await same.count(filter=filter)
        await fresh.close()
        with closing(sqlite3.connect(place)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    await reader.close()


def killed_while_upserting(kind: str, place: str, moment: float, env: dict[str, str]) -> int:
    """Return the number of the last batch that the killed process knew to be stored."""
    command = [sys.executable, str(UPSERTER), kind, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, encoding="utf-8") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        started = time.perf_counter()
        assert process.stdout.readline() == "1\n"
        time.sleep(moment * (time.perf_counter() - started))
        process.kill()
        return int(["1", *process.stdout.read().split()][-1])


async def check(kind: str, place: str, stored: int) -> None:
    store = STORES[kind](place)
    await store.setup()
    records = await store.get([str(row) for row in range(SIZE)])
    (number,) = {record.meta["n"] for record in records}
    assert len(records) == await store.count() == SIZE
    assert number in {stored, stored + 1}
    query = [1.0] * DIMENSION
    for candidate in (stored - 1, stored, stored + 1):
        assert await store.count(filter={"n": candidate}) == (SIZE if candidate == number else 0)
        if hasattr(store, "query_hybrid"):
            (best,) = await store.query_hybrid(query, f"word{candidate}", 1)
            assert (best.score > 1 / 61) == (candidate == number)  # more than what a vector gives
    await store.close()
