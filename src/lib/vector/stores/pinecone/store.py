"""`PineconeVectorStore`: checks its input, then asks Pinecone over HTTP; there is no driver."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.resilience import RetryPolicy
from lib.vector.backend import BackedStore
from lib.vector.contract import Capability
from lib.vector.filter.refusals import Refusal
from lib.vector.records import Layout, Metric
from lib.vector.stores.pinecone.client import Api, checked_host, checked_key
from lib.vector.stores.pinecone.control import IndexConfig, existing, found
from lib.vector.stores.pinecone.index import MAX_RESULTS, Index
from lib.vector.validate import checked_dimension

_CONTROL_HOST: Final = "https://api.pinecone.io"
_DEFAULT_RETRIES: Final = RetryPolicy()


class PineconeVectorStore(BackedStore[Index]):
    """Records in one serverless index of Pinecone, in its own namespaces.

    A batch is checked as a whole, then sent in requests of at most 1,000 records and 2 MB. Pinecone
    keeps each request whole, but has no transaction over several: if one fails, what the earlier
    ones have stored stays, and the same upsert again completes it. Metadata and text of a record
    take 40 KB at most, a query returns 10,000 results at most.

    Pinecone's searches lag behind its writes. With `consistent`, a write returns when a search has
    shown it, so that everybody reads it, and a read waits for this store's own writes.

    Exact counts have their price: `count` reads all ids, or with a filter all that pass, 100 in a
    request; `namespaces` asks for the first record of each namespace; `scan` reads all ids with the
    first page, and keeps them until the last one.

    Any write or search may raise `ConsistencyTimeout`: what was written is written, but searches do
    not show it in time. A later call waits for it again; where that one sees no such namespace
    either, it is taken for erased by another process, and no longer waited for.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {*BackedStore.capabilities, "existing"}
    )
    refusals: ClassVar[frozenset[Refusal]] = frozenset(
        {"string order", "wide number", "complement", "nested", "nested presence"}
    )
    _max_k: ClassVar[int | None] = MAX_RESULTS

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
        super().__init__(dimension, metric)
        if index_name is None and index_host is None:
            raise ValueError("give index_name or index_host")
        if create and index_name is None:
            raise ValueError("create=True needs index_name")
        if consistency_timeout_s < 0:
            raise ValueError("consistency_timeout_s is not negative")
        self._config = IndexConfig(
            name=index_name,
            host=None if index_host is None else checked_host(index_host, "index_host"),
            control=checked_host(control_host or _CONTROL_HOST, "control_host"),
            dimension=checked_dimension(dimension),
            metric=metric,
            create=create,
            cloud=cloud,
            region=region,
        )
        self._consistency_timeout_s = consistency_timeout_s if consistent else None
        self._clock = clock
        self._api = Api(
            checked_key(api_key), client=client, retries=retries, clock=clock, jitter=jitter
        )

    async def setup(self) -> None:
        """Find the index, made if it is missing and `create` is set; safe to repeat.

        Raises:
            DimensionMismatch: the index was made for another dimension.
            MetricMismatch: it was made for another metric.
            StoreUnavailable: it is missing, is not ready in time, or Pinecone cannot be config.
        """
        await super().setup()

    async def close(self) -> None:
        """Wait for the calls that run, then close the connections of a client of its own.

        Safe to repeat, also after it was cancelled. Any other call then raises StoreClosed.
        """
        await self._closing.close(self._api.aclose)

    async def existing(self) -> Layout | None:
        """Return how the index was made, whatever this object expects; None if it is missing.

        Raises:
            StoreUnavailable: Pinecone cannot be config.
        """
        with self._closing:
            return await existing(self._api, self._config)

    async def open_backend(self) -> Index:
        """Find the index."""
        return Index(
            self._api,
            await found(self._api, self._config, self._clock),
            dimension=self._config.dimension,
            metric=self._config.metric,
            consistency_timeout_s=self._consistency_timeout_s,
            clock=self._clock,
        )
