"""A vector store of one's own, over dicts where yours has a database."""

import asyncio
from collections import defaultdict
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from lib.vector import BackedStore, Batch, ComposedBackend, F, Filter, Match, Metric, Record
from lib.vector.filter import matches

Floats = NDArray[np.float32]


class Dicts(ComposedBackend):
    """The records by namespace and id."""

    def __init__(self, metric: Metric) -> None:
        self.metric, self.held = metric, defaultdict[str, dict[str, Record]](dict)

    async def upsert(self, namespace: str, batch: Batch) -> None:
        columns = batch.ids, batch.vectors.tolist(), batch.texts, batch.metas
        self.held[namespace] |= {row[0]: Record(*row) for row in zip(*columns, strict=True)}

    async def query(
        self,
        namespace: str,
        query: Floats,
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        sign = 1 if self.metric == "euclidean" else -1
        scored = [(self.score(query, one), one) for one in self.passing(namespace, filter)]
        scored.sort(key=lambda pair: (sign * pair[0], pair[1].id))
        return [
            Match(one.id, score, one.text, one.meta, [*one.vector] if include_vectors else None)
            for score, one in deepcopy(scored[:k])
        ]

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        held = self.held[namespace]
        return [deepcopy(held[name]) for name in ids if name in held]

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        passing = self.passing(namespace, filter)
        ids = sorted(one.id for one in passing if one.id > after)
        return await self.get(namespace, ids[:limit])

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        passing = self.passing(namespace, filter)
        gone = [one.id for one in passing if ids is None or one.id in ids]
        for name in gone:
            del self.held[namespace][name]
        return len(gone)

    async def count(self, namespace: str, filter: Filter | None) -> int:
        return len(self.passing(namespace, filter))

    async def namespaces(self, prefix: str) -> list[str]:
        return sorted(name for name, held in self.held.items() if held and name.startswith(prefix))

    def passing(self, namespace: str, filter: Filter | None) -> list[Record]:
        held = self.held[namespace].values()
        return [one for one in held if filter is None or matches(filter, one.meta)]

    def score(self, query: Floats, record: Record) -> float:
        left, right = query.astype(float), np.array(record.vector)
        if self.metric == "euclidean":
            return float(np.linalg.norm(left - right))
        lengths = np.linalg.norm(left) * np.linalg.norm(right) if self.metric == "cosine" else 1.0
        return float(left @ right / lengths)


class DictVectorStore(BackedStore[Dicts]):
    async def open_backend(self) -> Dicts:
        return Dicts(self.metric)


async def main() -> None:
    async with DictVectorStore(dimension=2) as store:
        await store.upsert(
            [
                Record("pear", [1.0, 0.0], meta={"price": 3}),
                Record("plum", [1.0, 1.0], meta={"price": 1}),
            ]
        )
        for match in await store.query([1.0, 0.2], filter=F("price") < 2):
            print(match.id, round(match.score, 3))


if __name__ == "__main__":
    asyncio.run(main())
