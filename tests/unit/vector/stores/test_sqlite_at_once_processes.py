"""Answers from memory of a SQLite store whose file other processes write, or die writing."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lib.vector import SQLiteVectorStore

from .sqlite_at_once_kit import RECORDS, CountingStore

# Runs one command per line, and prints "done" after each.
OTHER = """
import asyncio, json, sqlite3, sys
from lib.vector import Record, SQLiteVectorStore

async def main(path):
    store = SQLiteVectorStore(path, dimension=2)
    for line in sys.stdin:
        match json.loads(line):
            case ["upsert", *given]:
                await store.upsert([Record(*one) for one in given])
            case ["delete", *ids]:
                await store.delete(ids)
            case ["write and wait", size]:
                raw = sqlite3.connect(path, isolation_level=None)
                raw.execute("PRAGMA cache_size = 1")
                raw.execute("BEGIN IMMEDIATE")
                raw.execute("UPDATE lib_vectors SET text = ?", ("x" * size,))
            case ["scribble", place]:
                with open(path + "-shm", "r+b", buffering=0) as shared:
                    shared.seek(place)
                    shared.write(b"scribbled")
                    print("done", flush=True)
                    sys.stdin.readline()  # SQLite's locks go when the file is closed
        print("done", flush=True)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


class Other:
    """A store on the same file in another process."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def send(self, *command: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    async def does(self, *command: object) -> None:
        await asyncio.to_thread(self.send, *command)


@asynccontextmanager
async def another(path: Path) -> AsyncGenerator[Other]:
    other = await asyncio.to_thread(Other, path)
    try:
        yield other
    finally:
        await asyncio.to_thread(other.process.communicate)


async def test_a_write_of_another_process_is_seen_by_the_very_next_query(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    store = CountingStore(path, dimension=2)
    await store.upsert(RECORDS)
    async with another(path) as other:
        for step in range(100):
            before = store.visits
            await other.does("upsert", ["0", [1.0, 0.0], f"step {step}", {"step": step}])
            for _ in range(3):
                (match,) = await store.query([1.0, 0.0], 1)
                assert (match.text, match.meta) == (f"step {step}", {"step": step})
            assert store.visits == before + 2  # the other two came from memory
        await other.does("delete", "0")
        assert [match.id for match in await store.query([1.0, 0.0], 1)] == ["1"]
    await store.close()


async def test_a_writer_that_is_killed_changes_nothing_and_the_next_one_is_seen(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vectors.db"

    store = SQLiteVectorStore(path, dimension=2)
    await store.upsert(RECORDS)
    expected = await store.query([1.0, 0.0], 3)
    for step in range(3):
        async with another(path) as other:
            await other.does("write and wait", 100_000)  # so much that its log is written already
            assert await store.query([1.0, 0.0], 3) == expected
            other.process.send_signal(signal.SIGKILL)
        assert await store.query([1.0, 0.0], 3) == expected
        async with another(path) as other:
            await other.does("upsert", ["0", [1.0, 0.0], f"step {step}"])
            assert (await store.query([1.0, 0.0], 1))[0].text == f"step {step}"
        expected = await store.query([1.0, 0.0], 3)
    await store.close()


@pytest.mark.parametrize("place", [0, 16, 40, 48, 64, 88])
async def test_a_header_that_was_being_written_by_one_who_died_is_made_anew(
    tmp_path: Path, place: int
) -> None:
    path = tmp_path / "vectors.db"

    store = SQLiteVectorStore(path, dimension=2)
    await store.upsert(RECORDS)
    expected = await store.query([1.0, 0.0], 3)
    async with another(path) as other, another(path) as later:
        await other.does("scribble", place)
        for _ in range(3):
            assert await store.query([1.0, 0.0], 3) == expected
        await other.does()
        await later.does("upsert", ["0", [1.0, 0.0], "later"])
        for _ in range(2):
            assert (await store.query([1.0, 0.0], 1))[0].text == "later"
    await store.close()
