"""The costs of search beside time: memory per record, and the delay of the event loop.

    make bench ARGS=search_costs

Memory is what a fresh process has grown by once a namespace is filled and was searched (Linux).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from search import K, clustered, stored, without_codes

from lib.vector import InMemoryVectorStore, SQLiteVectorStore


def resident() -> int:
    """Return how many bytes of memory this process holds."""
    gc.collect()
    return 4096 * int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


def alone(function: object, *arguments: object) -> object:
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()  # type: ignore[arg-type] - callable


def filled_file(path: str, count: int, dimension: int) -> None:
    async def fill() -> None:
        store = SQLiteVectorStore(path, dimension=dimension, metric="dot")
        await stored(store, clustered(count, dimension, 1)[0])
        await store.close()

    asyncio.run(fill())


def weighed(path: str | None, coded: bool, count: int, dimension: int) -> float:
    """Return the bytes per record of a store in memory, or of what is kept of a file."""

    async def weigh() -> float:
        matrix, queries = clustered(100, dimension, 1)
        warm = InMemoryVectorStore(metric="dot")
        await stored(warm, matrix)
        await warm.query(queries[0], K)
        before = resident()
        if path is None:
            store = InMemoryVectorStore(metric="dot")
            await stored(store, clustered(count, dimension, 1)[0])
        else:
            store = SQLiteVectorStore(path, dimension=dimension, metric="dot")
        for _ in range(3):  # two search the file, the third one reads it into memory
            await store.query(queries[0], K)
        return (resident() - before) / count

    with ExitStack() if coded else without_codes():
        return asyncio.run(weigh())


async def lateness(count: int, dimension: int) -> list[float]:
    """Return how late ticks of 1 ms are, in ms, while searches run one after the other."""
    matrix, queries = clustered(count, dimension, 50)
    store, late = InMemoryVectorStore(metric="dot"), list[float]()
    await stored(store, matrix)
    await store.query(queries[0], K)

    async def search() -> None:
        for query in [*queries] * 20:
            await store.query(query, K)

    searching = asyncio.create_task(search())
    while not searching.done():
        start = time.perf_counter()
        await asyncio.sleep(0.001)  # noqa: TID251 - real time is what is measured
        late.append(1000 * (time.perf_counter() - start) - 1.0)
    return late


def main(count: int, dimension: int) -> None:
    print(f"{count} x {dimension}; bytes per record, without text, two numbers as metadata:")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "vectors.db"))
        alone(filled_file, path, count, dimension)
        for name, place in (("InMemoryVectorStore", None), ("SQLiteVectorStore", path)):
            for coded in (False, True):
                size = alone(weighed, place, coded, count, dimension)
                print(f"  {name:22}{'with' if coded else 'without':8} `fast` {size:8.0f}")
    p50, p99 = np.percentile(asyncio.run(lateness(count, dimension)), [50, 99])
    print(f"a tick of 1 ms is late by {p50:.2f} ms, p99 {p99:.2f} ms, while searches run")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    arguments = parser.parse_args()
    main(arguments.records, arguments.dimension)
