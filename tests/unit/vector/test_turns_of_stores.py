"""Stores that answer at once leave turns to other tasks of the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lib.vector import (
    EmbeddingIndex,
    InMemoryVectorStore,
    Record,
    SQLiteVectorStore,
    TenantVectorStore,
)

STORES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: InMemoryVectorStore(8),
    "sqlite": lambda place: SQLiteVectorStore(place / "vectors.db", dimension=8),
    "tenant": lambda _: TenantVectorStore(InMemoryVectorStore(8), "acme"),
}
QUERY = [1.0] * 8


class Rounds:
    """Counts how often the event loop goes round."""

    def __init__(self) -> None:
        self.number = 0
        self._count()

    def _count(self) -> None:
        self.number += 1
        asyncio.get_running_loop().call_soon(self._count)


@pytest.mark.parametrize("name", STORES)
async def test_three_thousand_queries_turn_the_loop_all_the_while(
    name: str, tmp_path: Path
) -> None:
    store = STORES[name](tmp_path)
    await filled(store)
    for queries in (one_after_another, at_once):
        rounds = Rounds()
        await queries(lambda: store.query(QUERY, 3), 3_000)
        assert rounds.number > 50
    await store.close()


CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "query": lambda store: store.query(QUERY, 3),
    "query with a filter": lambda store: store.query(QUERY, 3, filter={"even": True}),
    "query of nothing": lambda store: store.query(QUERY, namespace="empty"),
    "query that nothing passes": lambda store: store.query(QUERY, filter={"x": {"$in": []}}),
    "get": lambda store: store.get(["1"]),
    "count": lambda store: store.count(),
    "scan": lambda store: store.scan(limit=1),
    "namespaces": lambda store: store.namespaces(),
    "upsert": lambda store: store.upsert([Record("new", QUERY)]),
    "delete": lambda store: store.delete(["unknown"]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_time_out_ends_any_calls_that_memory_answers(name: str) -> None:
    async def main() -> None:
        store = InMemoryVectorStore(8)
        await filled(store)
        async with asyncio.timeout(0.05):
            while True:
                await CALLS[name](store)

    with pytest.raises(TimeoutError):
        await main()


async def test_a_time_out_ends_searches_of_an_index() -> None:
    class Embedder:
        dimension = 8

        async def embed(self, texts: Any, **options: Any) -> Any:
            return [QUERY for _ in texts]

    async def main() -> None:
        store = InMemoryVectorStore(8)
        await filled(store)
        embedder: Any = Embedder()
        index = EmbeddingIndex(store, embedder)
        async with asyncio.timeout(0.05):
            while True:
                await index.search("a text")

    with pytest.raises(TimeoutError):
        await main()


async def filled(store: Any) -> None:
    await store.setup()
    await store.upsert(
        [Record(str(row), [row + 1.0, *QUERY[1:]], "", {"even": row % 2 == 0}) for row in range(50)]
    )


async def one_after_another(call: Callable[[], Awaitable[Any]], times: int) -> None:
    for _ in range(times):
        await call()


async def at_once(call: Callable[[], Awaitable[Any]], times: int) -> None:
    async def one() -> None:
        await call()

    await asyncio.gather(*(one() for _ in range(times)))
