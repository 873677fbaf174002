"""`ChromaVectorStore` finds the k nearest, whatever Chroma's index returns."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from lib.vector import Record

from .chroma_kit import Altered, X, raw, stored


async def test_as_many_are_found_as_there_are_though_chromas_graph_may_end_early(
    tmp_path: Path,
) -> None:
    client = await asyncio.to_thread(raw, tmp_path)

    def early(collection: Any) -> dict[str, Any]:
        """Of 3,000 equal vectors, Chroma found 307; how many it finds differs by chance."""

        def query(**arguments: Any) -> Any:
            return collection.query(**{**arguments, "n_results": 3})

        return {"query": query}

    store = stored(tmp_path, path=None, client=Altered(client, early))
    await store.upsert([Record(f"{n:02}", X, "", {"even": n % 2 == 0}) for n in range(50)])

    found = await store.query(X, 40)
    assert [match.id for match in found] == [f"{n:02}" for n in range(40)]
    assert len(await store.query(X, 40, filter={"even": True})) == 25
    await store.close()
    client.close()


async def test_ties_are_seen_though_chroma_rounds_their_distances_apart(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.upsert([Record(f"{n:03}", [n + 1.0, 3 * (n + 1.0)]) for n in range(300)])

    for query in ([1.0, 3.0], [3.0, 1.0]):
        found = [match.id for match in await store.query(query, 6)]
        assert found == ["000", "001", "002", "003", "004", "005"]
    await store.close()


async def test_neighbours_are_those_that_counting_out_finds_in_a_larger_namespace(
    tmp_path: Path,
) -> None:
    noise = np.random.default_rng(3)
    vectors = noise.standard_normal((4000, 32)).astype(np.float32)
    queries = noise.standard_normal((25, 32)).astype(np.float32)

    store = stored(tmp_path, dimension=32, metric="dot")
    await store.upsert([Record(str(n), vector) for n, vector in enumerate(vectors)])

    hits = 0
    for query in queries:
        best = {str(row) for row in np.argsort(-(vectors @ query))[:10]}
        hits += len(best & {match.id for match in await store.query(query, 10)})
    assert hits >= 245  # of 250
    await store.close()


async def test_a_limit_beyond_what_chroma_can_count(tmp_path: Path) -> None:
    store = stored(tmp_path)
    await store.upsert([Record("a", X), Record("b", X)])
    for k in (2**31, 2**32, 2**63, 2**70):
        assert [match.id for match in await store.query(X, k)] == ["a", "b"]
    await store.close()
