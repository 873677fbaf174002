"""Top-10 search beside numpy, faiss, HNSW, databases and frameworks: in one process, in turns.

    make bench ARGS=search
    make bench ARGS="search --records 1000000 --engines memory sqlite numpy faiss-flat"
    make bench ARGS="search --mixed"  # see benchmarks/search_mixed.py

Every engine holds the same unit vectors in 32 bits (frameworks: as lists), searches by dot
product, and answers the same queries one at a time, as fast as its Python interface allows. The
filters keep 1 % and 50 % of the records by conditions on metadata, in the words of each engine;
"-" stands for what it has no words for. Recall is the share of the 10 nearest, computed in 64
bits, that were found. Only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
import search_mixed
from numpy.typing import NDArray

from lib.vector import InMemoryVectorStore, Record, SQLiteVectorStore, VectorStore
from lib.vector.exact.codes import fast_products

Matrix: TypeAlias = NDArray[np.float32]
Search: TypeAlias = Callable[[Matrix], Awaitable[list[int]]]

K = 10
OURS = ("memory", "sqlite", "memory-numpy")
MANY = 40_000_000  # floats, above which the slowest are left out
TURN_S = 1.0  # how long an engine may take for a case before the next one has its turn


@dataclass(kw_only=True)
class Engine:
    """One engine, filled: its searches by case, and what was measured of them."""

    name: str
    searches: dict[str, Search]
    fill_s: float
    times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    recall: dict[str, float] = field(default_factory=dict[str, float])


def clustered(records: int, dimension: int, queries: int) -> tuple[Matrix, Matrix]:
    """Return unit vectors that have neighbours, as embeddings do, and queries among them."""
    noise = np.random.default_rng(7)
    centres = noise.standard_normal((1000, 48))
    spread = noise.standard_normal((48, dimension))
    vectors = np.empty((records, dimension), np.float32)
    for start in range(0, records, 10_000):
        part = vectors[start : start + 10_000]
        points = centres[noise.integers(0, 1000, len(part))]
        part[:] = unit((points + 0.3 * noise.standard_normal(points.shape)) @ spread)
    queries_near = vectors[noise.integers(0, records, queries)].astype(np.float64)
    queries_near += 0.07 * noise.standard_normal(queries_near.shape) * np.sqrt(1 / dimension)
    return vectors, unit(queries_near)


def unit(vectors: NDArray[np.float64]) -> Matrix:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def records(matrix: Matrix, start: int, end: int) -> list[Record]:
    return [
        Record(str(row), matrix[row], "", {"bucket": row % 100, "half": row % 2})
        for row in range(start, end)
    ]


async def stored(store: VectorStore, matrix: Matrix) -> None:
    for start in range(0, len(matrix), 10_000):
        await store.upsert(records(matrix, start, min(start + 10_000, len(matrix))))


@contextmanager
def without_codes() -> Generator[None]:
    """Keep namespaces that are first written to meanwhile from using the extra `fast`."""
    fast_products.cache_clear()
    with patch.dict(sys.modules, {"simsimd": None}):
        yield
    fast_products.cache_clear()


async def ours(name: str, data: Any, cases: dict[str, Any]) -> dict[str, Search]:
    """Return the searches of a store of this library that holds the records."""
    if name == "sqlite":
        path = Path(data.folder, "vectors.db")
        store = SQLiteVectorStore(
            path, dimension=data.matrix.shape[1], metric="dot", cache_bytes=1 << 40
        )
    else:
        store = InMemoryVectorStore(metric="dot")
    with without_codes() if "numpy" in name else ExitStack():
        await stored(store, data.matrix)

    def search(wanted: tuple[str, int] | None) -> Search:
        only = None if wanted is None else {wanted[0]: wanted[1]}

        async def found(query: Matrix) -> list[int]:
            return [int(match.id) for match in await store.query(query, K, filter=only)]

        return found

    return {case: search(wanted) for case, wanted in cases.items()}


def awaited(blocking: Callable[[Matrix], list[int]]) -> Search:
    async def found(query: Matrix) -> list[int]:
        return blocking(query)

    return found


async def filled(name: str, data: Any, peers: Any) -> Engine:
    start = time.perf_counter()
    if name in OURS:
        searches = await ours(name, data, peers.CASES)
    else:
        index = peers.filled(name, data)
        searches = {case: awaited(blocking) for case, blocking in index.items()}
    spent = time.perf_counter() - start
    print(f"  {name}: filled in {spent:.1f} s", flush=True)
    return Engine(name=name, searches=searches, fill_s=spent)


async def take_turns(engines: list[Engine], queries: Matrix, rounds: int) -> None:
    """Measure the engines in ms; in each round each has its turn with each case."""
    for turn in range(-1, rounds):
        for engine in engines:
            for case, search in engine.searches.items():
                spent = await timed(search, queries if turn >= 0 else queries[:2])
                if turn >= 0:  # the round before the first one warms up
                    engine.times.setdefault(case, []).extend(spent)


async def timed(search: Search, queries: Matrix) -> list[float]:
    times, end = list[float](), time.perf_counter() + TURN_S
    for query in queries:
        start = time.perf_counter()
        await search(query)
        times.append(1000 * (time.perf_counter() - start))
        if time.perf_counter() > end:
            break
    return times


async def recalled(search: Search, queries: Matrix, truth: list[set[int]]) -> float:
    hits, end = list[int](), time.perf_counter() + 3 * TURN_S
    for query, right in zip(queries, truth, strict=True):
        hits.append(len(right & set(await search(query))))
        if time.perf_counter() > end:
            break
    return sum(hits) / (K * len(hits))


async def check(engines: list[Engine], queries: Matrix, data: Any, cases: list[str]) -> None:
    """Compare the answers to some queries with those computed in 64 bits."""
    some = queries[:20]
    scores = np.empty((len(data.matrix), len(some)))
    for start in range(0, len(scores), 10_000):
        part = slice(start, start + 10_000)
        scores[part] = data.matrix[part].astype(np.float64) @ some.T.astype(np.float64)
    for case in cases:
        mask = data.mask(case)
        allowed = scores if mask is None else np.where(mask[:, np.newaxis], scores, -np.inf)
        truth = [set(np.argpartition(-column, K)[:K].tolist()) for column in allowed.T]
        for engine in engines:
            if case in engine.searches:
                engine.recall[case] = await recalled(engine.searches[case], some, truth)


def show(engines: list[Engine], cases: list[str]) -> None:
    width = max(len(engine.name) for engine in engines)
    print(f"{'':{width}}" + "".join(f"{case:^34}" for case in cases) + "filled")
    print(f"{'':{width}}" + f"{'p50 ms':>12}{'p99':>8}{'ratio':>8}{'rec.':>6}" * len(cases))
    for engine in engines:
        line = f"{engine.name:{width}}"
        for case in cases:
            if case not in engine.times:
                line += f"{'-':>12}{'-':>8}{'-':>8}{'-':>6}"
                continue
            spent = np.median(engine.times[case])
            ratio = spent / np.median(engines[0].times[case])
            late = np.percentile(engine.times[case], 99)
            line += f"{spent:12.3f}{late:8.2f}{ratio:8.2f}{engine.recall[case]:6.3f}"
        print(f"{line}{engine.fill_s:8.1f} s")


async def compare(arguments: argparse.Namespace, count: int) -> None:
    matrix, queries = clustered(count, arguments.dimension, arguments.queries)
    peers: Any = import_module("peers.search")
    names = [*OURS, *peers.PEERS]
    if matrix.size > MANY:
        names = [name for name in names if name not in peers.SLOW]
    if arguments.engines:
        names = [name for name in names if name in arguments.engines]
    coded = "with" if find_spec("simsimd") else "without"
    print(
        f"{count} x {matrix.shape[1]}, top {K}, {len(queries)} queries, {arguments.rounds} rounds"
    )
    print(f"lib {coded} its extra `fast`; ratios to {names[0]}")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        data = peers.Data(matrix=matrix, k=K, folder=Path(folder), closing=closing)
        engines = [await filled(name, data, peers) for name in names]
        await take_turns(engines, queries, arguments.rounds)
        cases = list(peers.CASES)
        await check(engines, queries, data, cases)
        show(engines, cases)


async def compare_mixed(arguments: argparse.Namespace, count: int) -> None:
    matrix, queries = clustered(count, arguments.dimension, 1_000)
    names = arguments.engines or [*search_mixed.OURS, *search_mixed.PEERS]
    with tempfile.TemporaryDirectory() as folder:
        await search_mixed.compare(names, matrix, queries, arguments.calls, Path(folder))


async def main(arguments: argparse.Namespace) -> None:
    for count in arguments.records:
        await (compare_mixed if arguments.mixed else compare)(arguments, count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, nargs="+", default=[100_000])
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mixed", action="store_true", help="tenants, writes, a second process")
    parser.add_argument("--calls", type=int, default=20_000, help="with --mixed")
    parser.add_argument("--engines", nargs="+", help="only these; see benchmarks/peers/search")
    asyncio.run(main(parser.parse_args()))
