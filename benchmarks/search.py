"""Exact top-10 search beside numpy, faiss and LangChain: all in one process, in turns.

    make bench ARGS=search

Every engine holds the same unit vectors in 32 bits (LangChain: as lists) and answers the same
queries, one at a time. The filters keep 1 % and 50 % of the records; faiss is given its selectors
ready made, the others evaluate a condition on metadata. An answer that differs from the plain
computation in 64 bits is reported. Only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector import InMemoryVectorStore, Record, SQLiteVectorStore, VectorStore

Matrix: TypeAlias = NDArray[np.float32]
Search: TypeAlias = Callable[[Matrix], Awaitable[list[int]]]

K = 10
OURS = "lib InMemoryVectorStore"
SLOW = "langchain InMemoryVectorStore"


def clustered(records: int, dimension: int, queries: int) -> tuple[Matrix, Matrix]:
    """Return unit vectors that have neighbours, as embeddings do, and queries among them."""
    noise = np.random.default_rng(7)
    centres = noise.standard_normal((1000, 48))
    points = centres[noise.integers(0, 1000, records)]
    points = points + 0.3 * noise.standard_normal((records, 48))
    vectors = points @ noise.standard_normal((48, dimension))
    asked = vectors[noise.integers(0, records, queries)]
    asked = asked + 0.5 * noise.standard_normal(asked.shape)
    return unit(vectors), unit(asked)


def unit(vectors: NDArray[np.float64]) -> Matrix:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def numpy_rows(matrix: Matrix, masks: dict[str, NDArray[np.bool_]]) -> dict[str, Search]:
    """Return the least that any exact search in numpy does."""

    def search(mask: NDArray[np.bool_]) -> Search:
        rows = None if mask.all() else np.flatnonzero(mask)

        async def found(query: Matrix) -> list[int]:
            scores = matrix @ query
            if rows is not None:
                scores = scores[rows]
            best = np.argpartition(scores, len(scores) - K)[len(scores) - K :]
            best = best[np.argsort(-scores[best])]
            return (best if rows is None else rows[best]).tolist()

        return found

    return {case: search(mask) for case, mask in masks.items()}


async def filled(
    store: VectorStore, matrix: Matrix, masks: dict[str, NDArray[np.bool_]]
) -> dict[str, Search]:
    await store.upsert(
        [
            Record(str(row), vector, "", {case: bool(mask[row]) for case, mask in masks.items()})
            for row, vector in enumerate(matrix)
        ]
    )

    def search(case: str) -> Search:
        wanted = None if masks[case].all() else {case: True}

        async def found(query: Matrix) -> list[int]:
            return [int(match.id) for match in await store.query(query, K, filter=wanted)]

        return found

    return {case: search(case) for case in masks}


def awaited(searches: dict[str, Callable[[Matrix], list[int]]]) -> dict[str, Search]:
    def search(blocking: Callable[[Matrix], list[int]]) -> Search:
        async def found(query: Matrix) -> list[int]:
            return blocking(query)

        return found

    return {case: search(blocking) for case, blocking in searches.items()}


async def measure(
    engines: dict[str, dict[str, Search]], queries: Matrix, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Return the times of all queries in ms; in each round every engine has its turn."""
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(-1, rounds):
        for name, searches in engines.items():
            for case, search in searches.items():
                for query in queries[: 2 if name == SLOW or turn < 0 else len(queries)]:
                    start = time.perf_counter()
                    await search(query)
                    spent = 1000 * (time.perf_counter() - start)
                    if turn >= 0:  # the round before the first one warms up
                        times.setdefault((name, case), []).append(spent)
    return times


async def differing(
    searches: dict[str, Search],
    matrix: Matrix,
    masks: dict[str, NDArray[np.bool_]],
    queries: Matrix,
) -> int:
    """Return how many answers differ from the scores computed in 64 bits."""
    wrong = 0
    for query in queries[:20]:
        scores = matrix.astype(np.float64) @ query.astype(np.float64)
        for case, search in searches.items():
            allowed = np.where(masks[case], scores, -np.inf)
            wrong += await search(query) != np.argsort(-allowed, kind="stable")[:K].tolist()
    return wrong


def show(
    times: dict[tuple[str, str], list[float]], cases: list[str], wrong: dict[str, int]
) -> None:
    width = max(len(name) for name in wrong)
    print(f"{'':{width}}" + "".join(f"{case:>26}" for case in cases) + f"{'wrong':>8}")
    for name, faults in wrong.items():
        line = f"{name:{width}}"
        for case in cases:
            spent = np.median(times[name, case])
            ratio = spent / np.median(times[OURS, case])
            line += f"{spent:12.3f} ms {ratio:8.2f} x "
        print(line + f"{faults:8}")


async def main(arguments: argparse.Namespace) -> None:
    matrix, queries = clustered(arguments.records, arguments.dimension, arguments.queries)
    row = np.arange(len(matrix))
    masks = {"all": row >= 0, "1 %": row % 100 == 7, "50 %": row % 2 == 0}
    peers: Any = import_module("peers.search")
    coded = "with" if find_spec("simsimd") else "without"
    print(f"{len(matrix)} x {matrix.shape[1]}, top {K}, {len(queries)} queries, median of each")
    print(f"lib {coded} its extra `fast`")
    with tempfile.TemporaryDirectory() as folder:
        memory = InMemoryVectorStore(metric="dot")
        file = SQLiteVectorStore(
            Path(folder, "vectors.db"), dimension=matrix.shape[1], metric="dot"
        )
        engines = {
            OURS: await filled(memory, matrix, masks),
            "lib SQLiteVectorStore": await filled(file, matrix, masks),
            "numpy": numpy_rows(matrix, masks),
            "faiss IndexFlatIP": awaited(peers.faiss_flat(matrix, masks, K)),
        }
        if not arguments.fast:
            engines[SLOW] = awaited(peers.langchain_memory(matrix, masks, K))
        times = await measure(engines, queries, arguments.rounds)
        wrong = {
            name: 0 if name == SLOW else await differing(searches, matrix, masks, queries)
            for name, searches in engines.items()
        }
        show(times, list(masks), wrong)
        await memory.close()
        await file.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fast", action="store_true", help="leave LangChain out")
    asyncio.run(main(parser.parse_args()))
