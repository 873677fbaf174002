"""The calls of `ChromaVectorStore` to its client: one collection for each namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar

import numpy as np
from chromadb.errors import NotFoundError
from numpy.typing import NDArray

from lib.errors import DimensionMismatch, MetricMismatch, StoreCorrupt, StoreUnavailable
from lib.vector.exact import search as exact
from lib.vector.filter import Filter
from lib.vector.ordering import ListedBackend
from lib.vector.records import Layout, Match, Metric, Record
from lib.vector.stores.chroma.client import (
    Location,
    answer,
    closed,
    opened,
    own_prefix,
    typed_errors,
    writing_alone,
)
from lib.vector.stores.chroma.filter import condition
from lib.vector.stores.chroma.records import Rows, columns, requests
from lib.vector.validate import Batch

T = TypeVar("T")

_SPACES: Final[dict[Metric, str]] = {"cosine": "cosine", "dot": "ip", "euclidean": "l2"}
_METRICS: Final[dict[str, Metric]] = {space: metric for metric, space in _SPACES.items()}
_GRAPH: Final = {"ef_search": 256, "ef_construction": 200, "max_neighbors": 32}
"""Of 20,000 random vectors of 64 numbers, 10 of the 10 nearest are found; by default it is 8."""
_EVERYTHING: Final = ["embeddings", "documents", "metadatas"]
_COLLECTIONS_A_REQUEST: Final = 500
_SPARE: Final = 8
_MAX_RESULTS: Final = 2**31 - 1
_MAX_VARIABLES: Final = 32_000  # of one statement of SQLite, in which a folder looks results up
_GROWTH: Final = 4
_ATTEMPTS: Final = 3
_ROUNDING: Final = 1e-6
_PREFIX, _NAMESPACE, _DIMENSION = "lib:prefix", "lib:namespace", "lib:dimension"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConfig:
    """The collections of a store: where they are, and for which vectors.

    Attributes:
        location: where.
        prefix: of the collections' names.
        dimension: of every vector.
        metric: how nearness is measured.
    """

    location: Location
    prefix: str
    dimension: int
    metric: Metric


class Database(ListedBackend):
    """The collections of one store."""

    def __init__(self, config: DatabaseConfig) -> None:
        """Open nothing yet."""
        super().__init__()
        self._config = config
        self._prefix = own_prefix(config.location, config.prefix)
        self._client: Any = None
        self._most = 1
        self._collections: dict[str, Any] = {}
        self._opening, self._writing = asyncio.Lock(), asyncio.Lock()
        self._alone: AbstractContextManager[Any] = nullcontext()

    async def prepare(self) -> None:
        """Connect, and see that what is there is of the expected kind.

        Raises:
            DimensionMismatch, MetricMismatch: a collection was made for other vectors.
            StoreUnavailable: the folder or the server cannot be opened.
        """
        async with self._opening:
            if self._client is None:
                with typed_errors():
                    client = await opened(self._config.location)
                    try:
                        self._most = await answer(client.get_max_batch_size())
                        for collection in await self._listed(client):
                            self._checked(collection)
                    except BaseException:
                        if self._config.location.client is None:
                            await closed(client)
                        raise
                    self._alone = writing_alone(self._config.location, client)
                    self._client = client

    async def close(self) -> None:
        """Close the client if it is the store's own; what was kept in memory is gone."""
        if self._client is None or self._config.location.client is not None:
            return
        with typed_errors():
            if self._config.location.in_memory:
                for collection in await self._listed(self._client):
                    await self._dropped(collection)
            await closed(self._client)

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch, in as few requests as can carry them.

        An upsert of Chroma merges metadata and keeps the text where there is none. Deleting first
        would hide the record from readers for a moment; so the keys of old are read and unset, by
        the very request that brings the new ones.
        """

        async def work(collection: Any) -> None:
            for rows in requests(batch, self._most):
                there = await answer(collection.get(ids=batch.ids[rows], include=["metadatas"]))
                old = dict(zip(there["ids"], there["metadatas"], strict=True))
                held = [old.get(name) for name in batch.ids[rows]]
                await answer(collection.upsert(**columns(batch, rows, held, self._config.metric)))

        async with self._writing:
            with self._alone:
                await self._in(namespace, work, create=True)

    async def query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        """Return the nearest records, best first."""
        where = None if filter is None else condition(filter)

        async def work(collection: Any) -> list[Match]:
            found = await _nearest(collection, query, k, where, self._config.metric)
            return self._matches(found, query, k, include_vectors=include_vectors)

        return await self._in(namespace, work) or []

    async def query_many(
        self,
        namespace: str,
        queries: list[NDArray[np.float32]],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[list[Match]]:
        """Return what `query` does for each of them, at first in one request.

        Where that does not tell which are the nearest, a query is sent again by itself.
        """
        where = None if filter is None else condition(filter)

        async def work(collection: Any) -> list[list[Match]]:
            near = await _near(collection, queries, k, where, self._config.metric)
            return [
                self._matches(
                    rows or await _nearest(collection, query, k, where, self._config.metric),
                    query,
                    k,
                    include_vectors=include_vectors,
                )
                for query, rows in zip(queries, near, strict=True)
            ]

        if not queries:
            return []
        return await self._in(namespace, work) or [[] for _ in queries]

    def _matches(
        self, found: Rows, query: NDArray[np.float32], k: int, *, include_vectors: bool
    ) -> list[Match]:
        vectors = found.vectors
        return [
            found.match(row, score, vectors[row].tolist() if include_vectors else None)
            for row, score in self._ranked(found.ids, vectors, query, k)
        ]

    def _ranked(
        self, ids: list[str], vectors: NDArray[np.float32], query: NDArray[np.float32], k: int
    ) -> list[tuple[int, float]]:
        """Score what was found as every store does; Chroma's `1 - dot` loses small products."""
        if not ids:
            return []
        metric = self._config.metric
        scales = exact.scales(exact.row_lengths(vectors), metric)
        rows = exact.Rows(ids=ids, vectors=vectors, scales=scales)
        every = exact.Selection(mask=None, count=len(ids))
        return exact.nearest(rows, query, k, metric=metric, among=every)

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        found: dict[str, Record] = {}

        async def work(collection: Any) -> None:
            for some in self._some(ids):
                there = await answer(collection.get(ids=some, include=_EVERYTHING))
                found.update((record.id, record) for record in Rows(there).records())

        await self._in(namespace, work)
        return [found[name] for name in ids if name in found]

    async def ids(self, namespace: str, filter: Filter | None) -> list[str]:
        """Return the ids of the records that pass the filter, in any order."""
        where = None if filter is None else condition(filter)

        async def work(collection: Any) -> list[str]:
            return (await answer(collection.get(where=where, include=[])))["ids"]

        return await self._in(namespace, work) or []

    async def existing(self) -> Layout | None:
        """Return how the collections were made; None if there are none.

        Raises:
            StoreCorrupt: one was made by something else.
            StoreUnavailable: the folder or the server cannot be opened.
        """
        own = self._client is None and self._config.location.client is None
        with typed_errors():
            client = self._client or await opened(self._config.location)
            try:
                there = await self._listed(client)
            finally:
                if own:
                    await closed(client)
        if not there:
            return None
        dimension, space = self._made(there[0])
        return Layout(dimension=dimension, metric=_METRICS.get(space))

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number."""
        where = None if filter is None else condition(filter)

        async def work(collection: Any) -> int:
            if ids is not None:
                return sum([await _deleted(collection, some, where) for some in self._some(ids)])
            if where is not None:
                return await _deleted(collection, None, where)
            gone = await self._dropped(collection)
            self._collections.pop(namespace, None)
            return gone

        async with self._writing:
            with self._alone:
                return await self._in(namespace, work) or 0

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass; with a filter, Chroma can only list their ids."""

        async def work(collection: Any) -> int:
            if filter is None:
                return await answer(collection.count())
            passing = await answer(collection.get(where=condition(filter), include=[]))
            return len(passing["ids"])

        return await self._in(namespace, work) or 0

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records and start so, at one count for each."""
        names: list[str] = []
        with typed_errors():
            for collection in await self._listed(self._client):
                name: str = _metadata(collection)[_NAMESPACE]
                if name.startswith(prefix) and await _counted(collection):
                    names.append(name)
        return sorted(names)

    def _some(self, ids: list[str]) -> list[list[str]]:
        distinct = list(dict.fromkeys(ids))
        return [
            distinct[start : start + self._most] for start in range(0, len(distinct), self._most)
        ]

    # -- collections ---------------------------------------------------------------------------

    async def _in(
        self, namespace: str, work: Callable[[Any], Awaitable[T]], *, create: bool = False
    ) -> T | None:
        """Do the work with a namespace's collection; None if there is none.

        A cached one may have been deleted, and created again, by another process.
        """
        with typed_errors():
            for _ in range(_ATTEMPTS):
                try:
                    if namespace not in self._collections:
                        self._collections[namespace] = await self._collection(
                            namespace, create=create
                        )
                    return await work(self._collections[namespace])
                except NotFoundError:
                    cached = self._collections.pop(namespace, None)
                    if cached is None and not create:
                        return None
            raise StoreUnavailable(
                "another process keeps deleting the collection that is being written",
                retryable=True,
            )

    async def _collection(self, namespace: str, *, create: bool) -> Any:
        name = f"{self._prefix}-{sha256(namespace.encode()).hexdigest()[:32]}"
        if not create:
            found = self._client.get_collection(name, embedding_function=None)
            return self._checked(await answer(found), namespace)
        config = self._config
        made = self._client.get_or_create_collection(
            name,
            metadata={
                _PREFIX: self._prefix,
                _NAMESPACE: namespace,
                _DIMENSION: config.dimension,
            },
            configuration={"hnsw": {"space": _SPACES[config.metric], **_GRAPH}},
            embedding_function=None,
        )
        return self._checked(await answer(made), namespace)  # an older one is left as it was

    def _checked(self, collection: Any, namespace: str | None = None) -> Any:
        """Refuse a collection that was made for something else."""
        dimension, space = self._made(collection, namespace)
        if dimension != self._config.dimension:
            raise DimensionMismatch(expected=dimension, got=self._config.dimension)
        if space != _SPACES[self._config.metric]:
            raise MetricMismatch(expected=_METRICS.get(space, space), got=self._config.metric)
        return collection

    def _made(self, collection: Any, namespace: str | None = None) -> tuple[int, str]:
        """Return the dimension and the space of a collection of this store."""
        held = _metadata(collection)
        if _DIMENSION not in held or (namespace is not None and held[_NAMESPACE] != namespace):
            raise StoreCorrupt(
                f"collection {collection.name!r} is not this store's: take another prefix"
            )
        return held[_DIMENSION], str(_hnsw(collection).get("space"))

    async def _listed(self, client: Any) -> list[Any]:
        """Return the collections of this store."""
        found: list[Any] = []
        for offset in range(0, 1 << 62, _COLLECTIONS_A_REQUEST):
            page = await answer(client.list_collections(_COLLECTIONS_A_REQUEST, offset))
            found += [one for one in page if _metadata(one).get(_PREFIX) == self._prefix]
            if len(page) < _COLLECTIONS_A_REQUEST:
                break
        return found

    async def _dropped(self, collection: Any) -> int:
        """Empty a collection, then delete it: what is left of a full one may turn up elsewhere.

        Returns:
            How many records it held.

        Source: https://github.com/chroma-core/chroma/issues/7594.
        """
        there = await answer(collection.get(include=[]))
        for some in self._some(there["ids"]):
            await answer(collection.delete(ids=some))
        await answer(self._client.delete_collection(collection.name))
        return len(there["ids"])


async def _nearest(
    collection: Any,
    query: NDArray[np.float32],
    k: int,
    where: dict[str, Any] | None,
    metric: Metric,
) -> Rows:
    """Return rows among which the k nearest are, with all that are as near as the k-th.

    Chroma's graph may end early, above all where many vectors are alike: of 3,000 equal ones it
    found 307. So if it finds fewer than requested, all that pass the filter are read.
    """
    size = min(k + _SPARE, _MAX_RESULTS)
    while True:
        (found,) = await _rows_near(collection, [query], size, where)
        if len(found.ids) < size:
            return Rows(await answer(collection.get(where=where, include=_EVERYTHING)))
        if _farther(found.distances[-1], found.distances[k - 1], metric):
            return found
        size *= _GROWTH


async def _near(
    collection: Any,
    queries: list[NDArray[np.float32]],
    k: int,
    where: dict[str, Any] | None,
    metric: Metric,
) -> list[Rows | None]:
    """Return for each query what `_nearest` does; None where one request does not tell."""
    size = min(k + _SPARE, _MAX_RESULTS)
    return [
        found
        if len(found.ids) == size and _farther(found.distances[-1], found.distances[k - 1], metric)
        else None
        for found in await _rows_near(collection, queries, size, where)
    ]


async def _rows_near(
    collection: Any, queries: list[NDArray[np.float32]], size: int, where: dict[str, Any] | None
) -> list[Rows]:
    """Return what Chroma finds for each query, in requests with results for SQLite's variables."""
    most, rows = max(1, _MAX_VARIABLES // size), list[Rows]()
    for start in range(0, len(queries), most):
        some = queries[start : start + most]
        pending = collection.query(
            query_embeddings=np.stack(some),
            n_results=size,
            where=where,
            include=[*_EVERYTHING, "distances"],
        )
        found = await answer(pending)
        rows += [Rows.of_query(found, place) for place in range(len(some))]
    return rows


def _farther(one: float, other: float, metric: Metric) -> bool:
    """Return True if a distance is larger by more than Chroma's rounding, in 32-bit floats.

    Of 300 multiples of one vector, all as near to it, Chroma's distances tell two kinds.
    """
    return one - other > _ROUNDING * (1.0 if metric == "cosine" else abs(other))


async def _deleted(collection: Any, ids: list[str] | None, where: Any) -> int:
    """Delete what has one of the ids and passes the filter; return how many records that were."""
    there = await answer(collection.get(ids=ids, where=where, include=[]))
    if there["ids"]:
        await answer(collection.delete(ids=ids, where=where))
    return len(there["ids"])


async def _counted(collection: Any) -> int:
    try:
        return await answer(collection.count())
    except NotFoundError:  # deleted since it was listed
        return 0


def _metadata(collection: Any) -> dict[str, Any]:
    return collection.metadata or {}


def _hnsw(collection: Any) -> dict[str, Any]:
    return collection.configuration_json.get("hnsw") or {}
