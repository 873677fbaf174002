"""`PineconeVectorStore`: checks its input, then asks Pinecone over HTTP; there is no driver."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import StoreClosed
from lib.resilience import RetryPolicy
from lib.vector.filter import Filter, fold, refusals
from lib.vector.listing import Listing
from lib.vector.protocol import FilterLike
from lib.vector.records import Layout, Match, Metric, Record, Vector
from lib.vector.stores.pinecone.api import Api, checked_host, checked_key
from lib.vector.stores.pinecone.control import Asked, existing, found
from lib.vector.stores.pinecone.index import MAX_RESULTS, Index
from lib.vector.validate import (
    checked_batch,
    checked_deletion,
    checked_dimension,
    checked_ids,
    checked_metric,
    checked_namespace,
    checked_query,
    checked_scan,
)

T = TypeVar("T")

_NAME: Final = "PineconeVectorStore"
_CONTROL_HOST: Final = "https://api.pinecone.io"
_DEFAULT_RETRIES: Final = RetryPolicy()


class PineconeVectorStore:
    """Records in one serverless index of Pinecone, in its own namespaces.

    A batch is checked as a whole, then sent in requests of at most 1,000 records and 2 MB. Pinecone
    keeps each request whole, but has no transaction over several: if one fails, what the earlier
    ones have stored stays, and the same upsert again completes it. Metadata and text of a record
    take 40 KB at most, a query returns 10,000 results at most.

    Pinecone's searches lag behind its writes. With `consistent`, a write returns when a search has
    shown it, so that everybody reads it, and a read waits for this store's own writes.

    Exact counts have their price: `count` reads all ids, or with a filter all that pass, 100 in a
    request; `namespaces` asks for the first record of each namespace.
    """

    def __init__(
        self,
        *,
        dimension: int,
        api_key: str | None = None,
        index_name: str | None = None,
        index_host: str | None = None,
        metric: Metric = "cosine",
        create: bool = False,
        cloud: str = "aws",
        region: str = "us-east-1",
        consistent: bool = True,
        consistency_timeout_s: float = 30.0,
        control_host: str | None = None,
        client: Any = None,
        retries: RetryPolicy = _DEFAULT_RETRIES,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Connect to nothing yet: `setup`, or the first call, does.

        Args:
            dimension: of every vector.
            api_key: defaults to PINECONE_API_KEY.
            index_name: of the index, whose host is looked up.
            index_host: of the index; then a key that may only use the index is enough.
            metric: how nearness is measured.
            create: make the index if it is missing.
            cloud: where to make it.
            region: where in that cloud.
            consistent: wait until searches show what was written.
            consistency_timeout_s: how long to wait for that, in seconds.
            control_host: of the control plane, where it is not Pinecone's own.
            client: an `httpx2.AsyncClient` to use; it is not closed.
            retries: how often and how long to try.
            clock: measures and waits.
            jitter: returns numbers from 0 up to 1, to spread the waits between attempts.

        Raises:
            ValueError: the dimension is not positive, the metric unknown, a host none, the time
                negative, there is no key, or no name where one is needed.
        """
        checked_dimension(dimension)
        if index_name is None and index_host is None:
            raise ValueError("give index_name or index_host")
        if create and index_name is None:
            raise ValueError("create=True needs index_name")
        if consistency_timeout_s < 0:
            raise ValueError("consistency_timeout_s is not negative")
        self._asked = Asked(
            name=index_name,
            host=None if index_host is None else checked_host(index_host, "index_host"),
            control=checked_host(control_host or _CONTROL_HOST, "control_host"),
            dimension=dimension,
            metric=checked_metric(metric),
            create=create,
            cloud=cloud,
            region=region,
        )
        self._consistency_timeout_s = consistency_timeout_s if consistent else None
        self._clock = clock
        self._api = Api(
            checked_key(api_key), client=client, retries=retries, clock=clock, jitter=jitter
        )
        self._index: Index | None = None
        self._listing = Listing()
        self._finding = asyncio.Lock()
        self._closed = False

    @property
    def metric(self) -> Metric:
        """How nearness is measured."""
        return self._asked.metric

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self._asked.dimension

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one."""
        return self.metric != "euclidean"

    async def setup(self) -> None:
        """Find the index, made if it is missing and `create` was said; safe to repeat.

        Raises:
            DimensionMismatch: the index was made for another dimension.
            MetricMismatch: it was made for another metric.
            StoreUnavailable: it is missing, is not ready in time, or Pinecone cannot be asked.
        """
        await self._found()

    async def close(self) -> None:
        """Close the connections, unless the client is the caller's; safe to repeat."""
        if not self._closed:
            self._closed = True
            await self._api.aclose()

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held.

        All of them are checked before any is sent. More than fit into one request can be stored in
        part when Pinecone fails midway; safe to repeat.

        Raises:
            InvalidMeta: a record's metadata and text take more than 40 KB.
            ConsistencyTimeout: all is written, but searches do not show it in time.
        """
        name = checked_namespace(namespace)
        batch = checked_batch(list(records), metric=self.metric, dimension=self.dimension)
        index = await self._found()
        if batch is not None:
            await index.upsert(name, batch)

    async def query(
        self,
        vector: Vector,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
    ) -> list[Match]:
        """Return the k records nearest to `vector`, best first, ties in the order of their ids.

        Raises:
            ValueError: k is above 10,000, which is all that Pinecone returns.
            ConsistencyTimeout: searches do not show this store's last write in time.
        """
        query = checked_query(vector, k, metric=self.metric, dimension=self.dimension)
        if k > MAX_RESULTS:
            raise ValueError(f"k is at most {MAX_RESULTS} in Pinecone, got {k}")
        name, nothing = checked_namespace(namespace), list[Match]()
        return await self._filtered(
            filter,
            lambda index, plan: index.query(name, query, k, plan, include_vectors=include_vectors),
            otherwise=nothing,
        )

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids in the order asked; unknown ids are left out."""
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        index = await self._found()
        return await index.get(name, wanted)

    async def scan(
        self, *, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids.

        All ids of the namespace are read with the first page, 100 in a request, and kept until the
        last one.
        """
        start, name = checked_scan(after, limit), checked_namespace(namespace)
        index = await self._found()
        return await self._listing.page(name, start, limit, ids=index.ids, get=index.get)

    async def existing(self) -> Layout | None:
        """Return how the index was made, whatever this object expects; None if it is missing.

        Raises:
            StoreUnavailable: Pinecone cannot be asked.
        """
        self._check_open()
        return await existing(self._api, self._asked)

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> None:
        """Delete records by id, by filter, or those that meet both; unknown ids are ignored."""
        wanted, parsed = checked_deletion(ids, filter)
        name = checked_namespace(namespace)
        await self._filtered(
            parsed, lambda index, plan: index.delete(name, wanted, plan), otherwise=None
        )

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        """Return how many records of the namespace pass the filter; 100 are read in a request."""
        name = checked_namespace(namespace)
        return await self._filtered(
            filter, lambda index, plan: index.count(name, plan), otherwise=0
        )

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start so, sorted."""
        index = await self._found()
        return await index.namespaces(prefix)

    async def _filtered(
        self,
        filter: FilterLike,
        work: Callable[[Index, Filter | None], Coroutine[Any, Any, T]],
        *,
        otherwise: T,
    ) -> T:
        """Do the work with a filter that has no constants left; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        if isinstance(plan, Filter):
            refusals.checked(plan, store=_NAME)
        index = await self._found()
        if plan is False:
            return otherwise
        return await work(index, None if plan is True else plan)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{_NAME} is closed")

    async def _found(self) -> Index:
        self._check_open()
        async with self._finding:
            if self._index is None:
                host = await found(self._api, self._asked, self._clock)
                self._index = Index(
                    self._api,
                    host,
                    dimension=self.dimension,
                    metric=self.metric,
                    consistency_timeout_s=self._consistency_timeout_s,
                    clock=self._clock,
                )
            return self._index
