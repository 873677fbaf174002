"""Exact search on vectors that flatter it and vectors that do not, beside numpy in one process.

    make bench ARGS="search_vectors --minilm FOLDER/minilm.npz"
    make bench ARGS="search_vectors --records 1000 10000 1000000 --cores 1"

Data: `isotropic`, unit vectors in all directions; `clustered`, near 48 directions, as those of
`benchmarks/search.py`; `real`, the MiniLM embeddings of `--minilm` (arrays `docs_int8` with
`docs_scale`, and `queries_f16`), where there are more rows than documents again and again, each
with isotropic noise of a quarter of its length, normalised; `offset`, isotropic plus 100 times its
spread in every dimension; `long row`, isotropic with one row 10,000 times as long.

Cases: the ten nearest of all, by queries that are not rows; `filters`, under a hundred filters in
turn that keep 1 % each (numpy is given the rows that pass); `writes`, each query after the
upsert of one record (numpy overwrites a row).

numpy does what one writes around a matrix: it takes the query that the store takes, an array of 32
bits, looks whether it has the right length and finite numbers, multiplies by BLAS, finds the tenth
highest by `partition`, and returns the ten rows with their ids, scores, texts and a copy of their
metadata, in the order of scores, then of ids. It is exact but for its rounding, and for that
reason wrong on `offset`.

CPU time and wall time are medians in ms of the whole call of `InMemoryVectorStore.query`, numpy and
store in turns of ten queries, of which the first is left out. Some answers are compared with those
computed in 64 bits.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from search import K, clustered, unit, without_codes

from lib.vector import InMemoryVectorStore, Match, Metric, Record

NOISE = 0.25
FILTERS = 100
AT_ONCE = 10  # queries in one turn
CHECKED = 5


def isotropic(records: int, dimension: int, queries: int) -> tuple[Any, Any]:
    noise = np.random.default_rng(5)
    vectors = noise.standard_normal((records + queries, dimension), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[:records], vectors[records:]


def real(path: str, records: int, queries: int) -> tuple[Any, Any]:
    with np.load(path) as arrays:
        documents = unit(arrays["docs_int8"].astype(np.float64) * arrays["docs_scale"])
        query_vectors = unit(arrays["queries_f16"].astype(np.float64))
    noise = np.random.default_rng(6)
    vectors = documents[np.arange(records) % len(documents)]
    for start in range(len(documents), records, 10_000):
        part = vectors[start : start + 10_000]
        away = noise.standard_normal(part.shape) * NOISE / np.sqrt(part.shape[1])
        part[:] = unit(part + away)
    return vectors, query_vectors[:queries]


def offset(records: int, dimension: int, queries: int) -> tuple[Any, Any]:
    noise = np.random.default_rng(8)
    vectors = noise.standard_normal((records + queries, dimension), dtype=np.float32) + 100
    return vectors[:records].astype(np.float32), vectors[records:].astype(np.float32)


def long_row(records: int, dimension: int, queries: int) -> tuple[Any, Any]:
    vectors, query_vectors = isotropic(records, dimension, queries)
    vectors[records // 2] *= 10_000
    return vectors, query_vectors


class Numpy:
    """Brute force in 32 bits, as one writes it."""

    def __init__(self, vectors: Any, metric: Metric) -> None:
        self.metric: Metric = metric
        self.vectors = vectors.copy()
        self.ids = [str(row) for row in range(len(vectors))]
        self.texts = [""] * len(vectors)
        self.metas = [{"part": row % FILTERS} for row in range(len(vectors))]
        if metric == "cosine":
            self.vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.halves = None
        if metric == "euclidean":
            self.halves = 0.5 * np.einsum("ij,ij->i", vectors, vectors)

    def query(self, vector: Any, rows: Any) -> list[Match]:
        query = np.asarray(vector, np.float32)
        if query.shape != self.vectors.shape[1:] or not np.isfinite(query).all():
            raise ValueError("expected finite numbers, as many as the vectors have")
        if self.metric == "cosine":
            query = query / np.linalg.norm(query)
        keys = (self.vectors if rows is None else self.vectors[rows]) @ query
        if self.halves is not None:
            keys -= self.halves if rows is None else self.halves[rows]
        best = np.flatnonzero(keys >= np.partition(keys, len(keys) - K)[len(keys) - K])
        costs = -keys[best]
        if self.halves is not None:  # the half of |x - q|^2, but for that of |q|^2
            costs = np.sqrt(np.maximum(query @ query + 2.0 * costs, 0.0))
        found = (best if rows is None else rows[best]).tolist()
        sign = 1.0 if self.metric == "euclidean" else -1.0
        ranked = sorted(zip(costs.tolist(), [self.ids[row] for row in found], found, strict=True))
        return [
            Match(name, sign * cost, self.texts[row], dict(self.metas[row]))
            for cost, name, row in ranked[:K]
        ]


def exactly(vectors: Any, query: Any, metric: Metric, rows: Any) -> list[int]:
    wide = (vectors if rows is None else vectors[rows]).astype(np.float64)
    target = query.astype(np.float64)
    if metric == "euclidean":
        costs = np.sqrt(((wide - target) ** 2).sum(axis=1))
    else:
        costs = -(wide * target).sum(axis=1)
    if metric == "cosine":
        costs /= np.sqrt((wide * wide).sum(axis=1) * (target * target).sum())
    few = np.argpartition(costs, min(K, len(costs) - 1))[: K + 1]
    few = few if rows is None else rows[few]
    order = dict(zip((range(len(costs)) if rows is None else rows.tolist()), costs, strict=True))
    return sorted(few.tolist(), key=lambda row: (np.float32(order[row]), str(row)))[:K]


async def timed(work: Callable[[], Awaitable[Any]]) -> tuple[float, float, Any]:
    """Return the CPU time and the wall time of some work in ms, and what it returns."""
    wall, spent = time.perf_counter(), time.process_time()
    result = await work()
    return 1000 * (time.process_time() - spent), 1000 * (time.perf_counter() - wall), result


class Turns:
    """numpy and a store with the same vectors, and the times of their turns."""

    def __init__(self, vectors: Any, metric: Metric) -> None:
        self.metric: Metric = metric
        self.vectors = vectors.copy()
        self.plain, self.store = Numpy(vectors, metric), InMemoryVectorStore(metric=metric)
        self.rows_of = [np.arange(part, len(vectors), FILTERS) for part in range(FILTERS)]
        self.wrong = 0

    async def by_numpy(self, case: str, number: int, query: Any) -> tuple[float, float]:
        if case == "writes":
            row = number * 7 % len(self.vectors)
            self.vectors[row] = self.vectors[row][::-1].copy()
            self.plain.vectors[row] = self.vectors[row]
        rows = self.rows_of[number % FILTERS] if case == "filters" else None

        async def query_it() -> Any:
            return self.plain.query(query, rows)

        return (await timed(query_it))[:2]

    async def by_store(self, case: str, number: int, query: Any) -> tuple[float, float]:
        if case == "writes":
            await self.store.upsert([record(self.vectors, number * 7 % len(self.vectors))])
        only = {"part": number % FILTERS} if case == "filters" else None
        *times, found = await timed(lambda: self.store.query(query, K, filter=only))
        if number < CHECKED and case != "writes":
            rows = self.rows_of[number % FILTERS] if case == "filters" else None
            right = exactly(self.vectors, query, self.metric, rows)
            self.wrong += [int(match.id) for match in found] != right
        return times[0], times[1]

    async def medians(self, case: str, queries: Any) -> Any:
        """Return CPU time and wall time, of numpy and of the store."""
        for number in range(20):  # rows are prepared by the first searches
            await self.store.query(queries[number % len(queries)], K)
        spent: dict[Any, list[Any]] = {self.by_numpy: [], self.by_store: []}
        for start in range(0, len(queries), AT_ONCE):
            for engine, times in spent.items():
                turn = range(start, min(start + AT_ONCE, len(queries)))
                found = [await engine(case, number, queries[number]) for number in turn]
                times.extend(found[1:])  # threads of the engine before may still wait in a loop
        return [np.median(np.array(times), axis=0) for times in spent.values()]


async def measure(name: str, vectors: Any, queries: Any, metric: Metric, coded: bool) -> None:
    turns = Turns(vectors, metric)
    with ExitStack() if coded else without_codes():
        await fill(turns.store, turns.vectors)
    for case in ("all", "filters", "writes"):
        (cpu, wall), (our_cpu, our_wall) = await turns.medians(case, queries)
        print(
            f"{name:10} {metric:10}{case:8} numpy {cpu:8.3f}{wall:8.3f}   lib {our_cpu:8.3f}"
            f"{our_wall:8.3f}   ratio {cpu / our_cpu:8.2f}{wall / our_wall:8.2f}"
            f"   wrong {turns.wrong}",
            flush=True,
        )
    await turns.store.close()


def record(vectors: Any, row: int) -> Record:
    return Record(str(row), vectors[row], "", {"part": row % FILTERS})


async def fill(store: InMemoryVectorStore, vectors: Any) -> None:
    for start in range(0, len(vectors), 10_000):
        end = min(start + 10_000, len(vectors))
        await store.upsert([record(vectors, row) for row in range(start, end)])


async def alone(arguments: argparse.Namespace) -> None:
    """Measure one size with the cores that this process has."""
    size = (arguments.records[0], arguments.dimension, arguments.queries)
    data: dict[str, tuple[Callable[[], tuple[Any, Any]], tuple[Metric, ...]]] = {
        "isotropic": (lambda: isotropic(*size), ("dot", "cosine")),
        "clustered": (lambda: clustered(*size), ("dot",)),
        "offset": (lambda: offset(*size), ("euclidean", "cosine", "dot")),
        "long row": (lambda: long_row(*size), ("euclidean",)),
    }
    if arguments.minilm:
        data["real"] = (
            lambda: real(arguments.minilm, size[0], size[2]),
            ("dot", "cosine", "euclidean"),
        )
    for name in arguments.data or data:
        vectors, query_vectors = data[name][0]()
        for metric in data[name][1]:
            await measure(name, vectors, query_vectors, metric, not arguments.without_fast)


def main(arguments: argparse.Namespace) -> None:
    """Measure each number of cores in a process of its own: BLAS reads it when it is loaded."""
    for records in arguments.records:
        for cores in arguments.cores:
            extra = "without" if arguments.without_fast else "with"
            print(f"\n{records} x {arguments.dimension}, BLAS on {cores} cores, {extra} `fast`")
            print(f"{'median ms':28}" + "".join(f"{'CPU':>{w}}{'wall':>8}" for w in (14, 15, 15)))
            sys.stdout.flush()
            options = {
                "--records": records,
                "--dimension": arguments.dimension,
                "--queries": arguments.queries,
                "--minilm": arguments.minilm or "",
            }
            command = [sys.executable, __file__, "--alone"]
            command += [str(part) for option in options.items() for part in option]
            command += ["--without-fast"] if arguments.without_fast else []
            command += ["--data", *arguments.data] if arguments.data else []
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(cores)}
            subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, nargs="+", default=[100_000])
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--data", nargs="+", help="only these kinds of vectors")
    parser.add_argument("--minilm", default=os.environ.get("LIB_BENCH_MINILM"))
    parser.add_argument("--without-fast", action="store_true", help="as if simsimd were missing")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.alone:
        asyncio.run(alone(parsed))
    else:
        main(parsed)
