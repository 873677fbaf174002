"""`SQLiteVectorStore`: runs its calls in the one thread of its file.

A small query of which memory holds everything is answered on the event loop: see `_from_memory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike, fspath
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib.errors import StoreError
from lib.vector.backend import HybridBackedStore
from lib.vector.contract import CAPABILITIES, Capability
from lib.vector.filter import Filter
from lib.vector.offload import finished
from lib.vector.records import Layout, Match, Metric
from lib.vector.stores.sqlite.cache import Near, QueryPlan
from lib.vector.stores.sqlite.database import Database
from lib.vector.stores.sqlite.schema import NAME, Table, existing_layout
from lib.vector.validate import checked_dimension

T = TypeVar("T")

_CACHE_BYTES = 1 << 30
_ATTEMPTS = 5


class SQLiteVectorStore(HybridBackedStore[Database]):
    """Records in one table of an SQLite file, which several processes may share.

    Search is exact; filters run in SQL. The vectors of the namespaces in use are kept in memory
    and read again when another connection has written. Calls run in turn, in one thread.
    A file that cannot be written can be searched; writing raises `StoreReadOnly`.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(CAPABILITIES)

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
        super().__init__(dimension, metric)
        self._table = Table(
            path=fspath(path),
            name=table,
            dimension=checked_dimension(dimension),
            metric=metric,
        )
        self._cache_bytes = cache_bytes
        self._database: Database | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=NAME)
        self._calls = set[Future[Any]]()

    async def setup(self) -> None:
        """Open the file, created with its tables if need be; safe to repeat.

        Raises:
            StoreReadOnly: the table is missing and cannot be made.
            StoreCorrupt: the file is not a database, or the table not a vector store's.
            SchemaTooNew: a newer release has made it.
            DimensionMismatch: it was made for another dimension.
            MetricMismatch: it was made for another metric.
        """
        await super().setup()

    async def existing(self) -> Layout | None:
        """Return how the table was made, whatever this object expects; None if there is none.

        Raises:
            StoreReadOnly: this process may not look at the file.
            StoreCorrupt: the file is not a database, or the table not a vector store's.
            SchemaTooNew: a newer release has made it.
        """
        with self._closing:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, existing_layout, self._table)

    async def purge(self) -> None:
        """Leave no byte of deleted records in the file: see `PurgingStore`.

        Rebuilds the full-text index and the file, which takes as long as reading and writing it
        all and as much room again, and keeps others from writing meanwhile.

        Raises:
            StoreReadOnly: the file cannot be written.
            StoreError: another connection goes on reading an old state of the file: call it again.
        """
        await self._run(lambda database: database.purge())

    async def _query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        plan = QueryPlan(
            namespace=namespace, vector=query, k=k, filter=filter, include_vectors=include_vectors
        )
        near, found = self._from_memory(plan)
        if found is not None:
            return found
        return await self._run(lambda database: database.nearest(plan, near))

    def _from_memory(self, plan: QueryPlan) -> tuple[Near | None, list[Match] | None]:
        """Return, without waiting, what memory holds: the nearest rows, and their records.

        None while other calls are in flight: they were first, and may write.
        """
        self._closing.check_open()
        if self._calls or self._database is None:
            return None, None
        near = self._database.near(plan)
        return near, None if near is None else self._database.cached_matches(plan, near)

    async def _run(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        with self._closing:
            call = self._thread.submit(self._retried, work)
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            return await asyncio.wrap_future(call)

    def _retried(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        """Do the work; again if the file has changed under a connection that cannot see it."""
        for _ in range(_ATTEMPTS):
            database = self._open()
            try:
                found = finished(work(database))
            except Exception:  # anything may come of pages of which some are new
                if not database.outdated():
                    raise
            else:
                if not database.outdated():
                    return found
            self._disconnect()
        raise StoreError(
            f"{self._table.label} changes faster than it is read, in a directory where this process"
            " cannot lock it: let it write there, or read a copy"
        )

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database(self._table, cache_bytes=self._cache_bytes)
        return self._database

    def _disconnect(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    async def _release(self) -> None:
        # In the thread, after what cancelled calls have left there.
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)
