"""`BackedStore`, which every store extends: it checks the arguments, then calls its backend.

A store of your own implements `Backend`, overrides `open_backend` to return it, and declares in
`refusals` what it cannot express in a filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib._util.contexts import AsyncStore
from lib._util.turns import turn
from lib.errors import DimensionMismatch, HybridUnavailable
from lib.vector.closing import Closing
from lib.vector.composed import ComposedBackend
from lib.vector.contract import (
    Capability,
    FilterLike,
)
from lib.vector.facets import Tally
from lib.vector.filter import Field, Filter, fold
from lib.vector.filter.refusals import Refusal, checked
from lib.vector.offload import offload
from lib.vector.ordering import good_enough, listed
from lib.vector.records import Facet, Match, Metric, Record, Vector
from lib.vector.validate import (
    Batch,
    checked_batch,
    checked_deletion,
    checked_dimension,
    checked_facet,
    checked_ids,
    checked_k,
    checked_list,
    checked_metric,
    checked_namespace,
    checked_query,
    checked_scan,
    checked_threshold,
    checked_update,
)
from lib.vector.values import plain_text

T = TypeVar("T")

MAX_K: Final = 2**31 - 1
"""The largest k that is sent: a store has fewer records, and some databases fail above it."""
_METAS_AT_ONCE: Final = 1000
_CHECK_EFFORT: Final = 50_000  # of checking a record, see `offload`


class Backend(Protocol):
    """One open table, collection or index. Its arguments have been checked.

    Namespaces are never None; filters are folded, without constant parts, and hold nothing that the
    store refuses. Results share nothing with what the backend keeps.
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

    async def query_many(
        self,
        namespace: str,
        queries: list[NDArray[np.float32]],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[list[Match]]:
        """Return what `query` does for each of them, in their order."""
        ...

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        ...

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        """Return the first records that pass and whose ids follow `after`, in their order."""
        ...

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number.

        None leaves all in.
        """
        ...

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there; return their number."""
        ...

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, chosen as by `delete`; return their number.

        `ComposedBackend` makes `insert`, `query_many` and this call of the others.
        """
        ...

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass the filter."""
        ...

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records and start so, sorted."""
        ...


B = TypeVar("B", bound=Backend)


class BackedStore(AsyncStore, Generic[B]):
    """A vector store over a backend; see `lib.vector.contract.VectorStore`.

    A subclass overrides `open_backend`, and `close_backend` where there is something to release.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {"scan", "insert", "update", "batch", "facet"}
    )
    """What it can do beyond `VectorStore`."""

    refusals: ClassVar[frozenset[Refusal]] = frozenset()
    """What it cannot express in a filter: such a filter raises `UnsupportedFilter`."""

    _name: ClassVar[str]
    """The name of the class, for messages."""

    _max_k: ClassVar[int | None] = None
    """The largest k of a query; None is unlimited."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the class."""
        super().__init_subclass__(**options)
        if "_name" not in cls.__dict__:
            cls._name = cls.__name__

    def __init__(self, dimension: int | None, metric: Metric = "cosine") -> None:
        """Take what every store has to know of its vectors.

        Args:
            dimension: the length of every vector; None takes that of the first one.
            metric: how nearness is measured.

        Raises:
            ValueError: the dimension is not positive, or the metric unknown.
        """
        self._dimension = None if dimension is None else checked_dimension(dimension)
        self._metric: Metric = checked_metric(metric)
        self._backend: B | None = None
        self._opening = asyncio.Lock()
        self._closing = Closing(self._name)

    @property
    def metric(self) -> Metric:
        """The metric of its vectors."""
        return self._metric

    @property
    def dimension(self) -> int | None:
        """The length of every vector; None until the first upsert has settled it."""
        return self._dimension

    @property
    def higher_is_better(self) -> bool:
        """True if a higher score is a better one."""
        return self._metric != "euclidean"

    async def open_backend(self) -> B:
        """Connect to the database, and create what is missing; called once, by the first call.

        Raises:
            NotImplementedError: a subclass has to override it.
        """
        raise NotImplementedError(f"{self._name} has to override open_backend()")

    async def close_backend(self, backend: B) -> None:
        """Release what `open_backend` has opened; called once, after the last call has ended."""

    async def close(self) -> None:
        """Wait for the calls in flight, then release what the store holds; safe to repeat.

        Any other call then raises StoreClosed.
        """
        await self._closing.close(self._release)

    async def _release(self) -> None:
        if self._backend is not None:
            await self.close_backend(self._backend)

    async def _run(self, work: Callable[[B], Coroutine[Any, Any, T]]) -> T:
        """Return what the work returns; the first call opens the backend.

        Raises:
            StoreClosed: the store is closed.
        """
        with self._closing:
            return await work(self._backend or await self._opened())

    async def _write(self, namespace: str, work: Callable[[B], Coroutine[Any, Any, T]]) -> T:
        """Do work that writes to a namespace; as `_run`."""
        return await self._run(work)

    async def _write_beside(self, namespace: str, work: Callable[[B], Coroutine[Any, Any, T]]) -> T:
        """Do work that writes in one step, beside other such work and no composed call."""

        async def beside(backend: B) -> T:
            if not isinstance(backend, ComposedBackend):
                return await work(backend)
            async with backend.gates.shared(namespace):
                return await work(backend)

        return await self._write(namespace, beside)

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
        name, batch = checked_namespace(namespace), await self._batch(records)
        if batch is None:
            await self._run(_nothing)
        else:
            await self._write_beside(name, lambda backend: backend.upsert(name, batch))

    async def insert(self, records: Sequence[Record], *, namespace: str | None = None) -> int:
        """Insert the records whose ids are not there, and leave those that are as they are.

        Returns:
            How many were inserted.
        """
        await turn()
        name, batch = checked_namespace(namespace), await self._batch(records)
        if batch is None:
            await self._run(_nothing)
            return 0
        return await self._write(name, lambda backend: backend.insert(name, batch))

    async def _batch(self, records: Sequence[Record]) -> Batch | None:
        copies = checked_list(records)
        batch = await offload(
            _CHECK_EFFORT * len(copies),
            lambda: checked_batch(copies, metric=self._metric, dimension=self._dimension),
        )
        if batch is not None:
            self._settle_dimension(batch.vectors.shape[1])
        return batch

    async def update_meta(
        self,
        meta: Mapping[str, Any],
        *,
        ids: Sequence[str] | None = None,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Merge fields into the metadata of records by id, by filter, or those that meet both.

        Vectors and texts stay as they are.

        Returns:
            How many records there were.
        """
        await turn()
        changes, wanted, parsed = checked_update(meta, ids, filter)
        name = checked_namespace(namespace)
        return await self._filtered(
            parsed,
            lambda plan: self._write(
                name, lambda backend: backend.update_meta(name, wanted, plan, changes)
            ),
            otherwise=0,
        )

    def _settle_dimension(self, length: int) -> None:
        """Take the length of the first vectors, unless another call was first with another one."""
        if self._dimension is None:
            self._dimension = length
        elif length != self._dimension:
            raise DimensionMismatch(expected=self._dimension, got=length)

    async def query(
        self,
        vector: Vector,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
        score_threshold: float | None = None,
    ) -> list[Match]:
        """Return the k records nearest to `vector`, best first, ties in the order of their ids.

        Raises:
            ValueError: k is below 1, or above what the database returns, or the threshold is no
                number.
        """
        await turn()
        k, query = self._checked_query(vector, k)
        worst = checked_threshold(score_threshold)
        name, plan = checked_namespace(namespace), fold(Filter.parse(filter))
        if plan is False:
            await self._run(_nothing)
            return []
        passing = None if plan is True else checked(plan, store=self)
        found = await self._query(name, query, k, passing, include_vectors=include_vectors)
        return good_enough(found, worst, higher_is_better=self.higher_is_better)

    async def _query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        return await self._run(
            lambda backend: backend.query(
                namespace, query, k, filter, include_vectors=include_vectors
            )
        )

    async def query_many(
        self,
        vectors: Sequence[Vector],
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
        score_threshold: float | None = None,
    ) -> list[list[Match]]:
        """Return what `query` does for each vector, in their order; no vectors give no lists."""
        await turn()
        most, worst = checked_k(k), checked_threshold(score_threshold)
        queries = [self._checked_query(vector, most)[1] for vector in vectors]
        most, name = min(most, MAX_K), checked_namespace(namespace)
        found = await self._filtered(
            filter,
            lambda plan: self._run(
                lambda backend: backend.query_many(
                    name, queries, most, plan, include_vectors=include_vectors
                )
            ),
            otherwise=[list[Match]() for _ in queries],
        )
        higher = self.higher_is_better
        return [good_enough(one, worst, higher_is_better=higher) for one in found]

    async def query_keywords(
        self,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> list[Match]:
        """Refuse: only a `HybridBackedStore` searches texts.

        Raises:
            HybridUnavailable: always.
        """
        raise HybridUnavailable(self._name, "search with query()")

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids, in their order; unknown ids are left out."""
        await turn()
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        return await self._run(lambda backend: backend.get(name, wanted))

    async def scan(
        self,
        *,
        filter: FilterLike = None,
        after: str | None = None,
        limit: int = 1000,
        namespace: str | None = None,
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids."""
        await turn()
        (start, most), name = checked_scan(after, limit), checked_namespace(namespace)
        return await self._filtered(
            filter,
            lambda plan: self._run(lambda backend: backend.scan(name, start, most, plan)),
            otherwise=list[Record](),
        )

    async def facet(
        self,
        field: Field,
        *,
        filter: FilterLike = None,
        limit: int = 100,
        namespace: str | None = None,
    ) -> Facet:
        """Return the values of a field among the records that pass, with their counts.

        Reads all of these records, some at a time.
        """
        await turn()
        (wanted, most), name = checked_facet(field, limit), checked_namespace(namespace)
        return await self._filtered(
            filter,
            lambda plan: self._facet(name, wanted, plan, most),
            otherwise=Tally(wanted).facet(most),
        )

    async def _facet(
        self, namespace: str, field: Field, filter: Filter | None, limit: int
    ) -> Facet:
        """Return what `facet` does."""
        tally, after, more = Tally(field), "", True
        while more:
            await turn()
            page = await self._metas(namespace, after, _METAS_AT_ONCE, filter)
            tally.add(meta for _, meta in page)
            after, more = page[-1][0] if page else "", len(page) == _METAS_AT_ONCE
        return tally.facet(limit)

    async def _metas(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return ids and metadata of the first records that pass and whose ids follow `after`."""
        page = await self._run(lambda backend: backend.scan(namespace, after, limit, filter))
        return [(record.id, record.meta) for record in page]

    def list_records(
        self,
        *,
        filter: FilterLike = None,
        after: str | None = None,
        batch_size: int = 1000,
        namespace: str | None = None,
    ) -> AsyncGenerator[Record]:
        """Yield the records that pass the filter, in the order of their ids.

        A cursor is the id of the last record that was read: passed as `after`, it goes on from
        there, in this process or another one. What is written meanwhile may be missed.

        Args:
            filter: what the records have to pass.
            after: an id, even of no record; None starts with the first record.
            batch_size: how many are read at once, 1 to 10,000.
            namespace: to read.
        """
        return listed(self, filter=filter, after=after, batch_size=batch_size, namespace=namespace)

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Delete records by id, by filter, or those that meet both; return how many there were."""
        await turn()
        wanted, parsed = checked_deletion(ids, filter)
        name = checked_namespace(namespace)
        return await self._filtered(
            parsed,
            lambda plan: self._write_beside(
                name, lambda backend: backend.delete(name, wanted, plan)
            ),
            otherwise=0,
        )

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        """Return how many records of the namespace pass the filter."""
        await turn()
        name = checked_namespace(namespace)
        return await self._filtered(
            filter,
            lambda plan: self._run(lambda backend: backend.count(name, plan)),
            otherwise=0,
        )

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start with `prefix`, sorted."""
        await turn()
        try:
            plain_text(prefix)
        except ValueError:  # no name starts with what no name can hold
            await self._run(_nothing)
            return []
        return await self._run(lambda backend: backend.namespaces(prefix))

    def _checked_query(self, vector: Vector, k: int) -> tuple[int, NDArray[np.float32]]:
        k = checked_k(k)
        query = checked_query(vector, k, metric=self._metric, dimension=self._dimension)
        if self._max_k is not None and k > self._max_k:
            raise ValueError(f"k is at most {self._max_k} in {self._name}, got {k}")
        return min(k, MAX_K), query

    async def _filtered(
        self,
        filter: FilterLike,
        work: Callable[[Filter | None], Coroutine[Any, Any, T]],
        *,
        otherwise: T,
    ) -> T:
        """Do the work with a filter without constant parts; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        if plan is False:
            await self._run(_nothing)
            return otherwise
        return await work(None if plan is True else checked(plan, store=self))


async def _nothing(_: Backend) -> None:
    """Do no more than opening does."""
