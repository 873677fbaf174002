"""`SQLiteVectorStore`: runs its calls in the one thread of its file, and searches beside it.

A query waits for the writes to its namespace that were called before it. Then it searches what
memory holds, small searches on the event loop, unless others have written to the file. The thread
reads what memory lacks: namespaces, columns of metadata, and the records that were found.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from os import PathLike, fspath
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib._util.sqlite import BUSY_S
from lib._util.turns import turn
from lib.errors import StoreError
from lib.vector.contract import CAPABILITIES, Capability
from lib.vector.exact.partition import Snapshot
from lib.vector.exact.search import Selection
from lib.vector.filter import Field, Filter
from lib.vector.filter.columns import fields
from lib.vector.hybrid import HybridBackedStore
from lib.vector.offload import finished, offload
from lib.vector.records import Layout, Match, Metric
from lib.vector.stores.sqlite.background import Background
from lib.vector.stores.sqlite.cache import (
    Listing,
    NamespaceReader,
    Near,
    QueryPlan,
    RowIds,
    selected,
)
from lib.vector.stores.sqlite.codes import Learning
from lib.vector.stores.sqlite.columns import ColumnReader
from lib.vector.stores.sqlite.database import Database
from lib.vector.stores.sqlite.file_search import FileSearch
from lib.vector.stores.sqlite.reads import SharedReads
from lib.vector.stores.sqlite.schema import NAME, Table, existing_layout
from lib.vector.validate import checked_dimension

T = TypeVar("T")

_CACHE_BYTES = 1 << 30
_SCRATCH_SHARE: Final = 8
_ATTEMPTS = 5
_CODED, _LOOSE, _LEARNED, _READ = 3, 20, 35, 70
"""What it costs to look at codes of a row, at a row without codes, to learn its codes, and to read
it into memory: tenths of a microsecond, if it has some hundred numbers."""
_ROW_EFFORT: Final = 4  # of deciding on a row, see `offload`


class SQLiteVectorStore(HybridBackedStore[Database]):
    """Records in one table of an SQLite file, which several processes may share.

    Search is exact. The vectors of the namespaces in use are kept in memory, and so is, column by
    column, the metadata that filters name; they follow what other connections write. A file that
    cannot be written can be searched; writing raises `StoreReadOnly`.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(CAPABILITIES)
    _busy_s: ClassVar[float] = BUSY_S
    _least_searched_bytes: int = 1 << 21  # of vectors: fewer are read into memory at once

    def __init__(
        self,
        path: str | PathLike[str] = ":memory:",
        *,
        dimension: int,
        metric: Metric = "cosine",
        table: str = "lib_vectors",
        cache_bytes: int = _CACHE_BYTES,
        scratch_dir: str | PathLike[str] | None = None,
    ) -> None:
        """Open nothing yet: `setup`, or the first call, does.

        Args:
            path: of the file, made if it is missing, in a directory that exists.
            dimension: of every vector.
            metric: how nearness is measured.
            table: letters, digits and underscores; other tables begin with it.
            cache_bytes: how much memory vectors and metadata may take before the namespaces that
                were used longest ago are let go; the one being searched is always held. Its
                columns of metadata may take a sixteenth as much, and so may the texts and
                metadata that were found last.
            scratch_dir: a directory on a disk, for vectors that memory has no room for: those of
                each namespace that would take more than an eighth of `cache_bytes` are copied
                there, into files without a name that are gone with this object, and memory keeps
                about a tenth of their bytes. Searches stay exact. None keeps them in memory.

        Raises:
            ValueError: the dimension is not positive, or above 4,096 with a `scratch_dir`; the
                metric is unknown; the table is no name; `scratch_dir` is empty, or not for Windows.
        """
        super().__init__(dimension, metric)
        self._table = Table(
            path=fspath(path),
            name=table,
            dimension=checked_dimension(dimension),
            metric=metric,
            busy_s=self._busy_s,
        )
        self._cache_bytes = cache_bytes
        self._scratch: Scratch | None = None
        if scratch_dir is not None:
            from lib.vector.exact.scratch import Scratch  # noqa: PLC0415 - a few need it

            self._scratch = Scratch.of(
                fspath(scratch_dir), dimension=dimension, least_bytes=cache_bytes // _SCRATCH_SHARE
            )
        self._database: Database | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=NAME)
        self._writes: dict[str, list[Future[Any]]] = {}  # by namespace, those that have not ended
        self._spent = Counter[str]()  # on searches of the file, by namespace
        self._spent_loose = Counter[
            str
        ]()  # and that on rows without codes, since some were learned
        self._background = Background(self._thread)
        self._searching = set[str]()
        self._look_ups = SharedReads[Snapshot[RowIds]]()
        self._column_reads = SharedReads[None]()

    async def setup(self) -> None:
        """Open the file, created with its tables if need be; safe to repeat.

        Raises:
            StoreReadOnly: the table is missing and cannot be made.
            StoreCorrupt: the file is not a database, the table not a vector store's, or another
                table has the name of one that this store keeps beside it.
            SchemaTooNew: a newer release has made it.
            DimensionMismatch: it was made for another dimension.
            MetricMismatch: it was made for another metric.
            StoreError: `scratch_dir` takes no files.
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
        with self._closing:
            near, found = await self._from_memory(plan)
            if found is not None:
                return found
            return await self._in_thread(lambda database: database.nearest(plan, near))

    async def _metas(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[tuple[str, dict[str, Any]]]:
        return await self._run(lambda database: database.metas(namespace, after, limit, filter))

    async def _from_memory(self, plan: QueryPlan) -> tuple[Near | None, list[Match] | None]:
        """Return the nearest rows and their records; None for what has to be read from the file."""
        for _ in range(_ATTEMPTS):
            snapshot = self._current(plan.namespace)
            if snapshot is None:
                snapshot = await self._read_or_search(plan)
                if not isinstance(snapshot, Snapshot):
                    return None, snapshot
                await turn()  # one write may have kept many queries waiting
            cost = len(snapshot.rows.vectors) * _ROW_EFFORT
            among = await offload(cost, partial(selected, snapshot, plan.filter))
            if among is not None:
                answer = partial(self._answer, plan, snapshot, among)
                return await offload(plan.effort(snapshot, among), answer)
            await self._read_columns(plan)
        return None, None  # others write all the while

    def _answer(
        self, plan: QueryPlan, snapshot: Snapshot[RowIds], among: Selection
    ) -> tuple[Near, list[Match] | None]:
        near, database = plan.search(snapshot, among, self._metric), self._database
        return near, None if database is None else database.cached_matches(plan, near)

    def _current(self, namespace: str) -> Snapshot[RowIds] | None:
        """Return what memory holds of a namespace, if that is what the file holds, too."""
        writes = self._writes.get(namespace, ())
        if self._database is None or not all(write.done() for write in writes):
            return None
        return self._database.current(namespace)

    async def _read_or_search(self, plan: QueryPlan) -> Snapshot[RowIds] | list[Match]:
        """Return what a namespace holds, or the nearest records of one that memory does not hold.

        The first queries of a large one only look at its codes, until that has cost about as much
        as to read it into memory. A query that comes meanwhile reads it.
        """
        name, found = plan.namespace, None
        least_rows = -(-self._least_searched_bytes // (4 * self._table.dimension))
        is_new = self._database is None or not self._database.has(name)
        if is_new and plan.filter is None and name not in self._searching:
            self._searching.add(name)
            try:
                found = await self._in_thread(partial(_look_up_or_list_on, name, least_rows))
                if isinstance(found, Snapshot):
                    return found
                if isinstance(found, Listing):
                    searched = await self._search_file(plan, found)
                    if searched is not None:
                        return searched
                    found = None
            finally:
                self._searching.discard(name)
        return await self._look_up(name, found)

    async def _search_file(self, plan: QueryPlan, listing: Listing) -> list[Match] | None:
        search = await self._in_thread(partial(_search_on, plan, listing))
        while search is not None and search.found is None:
            search = await self._in_thread(partial(_search_on, plan, search))
        if search is None:
            return None
        self._learn_from(search)
        return search.found

    def _learn_from(self, search: FileSearch) -> None:
        """Learn codes, or read the namespace, once searches have cost about as much."""
        name, rows, loose = search.listing.namespace, len(search.listing.rids), search.loose
        self._spent[name] += _CODED * (rows - loose) + _LOOSE * loose
        self._spent_loose[name] += _LOOSE * loose
        if self._spent[name] >= _READ * rows:
            self._forget_costs(name)
            self._background.start(("read", name), self._reading(name))
        elif search.may_learn and self._spent_loose[name] >= _LEARNED * loose:
            del self._spent_loose[name]
            self._background.start(("learn", name), self._learning(name))

    def _forget_costs(self, namespace: str) -> None:
        self._spent.pop(namespace, None)
        self._spent_loose.pop(namespace, None)

    def _reading(self, namespace: str) -> Callable[[], bool]:
        """Return the steps that read a namespace."""
        reader: NamespaceReader | None = None

        def step() -> bool:
            nonlocal reader
            found = self._retried(partial(_look_up_on, namespace, reader))
            reader = found if isinstance(found, NamespaceReader) else None
            return reader is not None

        return step

    def _learning(self, namespace: str) -> Callable[[], bool]:
        """Return the steps that make codes of a namespace."""
        learning: Learning | None = None

        def step() -> bool:
            nonlocal learning
            learning = self._retried(partial(_learn_on, namespace, learning))
            return learning is not None

        return step

    async def _look_up(self, namespace: str, start: NamespaceReader | None) -> Snapshot[RowIds]:
        """Read a namespace, or what others have written to it; those who wait share one read."""

        async def read() -> Snapshot[RowIds]:
            self._forget_costs(namespace)
            job = self._background.job(("read", namespace))
            if job is not None:
                await asyncio.wrap_future(job)
            found = self._current(namespace) or start
            while not isinstance(found, Snapshot):
                found = await self._in_thread(partial(_look_up_on, namespace, found))
            return found

        return await self._look_ups.result(namespace, read)

    async def _read_columns(self, plan: QueryPlan) -> None:
        """Read the columns that a filter needs; other calls have their turns meanwhile."""

        async def read() -> None:
            reader = await self._in_thread(lambda database: database.read_columns(plan, None))
            while reader is not None:
                reader = await self._in_thread(partial(_read_on, plan, reader))

        needed = frozenset(set[Field]() if plan.filter is None else fields(plan.filter))
        await self._column_reads.result((plan.namespace, needed), read)

    async def _write(self, namespace: str, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        with self._closing:
            call = self._thread.submit(self._retried, work)
            self._writes.setdefault(namespace, []).append(call)
            try:
                return await asyncio.wrap_future(call)
            finally:
                left = [write for write in self._writes.pop(namespace, ()) if not write.done()]
                if left:
                    self._writes[namespace] = left

    async def _run(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        with self._closing:
            return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.wrap_future(self._thread.submit(self._retried, work))

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
            self._database = Database(
                self._table, cache_bytes=self._cache_bytes, scratch=self._scratch
            )
        return self._database

    def _disconnect(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    async def _release(self) -> None:
        self._background.stop()
        # In the thread, after what cancelled calls have left there.
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)


def _look_up_on(
    namespace: str, reader: NamespaceReader | None, database: Database
) -> Coroutine[Any, Any, Snapshot[RowIds] | NamespaceReader]:
    return database.look_up(namespace, reader)


def _look_up_or_list_on(
    namespace: str, least_rows: int, database: Database
) -> Coroutine[Any, Any, Snapshot[RowIds] | NamespaceReader | Listing]:
    return database.look_up_or_list(namespace, least_rows)


def _search_on(
    plan: QueryPlan, search: Listing | FileSearch, database: Database
) -> Coroutine[Any, Any, FileSearch | None]:
    return database.search_file(plan, search)


def _learn_on(
    namespace: str, learning: Learning | None, database: Database
) -> Coroutine[Any, Any, Learning | None]:
    return database.learn(namespace, learning)


def _read_on(
    plan: QueryPlan, reader: ColumnReader, database: Database
) -> Coroutine[Any, Any, ColumnReader | None]:
    return database.read_columns(plan, reader)
