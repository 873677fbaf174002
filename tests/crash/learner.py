"""Searches a file of which nothing was learned, and changes it, until it is killed: `PATH`.

Says the number of each answer. What it learns in between is taken out of the file again and again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from itertools import count

from lib.vector import Record, SQLiteVectorStore

DIMENSION, SIZE = 64, 3_000


class Learner(SQLiteVectorStore):
    """Takes each namespace for large, and so searches its file and learns codes."""

    _least_searched_bytes = 0


def record(row: int, number: int) -> Record:
    vector = [1.0, *((row * place + number) % 17 for place in range(1, DIMENSION))]
    return Record(f"{row:04}", vector, "", {"n": number})


async def main(path: str) -> None:
    for number in count():
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as other:
            other.execute("DELETE FROM lib_vectors_codes")
        async with Learner(path, dimension=DIMENSION) as store:
            for answer in range(5):  # two are searched row by row, and then codes are learned
                await store.query([1.0] * DIMENSION, 5)
                print(5 * number + answer, flush=True)  # noqa: T201 - the test waits for it
            await store.upsert([record(row, number) for row in range(number % 7, SIZE, 500)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
