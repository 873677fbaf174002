"""What every store before a database does alike: it judges the arguments, then asks the database.

A store of one's own names its `Backend` and overrides `open_backend`; what it cannot express in a
filter it declares in `refusals`. The methods of the contract are here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib._util.contexts import AsyncStore
from lib._util.turns import turn
from lib.vector.closing import Closing
from lib.vector.contract import Capability, FilterLike
from lib.vector.filter import Filter, fold
from lib.vector.filter.refusals import Refusal, checked
from lib.vector.offload import offload
from lib.vector.records import Match, Metric, Record, Vector
from lib.vector.validate import (
    Batch,
    checked_batch,
    checked_deletion,
    checked_dimension,
    checked_ids,
    checked_k,
    checked_metric,
    checked_namespace,
    checked_query,
    checked_scan,
    checked_words,
)
from lib.vector.values import plain_text

T = TypeVar("T")

_MOST: Final = 2**31 - 1
"""As many results as there can be; asked for more, some databases fail, as their numbers end."""
_RECORD_EFFORT: Final = 50_000  # of checking one, in floats read


class Backend(Protocol):
    """One table, collection or index, opened. What it is given has been judged.

    Namespaces are never None; filters are folded, without constant parts, and hold nothing that the
    store refuses. What is returned shares nothing with what the backend keeps.
    """

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch."""
        ...

    async def query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        """Return the nearest records, best first, ties by id."""
        ...

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        ...

    async def scan(self, namespace: str, after: str, limit: int) -> list[Record]:
        """Return the first records whose ids follow `after`, in the order of their ids."""
        ...

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> None:
        """Delete the records that are among the ids, if given, and pass the filter, if given."""
        ...

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        ...

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records and start so, sorted."""
        ...


class HybridBackend(Backend, Protocol):
    """A backend that can fuse keyword relevance with nearness."""

    async def query_hybrid(
        self,
        namespace: str,
        query: NDArray[np.float32],
        text: str,
        k: int,
        filter: Filter | None,
    ) -> list[Match]:
        """Return the best by reciprocal rank in two lists: nearest vectors, best texts."""
        ...


B = TypeVar("B", bound=Backend)
H = TypeVar("H", bound=HybridBackend)


class BackedStore(AsyncStore, Generic[B]):
    """A vector store before a backend; see `lib.vector.contract.VectorStore`.

    A subclass overrides `open_backend`, and `close_backend` where there is something to release.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"scan"})
    """What it can do beyond `VectorStore`."""

    refusals: ClassVar[frozenset[Refusal]] = frozenset()
    """What it cannot express in a filter: such a filter raises `UnsupportedFilter`."""

    _name: ClassVar[str]
    """Of the class, for messages."""

    _max_k: ClassVar[int | None] = None
    """How many results a query may ask for; None is unlimited."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the class."""
        super().__init_subclass__(**options)
        if "_name" not in cls.__dict__:
            cls._name = cls.__name__

    def __init__(self, dimension: int, metric: Metric = "cosine") -> None:
        """Take what every store has to know of its vectors.

        Raises:
            ValueError: the dimension is not positive, or the metric unknown.
        """
        self._dimension = checked_dimension(dimension)
        self._metric: Metric = checked_metric(metric)
        self._backend: B | None = None
        self._opening = asyncio.Lock()
        self._closing = Closing(self._name)

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

    async def open_backend(self) -> B:
        """Connect to the database, and make what is missing there; called once, by the first call.

        Raises:
            NotImplementedError: a subclass has to override it.
        """
        raise NotImplementedError(f"{self._name} has to override open_backend()")

    async def close_backend(self, backend: B) -> None:
        """Release what `open_backend` has opened; called once, after the last call has ended."""

    async def close(self) -> None:
        """Wait for the calls that run, then release what the store holds; safe to repeat.

        Any other call then raises StoreClosed.
        """
        await self._closing.close(self._release)

    async def _release(self) -> None:
        if self._backend is not None:
            await self.close_backend(self._backend)

    async def _run(self, work: Callable[[B], Coroutine[Any, Any, T]]) -> T:
        """Return what the work returns; the backend is opened, and made if it is missing.

        Raises:
            StoreClosed: the store is closed.
        """
        with self._closing.call():
            return await work(await self._opened())

    async def _opened(self) -> B:
        async with self._opening:
            self._closing.check_open()
            if self._backend is None:
                self._backend = await self.open_backend()
            return self._backend

    async def setup(self) -> None:
        """Make the store usable; safe to repeat and to run in several processes at once."""
        await turn()
        await self._run(_nothing)

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held; safe to repeat.

        All of them are checked before any is sent.
        """
        await turn()
        name, given = checked_namespace(namespace), list(records)
        batch = await offload(
            _RECORD_EFFORT * len(given),
            lambda: checked_batch(given, metric=self._metric, dimension=self._dimension),
        )
        if batch is None:
            await self._run(_nothing)
        else:
            await self._run(lambda backend: backend.upsert(name, batch))

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
            ValueError: k is below 1, or above what the database returns.
        """
        await turn()
        k = checked_k(k)
        query = checked_query(vector, k, metric=self._metric, dimension=self._dimension)
        if self._max_k is not None and k > self._max_k:
            raise ValueError(f"k is at most {self._max_k} in {self._name}, got {k}")
        name, nothing = checked_namespace(namespace), list[Match]()
        return await self._filtered(
            filter,
            lambda backend, plan: backend.query(
                name, query, min(k, _MOST), plan, include_vectors=include_vectors
            ),
            otherwise=nothing,
        )

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids in the order asked; unknown ids are left out."""
        await turn()
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        return await self._run(lambda backend: backend.get(name, wanted))

    async def scan(
        self, *, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids."""
        await turn()
        (start, most), name = checked_scan(after, limit), checked_namespace(namespace)
        return await self._run(lambda backend: backend.scan(name, start, most))

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> None:
        """Delete records by id, by filter, or those that meet both; unknown ids are ignored."""
        await turn()
        wanted, parsed = checked_deletion(ids, filter)
        name = checked_namespace(namespace)
        await self._filtered(
            parsed, lambda backend, plan: backend.delete(name, wanted, plan), otherwise=None
        )

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        """Return how many records of the namespace pass the filter."""
        await turn()
        name = checked_namespace(namespace)
        return await self._filtered(
            filter, lambda backend, plan: backend.count(name, plan), otherwise=0
        )

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start so, sorted."""
        await turn()
        try:
            plain_text(prefix)
        except ValueError:  # what no name can hold, no name starts with
            await self._run(_nothing)
            return []
        return await self._run(lambda backend: backend.namespaces(prefix))

    async def _filtered(
        self,
        filter: FilterLike,
        work: Callable[[B, Filter | None], Coroutine[Any, Any, T]],
        *,
        otherwise: T,
    ) -> T:
        """Do the work with a filter that has no constants left; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        if plan is False:
            await self._run(_nothing)
            return otherwise
        supported = None if plan is True else checked(plan, store=self)
        return await self._run(lambda backend: work(backend, supported))


class HybridBackedStore(BackedStore[H], Generic[H]):
    """A store before a backend that can fuse keyword relevance with nearness."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"scan", "hybrid"})

    async def query_hybrid(
        self,
        vector: Vector,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> list[Match]:
        """Return the k best by reciprocal rank in two lists: nearest vectors, best texts.

        Any word of `text` may match; a text without words leaves the vector list alone.
        """
        await turn()
        k = checked_k(k)
        query = checked_query(vector, k, metric=self._metric, dimension=self._dimension)
        name, words = checked_namespace(namespace), checked_words(text)
        nothing = list[Match]()
        return await self._filtered(
            filter,
            lambda backend, plan: backend.query_hybrid(name, query, words, min(k, _MOST), plan),
            otherwise=nothing,
        )


async def _nothing(_: Backend) -> None:
    """Do what `setup` does, and no more."""
