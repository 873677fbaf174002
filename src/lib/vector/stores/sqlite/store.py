"""`SQLiteVectorStore`: checks its input, then hands the work to the one thread of its file.

A query that takes no time and needs nothing from the file is answered at once: see `_at_once`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike, fspath
from typing import Any, ClassVar, TypeVar

from lib._util.contexts import AsyncStore
from lib._util.turns import turn
from lib.errors import StoreClosed, StoreError
from lib.vector.contract import CAPABILITIES, Capability, FilterLike
from lib.vector.filter import Filter, fold
from lib.vector.filter.refusals import Refusal
from lib.vector.records import Layout, Match, Metric, Record, Vector
from lib.vector.stores.sqlite.asked import Asked, Near
from lib.vector.stores.sqlite.database import Database
from lib.vector.stores.sqlite.schema import NAME, Table, existing_layout
from lib.vector.validate import (
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

T = TypeVar("T")

_CACHE_BYTES = 1 << 30
_TRIES = 5


class SQLiteVectorStore(AsyncStore):
    """Records in one table of an SQLite file, which several processes may share.

    Search is exact; filters run in SQL. The vectors of the namespaces in use are kept in memory
    and read again when another connection has written. Calls take turns, in one thread.
    A file that cannot be written can be searched; writing raises `StoreReadOnly`.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(CAPABILITIES)
    refusals: ClassVar[frozenset[Refusal]] = frozenset()

    def __init__(
        self,
        path: str | PathLike[str] = ":memory:",
        *,
        dimension: int,
        metric: Metric = "cosine",
        table: str = "lib_vectors",
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        """Open nothing yet: `setup`, or the first call, does.

        Args:
            path: of the file, made if it is missing, in a directory that exists.
            dimension: of every vector.
            metric: how nearness is measured.
            table: letters, digits and underscores; other tables begin with it.
            cache_bytes: how much memory vectors may take before the namespaces that were used
                longest ago are let go; the one being searched is always held. The texts and
                metadata that were found last may take a sixteenth as much.

        Raises:
            ValueError: the dimension is not positive, the metric unknown or the table no name.
        """
        self._table = Table(
            path=fspath(path),
            name=table,
            dimension=checked_dimension(dimension),
            metric=checked_metric(metric),
        )
        self._cache_bytes = cache_bytes
        self._database: Database | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=NAME)
        self._calls = set[Future[Any]]()
        self._closed = False

    @property
    def metric(self) -> Metric:
        """How nearness is measured."""
        return self._table.metric

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self._table.dimension

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one."""
        return self.metric != "euclidean"

    async def setup(self) -> None:
        """Open the file, made and given its tables if need be; safe to repeat.

        Raises:
            StoreReadOnly: the table is missing and cannot be made.
            StoreCorrupt: the file is not a database, or the table not a vector store's.
            SchemaTooNew: a newer release has made it.
            DimensionMismatch: it was made for another dimension.
            MetricMismatch: it was made for another metric.
        """
        await self._run(lambda _: None)

    async def close(self) -> None:
        """Close the file; safe to repeat. Any other call then raises StoreClosed."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held; all of them or none."""
        name, given = checked_namespace(namespace), list(records)

        def work(database: Database) -> None:
            batch = checked_batch(given, metric=self.metric, dimension=self.dimension)
            if batch is not None:
                database.upsert(name, batch)

        await self._run(work)

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
        await turn()
        k = checked_k(k)
        query = checked_query(vector, k, metric=self.metric, dimension=self.dimension)
        name, plan = checked_namespace(namespace), fold(Filter.parse(filter))
        if plan is False:
            return await self._run(lambda _: [])
        asked = Asked(
            namespace=name,
            vector=query,
            k=k,
            filter=None if plan is True else plan,
            include_vectors=include_vectors,
        )
        near, found = self._at_once(asked)
        if found is not None:
            return found
        return await self._run(lambda database: database.query(asked, near))

    async def query_hybrid(
        self,
        vector: Vector,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> list[Match]:
        """Return the k best by reciprocal rank in two lists: nearest vectors, best BM25 texts.

        Raises:
            HybridUnavailable: this SQLite was built without FTS5.
        """
        k = checked_k(k)
        query = checked_query(vector, k, metric=self.metric, dimension=self.dimension)
        name, words = checked_namespace(namespace), checked_words(text)
        return await self._filtered(
            filter,
            lambda database, plan: database.query_hybrid(name, query, words, k, plan),
            otherwise=[],
        )

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids in the order asked; unknown ids are left out."""
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        return await self._run(lambda database: database.get(name, wanted))

    async def scan(
        self, *, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids."""
        (start, limit), name = checked_scan(after, limit), checked_namespace(namespace)
        return await self._run(lambda database: database.scan(name, start, limit))

    async def existing(self) -> Layout | None:
        """Return how the table was made, whatever this object expects; None if there is none.

        Raises:
            StoreReadOnly: this process may not look at the file.
            StoreCorrupt: the file is not a database, or the table not a vector store's.
            SchemaTooNew: a newer release has made it.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, existing_layout, self._table)

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
            parsed, lambda database, plan: database.delete(name, wanted, plan), otherwise=None
        )

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        """Return how many records of the namespace pass the filter."""
        name = checked_namespace(namespace)
        return await self._filtered(
            filter, lambda database, plan: database.count(name, plan), otherwise=0
        )

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start so, sorted."""
        return await self._run(lambda database: database.namespaces(prefix))

    async def purge(self) -> None:
        """Leave no byte of deleted records in the file: see `PurgingStore`.

        Rebuilds the full-text index and the file, which takes as long as reading and writing it
        all and as much room again, and keeps others from writing meanwhile.

        Raises:
            StoreReadOnly: the file cannot be written.
            StoreError: another connection goes on reading an old state of the file: call it again.
        """
        await self._run(lambda database: database.purge())

    async def _filtered(
        self, filter: FilterLike, work: Callable[[Database, Filter | None], T], *, otherwise: T
    ) -> T:
        """Do the work with a filter that has no constants left; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        if plan is False:
            return await self._run(lambda _: otherwise)
        return await self._run(lambda database: work(database, None if plan is True else plan))

    def _at_once(self, asked: Asked) -> tuple[Near | None, list[Match] | None]:
        """Return what memory tells, without waiting: which rows are nearest, and their records.

        Nothing while other calls are under way: it is their turn, and they may write.
        """
        self._check_open()
        if self._calls or self._database is None:
            return None, None
        near = self._database.near(asked)
        return near, None if near is None else self._database.known(asked, near)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{NAME} is closed")

    async def _run(self, work: Callable[[Database], T]) -> T:
        self._check_open()
        call = self._thread.submit(self._done, work)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await asyncio.wrap_future(call)

    def _done(self, work: Callable[[Database], T]) -> T:
        """Do the work; again if the file has changed under a connection that cannot see it."""
        for _ in range(_TRIES):
            database = self._open()
            try:
                found = work(database)
            except Exception:  # anything may come of pages of which some are new
                if not database.outdated():
                    raise
            else:
                if not database.outdated():
                    return found
            self._close()
        raise StoreError(
            f"{self._table.place} changes faster than it is read, in a directory where this process"
            " cannot lock it: let it write there, or read a copy"
        )

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database(self._table, cache_bytes=self._cache_bytes)
        return self._database

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
