"""`QdrantVectorStore`: checks its input, then asks Qdrant's client; imports no driver itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lib.errors import MissingDriver, StoreClosed
from lib.vector.filter import Filter, fold, refusals
from lib.vector.listing import Listing
from lib.vector.offload import offload
from lib.vector.protocol import FilterLike
from lib.vector.records import Layout, Match, Metric, Record, Vector
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

if TYPE_CHECKING:
    from lib.vector.stores.qdrant.collection import Collection

T = TypeVar("T")

_NAME: Final = "QdrantVectorStore"
_MAX_NAME: Final = 255
_RECORD_EFFORT: Final = 50_000  # of checking one, in floats read


class QdrantVectorStore:
    """Records in one collection of Qdrant, each namespace a tenant of it with a graph of its own.

    A batch is checked as a whole, then sent in requests of at most 256 records and 8 MB. Qdrant
    keeps each request whole, but has no transaction over several: if one fails, what the earlier
    ones have stored stays, and the same upsert again completes it. A reader sees a finished write.

    Without a filter the search may be approximate, since Qdrant builds an index; with a filter it
    is exact, since that index knows nothing of metadata. Qdrant's in-process client is exact, does
    its work in one thread here, and warns that it is slow beyond 20,000 records. Metadata fields
    must not get a payload index: it changes what filters find.
    """

    def __init__(
        self,
        *,
        dimension: int,
        collection: str = "lib_vectors",
        metric: Metric = "cosine",
        client: Any = None,
        **client_kwargs: Any,
    ) -> None:
        """Connect to nothing yet: `setup`, or the first call, does.

        Args:
            dimension: of every vector.
            collection: its name, made if it is missing.
            metric: how nearness is measured.
            client: an `AsyncQdrantClient`, which stays the caller's: it is not closed, and one that
                works in process does so on the event loop.
            client_kwargs: for an `AsyncQdrantClient` of its own, as `url=`, `api_key=`, `path=`
                (a folder) or `location=":memory:"`; none means the server on this machine.

        Raises:
            ValueError: the dimension is not positive, the metric unknown, the collection no name,
                or there are both a client and arguments for one.
            MissingDriver: qdrant-client is not installed.
        """
        if find_spec("qdrant_client") is None:
            raise MissingDriver(_NAME, driver="qdrant-client", extra="qdrant")
        if client is not None and client_kwargs:
            raise ValueError("give a client, or the arguments for one, not both")
        checked_dimension(dimension)
        self._dimension = dimension
        self._metric: Metric = checked_metric(metric)
        self._name = _checked_name(collection)
        self._client, self._client_kwargs = client, client_kwargs
        self._collection: Collection | None = None
        self._listing = Listing()
        # An in-process client blocks, so it does its work in the thread.
        self._blocks = client is None and (
            client_kwargs.get("location") == ":memory:" or client_kwargs.get("path") is not None
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=_NAME)
        self._closed = False

    @property
    def metric(self) -> Metric:
        """How nearness is measured."""
        return self._metric

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self._dimension

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one."""
        return self._metric != "euclidean"

    async def setup(self) -> None:
        """Connect, and make the collection if it is missing; safe to repeat.

        Raises:
            DimensionMismatch: the collection was made for another dimension.
            MetricMismatch: it was made for another metric.
            StoreCorrupt: it was made for something else.
            StoreUnavailable: the server cannot be reached or refuses, or the folder is in use.
        """
        await self._run(_nothing)

    async def close(self) -> None:
        """Close the client if it is the store's own; safe to repeat."""
        if self._closed:
            return
        self._closed = True
        if self._blocks:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        elif self._collection is not None and self._client is None:
            await self._collection.close()
        self._thread.shutdown(wait=False)

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held.

        All of them are checked before any is sent. More than fit into one request can be stored in
        part when the server fails midway; safe to repeat.
        """
        name, given = checked_namespace(namespace), list(records)
        await self._run(_nothing)
        batch = await offload(
            _RECORD_EFFORT * len(given),
            lambda: checked_batch(given, metric=self._metric, dimension=self._dimension),
        )
        if batch is not None:
            await self._run(lambda collection: collection.upsert(name, batch))

    async def query(
        self,
        vector: Vector,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
    ) -> list[Match]:
        """Return the k records nearest to `vector`, best first, ties in the order of their ids."""
        query = checked_query(vector, k, metric=self._metric, dimension=self._dimension)
        name, nothing = checked_namespace(namespace), list[Match]()
        return await self._filtered(
            filter,
            lambda collection, plan: collection.query(
                name, query, k, plan, include_vectors=include_vectors
            ),
            otherwise=nothing,
        )

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids in the order asked; unknown ids are left out."""
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        return await self._run(lambda collection: collection.get(name, wanted))

    async def scan(
        self, *, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids.

        All ids of the namespace are read with the first page, and kept until the last one.
        """
        start, name = checked_scan(after, limit), checked_namespace(namespace)
        return await self._run(
            lambda collection: self._listing.page(
                name, start, limit, ids=collection.ids, get=collection.get
            )
        )

    async def existing(self) -> Layout | None:
        """Return how the collection was made, whatever this object expects; None if there is none.

        Raises:
            StoreCorrupt: it was made for something else.
            StoreUnavailable: the server cannot be reached or refuses, or the folder is in use.
        """
        path = self._client_kwargs.get("path")
        if path is not None and not await asyncio.to_thread(Path(path).is_dir):
            self._check_open()
            return None
        return await self._do(lambda collection: collection.existing())

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
            parsed,
            lambda collection, plan: collection.delete(name, wanted, plan),
            otherwise=None,
        )

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        """Return how many records of the namespace pass the filter."""
        name = checked_namespace(namespace)
        return await self._filtered(
            filter, lambda collection, plan: collection.count(name, plan), otherwise=0
        )

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start so, sorted."""
        return await self._run(lambda collection: collection.namespaces(prefix))

    async def _filtered(
        self,
        filter: FilterLike,
        work: Callable[[Collection, Filter | None], Coroutine[Any, Any, T]],
        *,
        otherwise: T,
    ) -> T:
        """Do the work with a filter that has no constants left; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        if plan is False:
            await self._run(_nothing)
            return otherwise
        if plan is True:
            return await self._run(lambda collection: work(collection, None))
        checked = refusals.checked(plan, store=_NAME)
        return await self._run(lambda collection: work(collection, checked))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{_NAME} is closed")

    async def _run(self, work: Callable[[Collection], Coroutine[Any, Any, T]]) -> T:
        return await self._do(lambda collection: _prepared(collection, work))

    async def _do(self, work: Callable[[Collection], Coroutine[Any, Any, T]]) -> T:
        self._check_open()
        in_thread = asyncio.get_running_loop().run_in_executor
        if self._blocks:
            return await in_thread(self._thread, lambda: _finished(work(self._open())))
        collection = self._collection or await in_thread(self._thread, self._open)
        return await work(collection)

    def _open(self) -> Collection:
        """Return the collection; in the store's thread, since loading the driver takes a second."""
        if self._collection is None:
            from lib.vector.stores.qdrant import collection as driver  # noqa: PLC0415 - loads it

            client = self._client or driver.opened(self._client_kwargs)
            self._collection = driver.Collection(
                client,
                driver.Asked(name=self._name, dimension=self._dimension, metric=self._metric),
            )
        return self._collection

    def _close(self) -> None:
        if self._collection is not None:
            _finished(self._collection.close())


async def _prepared(
    collection: Collection, work: Callable[[Collection], Coroutine[Any, Any, T]]
) -> T:
    await collection.prepare()
    return await work(collection)


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits: an in-process client's does not."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the in-process client waits for something, which it has never done")


async def _nothing(_: Collection) -> None:
    """Do what `setup` does, and no more."""


def _checked_name(collection: str) -> str:
    """Refuse what Qdrant takes for no name of a collection."""
    forbidden = set('<>:"/\\|?*\0') & set(collection)
    if not 1 <= len(collection) <= _MAX_NAME or forbidden or collection in {".", ".."}:
        raise ValueError(
            f"collection is a name of 1 to {_MAX_NAME} characters without any of "
            f'<>:"/\\|?*, got {collection!r}'
        )
    return collection
