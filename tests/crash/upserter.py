"""Replaces all records of a store, batch after batch, until it is killed: `STORE PLACE`.

Says the number of each batch once it is stored.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import lib.vector
from lib.vector import Record, VectorStore

SIZE, DIMENSION = 1_500, 16

STORES: dict[str, Callable[[str], Any]] = {
    "sqlite": lambda place: lib.vector.SQLiteVectorStore(place, dimension=DIMENSION),
    "sqlite beside memory": lambda place: lib.vector.SQLiteVectorStore(
        place, dimension=DIMENSION, cache_bytes=0, scratch_dir=Path(place).parent
    ),
}


def batch(number: int) -> list[Record]:
    return [
        Record(
            str(row), [1.0, row, *[0.5] * (DIMENSION - 2)], f"common word{number}", {"n": number}
        )
        for row in range(SIZE)
    ]


async def main(store: VectorStore) -> None:
    await store.setup()
    for number in count():
        await store.upsert(batch(number))
        await store.query([1.0] * DIMENSION, 1)  # what was read follows the next batches
        print(number, flush=True)  # noqa: T201 - the test waits for it


if __name__ == "__main__":
    asyncio.run(main(STORES[sys.argv[1]](sys.argv[2])))
