"""The first answer of a process: opening a file of records, and finding the ten nearest.

    make bench ARGS=search_cold

CPU time of all threads, imports left out. Each answer is that of a fresh process; the least of some
is shown, and that of the second query. Files are read from the cache of the operating system.
Vectors are isotropic; every record has a text and metadata, and the answer holds both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import sqlite_vec

from lib.vector import Record, SQLiteVectorStore

K = 10
_NEAREST = "SELECT id, distance FROM v WHERE e MATCH ? AND k = ?"


def isotropic(count: int, dimension: int) -> np.ndarray:
    rows = np.random.default_rng(1).standard_normal((count, dimension), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fill_store(path: str, count: int, dimension: int, *, packed: bool) -> None:
    async def fill() -> None:
        rows = isotropic(count, dimension)
        async with SQLiteVectorStore(path, dimension=dimension, packed=packed) as store:
            for start in range(0, count, 5_000):
                some = range(start, min(start + 5_000, count))
                await store.upsert(
                    [Record(f"{n:07}", rows[n], f"text {n}", {"bucket": n % 100}) for n in some]
                )

    asyncio.run(fill())


def fill_sqlite_vec(path: str, count: int, dimension: int) -> None:
    rows, connection = isotropic(count, dimension), sqlite_vec_file(path)
    connection.execute(
        f"CREATE VIRTUAL TABLE v USING vec0(id TEXT PRIMARY KEY, e FLOAT[{dimension}]"
        " distance_metric=cosine)"
    )
    connection.execute("CREATE TABLE d (id TEXT PRIMARY KEY, meta TEXT, text TEXT)")
    with connection:
        vectors = ((f"{n:07}", rows[n].tobytes()) for n in range(count))
        connection.executemany("INSERT INTO v VALUES (?, ?)", vectors)
        beside = ((f"{n:07}", json.dumps({"bucket": n % 100}), f"text {n}") for n in range(count))
        connection.executemany("INSERT INTO d VALUES (?, ?, ?)", beside)
    connection.close()


def sqlite_vec_file(path: str) -> Any:
    connection = apsw.Connection(path)
    connection.enable_load_extension(True)  # noqa: FBT003 - it takes no name
    connection.load_extension(sqlite_vec.loadable_path())
    return connection


def answers_of_store(path: str, dimension: int) -> tuple[float, float]:
    async def ask() -> tuple[float, float]:
        query = isotropic(1, dimension)[0]
        begun = time.process_time()
        async with SQLiteVectorStore(path, dimension=dimension) as store:
            await store.query(query, K)
            first = time.process_time()
            await store.query(query, K)
            return first - begun, time.process_time() - first

    return asyncio.run(ask())


def answers_of_sqlite_vec(path: str, dimension: int) -> tuple[float, float]:
    def ask() -> None:
        for name, _ in list(connection.execute(_NEAREST, (query, K))):
            connection.execute("SELECT meta, text FROM d WHERE id = ?", (name,)).fetchall()

    query = isotropic(1, dimension)[0].tobytes()
    begun = time.process_time()
    connection = sqlite_vec_file(path)
    ask()
    first = time.process_time()
    ask()
    return first - begun, time.process_time() - first


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    print("CPU ms                  first   second")
    with tempfile.TemporaryDirectory() as folder:
        own, packed, peer = (str(Path(folder, name)) for name in ("own", "packed", "peer"))
        fill_store(own, wanted.records, wanted.dimension, packed=False)
        fill_store(packed, wanted.records, wanted.dimension, packed=True)
        fill_sqlite_vec(peer, wanted.records, wanted.dimension)
        for name, answers, path in (
            ("sqlite", answers_of_store, own),
            ("sqlite, packed", answers_of_store, packed),
            ("sqlite-vec", answers_of_sqlite_vec, peer),
        ):
            found = [alone(answers, path, wanted.dimension) for _ in range(wanted.rounds)]
            first, second = (1000 * min(times) for times in zip(*found, strict=True))
            print(f"{name:20} {first:8.0f} {second:8.1f}", flush=True)


if __name__ == "__main__":
    main()
