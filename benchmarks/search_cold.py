"""The first answers of a process: opening a file of records, and finding the ten nearest.

    make bench ARGS=search_cold

CPU time of all threads, imports left out, of the first queries of a fresh process; the least of
some processes is shown, which take turns. Files are read from the cache of the operating system.
Vectors are isotropic; every record has a text and metadata, and the answer holds both. "without
codes" is a file of an older release, or one whose records were written one at a time: what the
process learns in the background is counted, and taken out again before the next one. The last line
says what it took to fill the files.
"""

# pyright: basic, reportMissingImports=false
# since its peers live in another environment

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import sqlite_vec

from lib.vector import Record, SQLiteVectorStore

K, QUERIES = 10, 6
_NEAREST = "SELECT id, distance FROM v WHERE e MATCH ? AND k = ?"


def isotropic(count: int, dimension: int) -> np.ndarray:
    rows = np.random.default_rng(1).standard_normal((count, dimension), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fill_store(path: str, count: int, dimension: int) -> None:
    async def fill() -> None:
        rows = isotropic(count, dimension)
        async with SQLiteVectorStore(path, dimension=dimension) as store:
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


def answers_of_store(path: str, dimension: int) -> list[float]:
    async def ask() -> list[float]:
        queries = isotropic(QUERIES, dimension)
        times = [time.process_time()]
        async with SQLiteVectorStore(path, dimension=dimension) as store:
            for query in queries:
                await store.query(query, K)
                times.append(time.process_time())
        return times

    return np.diff(asyncio.run(ask())).tolist()


def answers_without_codes(path: str, dimension: int) -> list[float]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM lib_vectors_codes")
    return answers_of_store(path, dimension)


def answers_of_sqlite_vec(path: str, dimension: int) -> list[float]:
    queries = isotropic(QUERIES, dimension)
    times = [time.process_time()]
    connection = sqlite_vec_file(path)
    for query in queries:
        for name, _ in list(connection.execute(_NEAREST, (query.tobytes(), K))):
            connection.execute("SELECT meta, text FROM d WHERE id = ?", (name,)).fetchall()
        times.append(time.process_time())
    return np.diff(times).tolist()


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
    with tempfile.TemporaryDirectory() as folder:
        own, peer = (str(Path(folder, name)) for name in ("own", "peer"))
        filled = dict[str, str]()
        for path, fill in ((own, fill_store), (peer, fill_sqlite_vec)):
            started = time.process_time()
            fill(path, wanted.records, wanted.dimension)
            took = time.process_time() - started
            filled[path] = f"{took:.1f} s CPU, {Path(path).stat().st_size / 1e6:.0f} MB"
        bare = shutil.copy(own, Path(folder, "bare"))
        engines = {
            "sqlite": (answers_of_store, own),
            "sqlite, without codes": (answers_without_codes, str(bare)),
            "sqlite-vec": (answers_of_sqlite_vec, peer),
        }
        found: dict[str, list[list[float]]] = {name: [] for name in engines}
        for _ in range(wanted.rounds):
            for name, (answers, path) in engines.items():
                found[name].append(alone(answers, path, wanted.dimension))
    print("CPU ms" + 18 * " " + "".join(f"{number:8}" for number in range(1, QUERIES + 1)))
    for name, times in found.items():
        print(f"{name:22}  " + "".join(f"{1000 * least:8.0f}" for least in np.min(times, axis=0)))
    print(f"filled: sqlite {filled[own]}; sqlite-vec {filled[peer]}")


if __name__ == "__main__":
    main()
