"""The calls of `QdrantVectorStore` to its client: one collection, opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from lib.errors import DimensionMismatch, MetricMismatch, StoreCorrupt
from lib.vector.filter import Filter
from lib.vector.ordering import ListedBackend, nearest, ordered
from lib.vector.records import Layout, Match, Metric, Record
from lib.vector.stores.qdrant import points
from lib.vector.stores.qdrant.client import typed_errors
from lib.vector.stores.qdrant.filter import NAMESPACE, condition, within
from lib.vector.validate import Batch

_DISTANCES: Final[dict[Metric, models.Distance]] = {
    "cosine": models.Distance.COSINE,
    "dot": models.Distance.DOT,
    "euclidean": models.Distance.EUCLID,
}
_METRICS: Final[dict[models.Distance, Metric]] = {
    distance: metric for metric, distance in _DISTANCES.items()
}
_IDS_A_REQUEST: Final = 1000
_NAMESPACES_A_REQUEST: Final = 1000
_MANY: Final = 1000
"""From so many results on, the records are counted first: a server makes room for all."""
_EF: Final = 128
_SPARE: Final = 8  # results beyond the k-th, to see where its score ends
_QUERIES_A_REQUEST: Final = 100
_CONFLICT: Final = 409
_EXACTLY: Final = models.SearchParams(exact=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionConfig:
    """The collection of a store, and for which vectors.

    Attributes:
        name: of the collection.
        dimension: of every vector.
        metric: how nearness is measured.
    """

    name: str
    dimension: int
    metric: Metric


class Collection(ListedBackend):
    """One collection of a client."""

    def __init__(self, client: AsyncQdrantClient, config: CollectionConfig) -> None:
        """Ask the server nothing yet."""
        super().__init__()
        self._client = client
        self._name, self._config = config.name, config
        options = client.init_options
        self._local = options.get("location") == ":memory:" or options.get("path") is not None
        self._ready = False

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    async def prepare(self, *, again: bool = False) -> None:
        """Make the collection if it is missing, else see that it is of the expected kind.

        Args:
            again: look even if that has been done, since others may have dropped it.

        Raises:
            DimensionMismatch, MetricMismatch: it was made for other vectors.
            StoreCorrupt: it was not made by this store.
            StoreUnavailable: the server cannot be config.
        """
        if again:
            self._ready = False
        if not self._ready:  # two calls may do it at once, as two processes may
            with typed_errors():
                await self._prepare()
            self._ready = True

    async def _prepare(self) -> None:
        if not await self._client.collection_exists(self._name):
            await self._create()
        info = await self._client.get_collection(self._name)
        self._check(info.config.params.vectors)
        # A key that may only read can open a collection that has its index.
        if not self._local and NAMESPACE not in info.payload_schema:
            await self._client.create_payload_index(
                self._name,
                NAMESPACE,
                models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
                wait=True,
            )

    async def _create(self) -> None:
        vectors = models.VectorParams(
            size=self._config.dimension, distance=_DISTANCES[self._config.metric]
        )
        try:
            # one graph for each namespace, and none over all of them
            await self._client.create_collection(
                self._name,
                vectors_config=vectors,
                hnsw_config=models.HnswConfigDiff(payload_m=16, m=0),
            )
        except UnexpectedResponse as error:
            if error.status_code != _CONFLICT:  # another process was faster
                raise

    def _own(self, vectors: object) -> models.VectorParams:
        if not isinstance(vectors, models.VectorParams):
            raise StoreCorrupt(f"collection {self._name!r} is not a vector store's: name another")
        return vectors

    def _check(self, found: object) -> None:
        vectors, config = self._own(found), self._config
        if vectors.size != config.dimension:
            raise DimensionMismatch(expected=vectors.size, got=config.dimension)
        if vectors.distance != _DISTANCES[config.metric]:
            made: str = _METRICS.get(vectors.distance) or vectors.distance.value
            raise MetricMismatch(expected=made, got=config.metric)

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch, in as few requests as can carry them."""
        with typed_errors():
            for request in points.requests(namespace, batch, self._config.metric):
                await self._client.upsert(self._name, request, wait=True)

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
        among = _among(namespace, filter)
        wanted = points.wanted(self._config.metric, vectors=include_vectors)

        async def search(size: int, params: models.SearchParams | None) -> list[Match]:
            answer = await self._client.query_points(
                self._name,
                query=query.tolist(),
                query_filter=among,
                limit=size,
                search_params=params,
                **wanted,
            )
            return [points.match(point, vectors=include_vectors) for point in answer.points]

        async def fetch(size: int) -> Sequence[Match]:
            if self._local:  # which is exact, and warns of search parameters
                return await search(size, None)
            found: list[Match] = []
            if filter is None:
                found = await search(size, models.SearchParams(hnsw_ef=max(_EF, size)))
            # The graph of a namespace knows nothing of metadata: where a tenth of 20,000 records
            # passed a filter, the engine found a third of the nearest, and no sooner.
            return found if len(found) == size else await search(size, _EXACTLY)

        with typed_errors():
            limit = await self._count(among) if k >= _MANY else None
            if limit == 0:
                return []
            higher = self._config.metric != "euclidean"
            return await nearest(fetch, k, higher_is_better=higher, limit=limit)

    async def query_many(
        self,
        namespace: str,
        queries: list[NDArray[np.float32]],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[list[Match]]:
        """Return what `query` does for each of them; a server takes a hundred in a request.

        Where equal scores go on beyond what it returns, a query is sent again by itself.
        """

        async def alone(query: NDArray[np.float32]) -> list[Match]:
            return await self.query(namespace, query, k, filter, include_vectors=include_vectors)

        if self._local or k >= _MANY:
            return [await alone(query) for query in queries]
        wanted = points.wanted(self._config.metric, vectors=include_vectors)
        shape = models.QueryRequest(
            filter=_among(namespace, filter),
            limit=k + _SPARE,
            params=_EXACTLY
            if filter is not None
            else models.SearchParams(hnsw_ef=max(_EF, k + _SPARE)),
            with_payload=wanted["with_payload"],
            with_vector=wanted["with_vectors"],
        )
        found: list[list[Match]] = []
        with typed_errors():
            for start in range(0, len(queries), _QUERIES_A_REQUEST):
                some = queries[start : start + _QUERIES_A_REQUEST]
                searches = [shape.model_copy(update={"query": query.tolist()}) for query in some]
                answers = await self._client.query_batch_points(self._name, searches)
                for query, answer in zip(some, answers, strict=True):
                    near = [points.match(one, vectors=include_vectors) for one in answer.points]
                    settled = self._settled(near, k, exact=filter is not None)
                    found.append(await alone(query) if settled is None else settled)
        return found

    def _settled(self, found: list[Match], k: int, *, exact: bool) -> list[Match] | None:
        """Return the k best, or None if what was found does not tell which they are."""
        near = ordered(found, higher_is_better=self._config.metric != "euclidean")
        if len(near) < k + _SPARE:
            return near[:k] if exact else None
        return None if near[-1].score == near[k - 1].score else near[:k]

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        wanted = points.wanted(self._config.metric, vectors=True)
        found: dict[str, Record] = {}
        with typed_errors():
            for some in _some(namespace, ids):
                for point in await self._client.retrieve(self._name, some, **wanted):
                    record = points.record(point)
                    found[record.id] = record
        return [found[name] for name in ids if name in found]

    async def ids(self, namespace: str, filter: Filter | None) -> list[str]:
        """Return the ids of the records that pass the filter, in any order."""
        among, found = _among(namespace, filter), list[str]()
        offset: Any = None
        with typed_errors():
            while True:
                page, offset = await self._client.scroll(
                    self._name,
                    among,
                    limit=_IDS_A_REQUEST,
                    offset=offset,
                    **points.IDS,
                )
                found += map(points.name, page)
                if offset is None:
                    return found

    async def existing(self) -> Layout | None:
        """Return how the collection was made; None if there is none.

        Raises:
            StoreCorrupt: it was not made by this store.
            StoreUnavailable: the server cannot be config.
        """
        with typed_errors():
            if not await self._client.collection_exists(self._name):
                return None
            info = await self._client.get_collection(self._name)
        vectors = self._own(info.config.params.vectors)
        return Layout(dimension=vectors.size, metric=_METRICS.get(vectors.distance))

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number.

        Qdrant does not tell it, so they are counted first, at a request more.
        """
        among = _among(namespace, filter)
        with typed_errors():
            if ids is None:
                return await self._delete(among)
            gone = 0
            for some in _some(namespace, list(dict.fromkeys(ids))):
                named = models.HasIdCondition(has_id=some)
                gone += await self._delete(models.Filter(must=[named, among]))
            return gone

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        with typed_errors():
            return await self._count(_among(namespace, filter))

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records, sorted."""
        limit = _NAMESPACES_A_REQUEST
        with typed_errors():
            while True:
                answer = await self._client.facet(self._name, NAMESPACE, limit=limit, exact=True)
                if len(answer.hits) < limit:
                    break
                limit *= 10
        return sorted(name for hit in answer.hits if (name := str(hit.value)).startswith(prefix))

    async def _delete(self, among: models.Filter) -> int:
        gone = await self._count(among)
        await self._client.delete(self._name, models.FilterSelector(filter=among), wait=True)
        return gone

    async def _count(self, among: models.Filter) -> int:
        return (await self._client.count(self._name, among, exact=True)).count


def _among(namespace: str, filter: Filter | None) -> models.Filter:
    return within(namespace) if filter is None else within(namespace, condition(filter))


def _some(namespace: str, ids: list[str]) -> Iterator[list[models.ExtendedPointId]]:
    """Yield the ids of the points, as many at a time as one request may carry."""
    for start in range(0, len(ids), _IDS_A_REQUEST):
        yield [points.point_id(namespace, name) for name in ids[start : start + _IDS_A_REQUEST]]
