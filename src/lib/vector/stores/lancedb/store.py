"""`LanceDBVectorStore`: checks its input, then asks LanceDB; imports no driver itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lib.errors import MissingDriver, StoreClosed
from lib.vector.filter import Filter, fold, refusals
from lib.vector.listing import Listing
from lib.vector.offload import offload
from lib.vector.protocol import FilterLike
from lib.vector.records import Layout, Match, Metric, Record, Vector
from lib.vector.stores.lancedb.asked import Asked
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
    from lib.vector.stores.lancedb.table import Table

T = TypeVar("T")

_NAME: Final = "LanceDBVectorStore"
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}").fullmatch
_RECORD_EFFORT: Final = 50_000  # of checking one, in floats read


class LanceDBVectorStore:
    """Records in one LanceDB table, in a folder or an object store that several processes share.

    Search is exact; filters are evaluated here, on the nearest records first, in growing batches.
    A filter that few records pass thus reads the whole namespace, and so do `count` and `delete`
    with a filter. What others have written is seen at once.

    Every write is one version of the table, whole or not there. Writers that meet wait for each
    other, for 30 s at most. After every 32 writes, more in a table of more than 32,000 records,
    the write that completes them also merges the small files that they left, and removes versions
    older than ten minutes: whoever reads an older one by other means loses it.
    """

    def __init__(
        self,
        uri: str | PathLike[str] = "./lancedb",
        *,
        dimension: int,
        metric: Metric = "cosine",
        table: str = "lib_vectors",
        storage_options: dict[str, str] | None = None,
        initial_batch: int = 64,
    ) -> None:
        """Open nothing yet: `setup`, or the first call, does.

        Args:
            uri: of a folder, made if it is missing, or of an object store, as `s3://bucket/path`.
            dimension: of every vector.
            metric: how nearness is measured.
            table: letters, digits and underscores; made if it is missing.
            storage_options: for the object store, as LanceDB takes them.
            initial_batch: how many of the nearest records a filter is first tried on; four times
                as many each further time, until enough have passed.

        Raises:
            ValueError: the dimension or the first batch is not positive, the metric unknown, the
                table no name, or the URI one of LanceDB Cloud.
            MissingDriver: lancedb is not installed.
        """
        if find_spec("lancedb") is None:
            raise MissingDriver(_NAME, driver="lancedb", extra="lancedb")
        checked_dimension(dimension)
        self._dimension = dimension
        self._metric: Metric = checked_metric(metric)
        self._uri, self._table_name = _checked_uri(fspath(uri)), _checked_table(table)
        self._storage_options = None if storage_options is None else dict(storage_options)
        self._initial_batch = _checked_batch_size(initial_batch)
        self._table: Table | None = None
        self._listing = Listing()
        self._opening, self._writing = asyncio.Lock(), asyncio.Lock()
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
        """Open the table, made if it is missing; safe to repeat and in several processes at once.

        Raises:
            DimensionMismatch: the table was made for another dimension.
            MetricMismatch: it was made for another metric.
            StoreCorrupt: it was made for something else.
            SchemaTooNew: a newer release has made it.
            StoreUnavailable: the place cannot be reached or written.
        """
        await self._opened()

    async def close(self) -> None:
        """Let the files go; safe to repeat. Any other call then raises StoreClosed."""
        self._closed = True
        async with self._opening:
            table, self._table = self._table, None
        if table is not None:
            table.close()

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held; all of them or none."""
        name, given = checked_namespace(namespace), list(records)
        table = await self._opened()
        batch = await offload(
            _RECORD_EFFORT * len(given),
            lambda: checked_batch(given, metric=self._metric, dimension=self._dimension),
        )
        if batch is not None:
            async with self._writing:
                await table.upsert(name, batch)

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
            lambda table, plan: table.query(
                name,
                query,
                k,
                plan,
                include_vectors=include_vectors,
                initial_batch=self._initial_batch,
            ),
            otherwise=nothing,
        )

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids in the order asked; unknown ids are left out."""
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        table = await self._opened()
        return await table.get(name, wanted)

    async def scan(
        self, *, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids.

        All ids of the namespace are read with the first page, and kept until the last one.
        """
        start, name = checked_scan(after, limit), checked_namespace(namespace)
        table = await self._opened()
        return await self._listing.page(name, start, limit, ids=table.ids, get=table.get)

    async def existing(self) -> Layout | None:
        """Return how the table was made, whatever this object expects; None if there is none.

        Raises:
            StoreCorrupt: it was made for something else.
            SchemaTooNew: a newer release has made it.
            StoreUnavailable: the place cannot be reached.
        """
        self._check_open()
        if "://" not in self._uri and not await asyncio.to_thread(Path(self._uri).is_dir):
            return None
        driver = await asyncio.to_thread(_load)
        return await driver.existing(self._asked())

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> None:
        """Delete records by id, by filter, or those that meet both; unknown ids are ignored.

        With a filter, the ids that pass are read first: a record that another process replaces in
        between is deleted all the same.
        """
        wanted, parsed = checked_deletion(ids, filter)
        name = checked_namespace(namespace)

        async def work(table: Table, plan: Filter | None) -> None:
            async with self._writing:
                await table.delete(name, wanted, plan)

        await self._filtered(parsed, work, otherwise=None)

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        """Return how many records of the namespace pass the filter."""
        name = checked_namespace(namespace)
        return await self._filtered(
            filter, lambda table, plan: table.count(name, plan), otherwise=0
        )

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start so, sorted."""
        table = await self._opened()
        return await table.namespaces(prefix)

    async def _filtered(
        self,
        filter: FilterLike,
        work: Callable[[Table, Filter | None], Awaitable[T]],
        *,
        otherwise: T,
    ) -> T:
        """Do the work with a filter that has no constants left; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        table = await self._opened()
        if plan is False:
            return otherwise
        if plan is True:
            return await work(table, None)
        return await work(table, refusals.checked(plan, store=_NAME))

    async def _opened(self) -> Table:
        """Return the table; loading the driver takes a second, and a thread."""
        async with self._opening:
            self._check_open()
            table = self._table
            if table is None:
                driver = await asyncio.to_thread(_load)
                table = self._table = await driver.opened(self._asked())
            return table

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{_NAME} is closed")

    def _asked(self) -> Asked:
        return Asked(
            uri=self._uri,
            table=self._table_name,
            dimension=self._dimension,
            metric=self._metric,
            storage_options=self._storage_options,
        )


def _load() -> Any:
    from lib.vector.stores.lancedb import table  # noqa: PLC0415 - loads the driver

    return table


def _checked_uri(uri: str) -> str:
    if uri.startswith("db://"):
        raise ValueError("uri is a folder or an object store: LanceDB Cloud is not supported")
    return uri


def _checked_table(table: str) -> str:
    if not _TABLE_NAME(table):
        raise ValueError(
            f"table is a letter and up to 63 letters, digits and underscores, got {table!r}"
        )
    return table


def _checked_batch_size(initial_batch: int) -> int:
    if isinstance(initial_batch, bool) or initial_batch < 1:
        raise ValueError(f"initial_batch is at least 1, got {initial_batch!r}")
    return initial_batch
