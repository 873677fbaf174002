"""`QdrantVectorStore`: checks its input, then asks Qdrant's client; imports no driver itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from lib.errors import MissingDriver, StoreUnavailable
from lib.vector.backend import BackedStore
from lib.vector.contract import Capability
from lib.vector.filter.refusals import Refusal
from lib.vector.offload import finished
from lib.vector.records import Layout, Metric
from lib.vector.validate import checked_dimension

if TYPE_CHECKING:
    from lib.vector.stores.qdrant.collection import Collection

T = TypeVar("T")

_MAX_NAME: Final = 255
_MARK: Final = "meta.json"


class QdrantVectorStore(BackedStore["Collection"]):
    """Records in one collection of Qdrant, each namespace a tenant of it with a graph of its own.

    A batch is checked as a whole, then sent in requests of at most 256 records and 8 MB. Qdrant
    keeps each request whole, but has no transaction over several: if one fails, what the earlier
    ones have stored stays, and the same upsert again completes it. A reader sees a finished write.

    Without a filter the search may be approximate, since Qdrant builds an index; with a filter it
    is exact, since that index knows nothing of metadata. Qdrant's in-process client is exact, does
    its work in one thread here, and warns that it is slow beyond 20,000 records. Metadata fields
    must not get a payload index: it changes what filters find. `scan` reads all ids of a namespace
    with the first page, and keeps them until the last one.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {*BackedStore.capabilities, "existing"}
    )
    refusals: ClassVar[frozenset[Refusal]] = frozenset(
        {"string order", "wide number", "quoted key", "nested presence"}
    )

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
            raise MissingDriver(self._name, driver="qdrant-client", extra="qdrant")
        if client is not None and client_kwargs:
            raise ValueError("give a client, or the arguments for one, not both")
        super().__init__(dimension, metric)
        self._collection_name, self._size = _checked_name(collection), checked_dimension(dimension)
        self._client, self._client_kwargs = client, client_kwargs
        self._collection: Collection | None = None
        # An in-process client blocks, so it does its work in the thread.
        self._blocks = client is None and (
            client_kwargs.get("location") == ":memory:" or client_kwargs.get("path") is not None
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._name)

    async def setup(self) -> None:
        """Connect, and make the collection if it is missing, or was dropped; safe to repeat.

        Raises:
            DimensionMismatch: the collection was made for another dimension.
            MetricMismatch: it was made for another metric.
            StoreCorrupt: it was made for something else.
            StoreUnavailable: the server cannot be reached or refuses, or the folder is in use.
        """
        await self._do(lambda collection: collection.prepare(again=True))

    async def close(self) -> None:
        """Wait for the calls that run, then close the client if it is the store's own.

        Safe to repeat, also after it was cancelled. Any other call then raises StoreClosed.
        """
        await self._closing.close(self._release)

    async def existing(self) -> Layout | None:
        """Return how the collection was made, whatever this object expects; None if there is none.

        Raises:
            StoreCorrupt: it was made for something else.
            StoreUnavailable: the server cannot be reached or refuses, or the folder is in use.
        """
        path = self._client_kwargs.get("path")
        if path is not None:
            self._closing.check_open()
            if not await asyncio.to_thread(_is_folder_of_qdrant, Path(path)):
                return None
        return await self._do(lambda collection: collection.existing())

    async def _run(self, work: Callable[[Collection], Coroutine[Any, Any, T]]) -> T:
        return await self._do(lambda collection: _prepared(collection, work))

    async def _do(self, work: Callable[[Collection], Coroutine[Any, Any, T]]) -> T:
        in_thread = asyncio.get_running_loop().run_in_executor
        with self._closing:
            if self._blocks:
                return await in_thread(self._thread, lambda: finished(work(self._open())))
            collection = self._collection or await in_thread(self._thread, self._open)
            return await work(collection)

    def _open(self) -> Collection:
        """Return the collection; in the store's thread, since loading the driver takes a second."""
        if self._collection is None:
            from lib.vector.stores.qdrant import client, collection  # noqa: PLC0415 - loads them

            self._collection = collection.Collection(
                self._client or client.opened(self._client_kwargs),
                collection.CollectionConfig(
                    name=self._collection_name, dimension=self._size, metric=self._metric
                ),
            )
        return self._collection

    async def _release(self) -> None:
        # In the thread, after what cancelled calls have left there: it may be opening a client.
        in_thread = asyncio.get_running_loop().run_in_executor
        collection = await in_thread(self._thread, lambda: self._collection)
        if collection is not None and self._client is None:
            if self._blocks:
                await in_thread(self._thread, lambda: finished(collection.close()))
            else:
                await collection.close()
        self._thread.shutdown(wait=False)


async def _prepared(
    collection: Collection, work: Callable[[Collection], Coroutine[Any, Any, T]]
) -> T:
    await collection.prepare()
    return await work(collection)


def _is_folder_of_qdrant(path: Path) -> bool:
    """Return True if a client has ever been opened here; opening one makes the folder its own."""
    try:
        return (path / _MARK).exists()
    except OSError as error:
        raise StoreUnavailable(f"the Qdrant folder cannot be read: {error.strerror}") from error


def _checked_name(collection: str) -> str:
    """Refuse what Qdrant takes for no name of a collection."""
    forbidden = set('<>:"/\\|?*\0') & set(collection)
    if not 1 <= len(collection) <= _MAX_NAME or forbidden or collection in {".", ".."}:
        raise ValueError(
            f"collection is a name of 1 to {_MAX_NAME} characters without any of "
            f'<>:"/\\|?*, got {collection!r}'
        )
    return collection
