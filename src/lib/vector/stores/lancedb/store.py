"""`LanceDBVectorStore`: checks its input, then asks LanceDB; imports no driver itself."""

from __future__ import annotations

import asyncio
import re
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from lib.errors import MissingDriver, StoreUnavailable
from lib.vector.backend import BackedStore
from lib.vector.contract import Capability
from lib.vector.records import Layout, Metric
from lib.vector.stores.lancedb.config import TableConfig
from lib.vector.validate import checked_dimension

if TYPE_CHECKING:
    from lib.vector.stores.lancedb.table import Table

_FILE_URI = re.compile(r"(?i)file:(?://[^/]*)?(/.*)").fullmatch
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}").fullmatch


class LanceDBVectorStore(BackedStore["Table"]):
    """Records in one LanceDB table, in a folder or an object store that several processes share.

    Search is exact; filters are evaluated here, on the nearest records first, in growing batches.
    A filter that few records pass thus reads the whole namespace, and so do `count` and `delete`
    with a filter. What others have written is seen at once.

    Every write is one version of the table, whole or not there; a cancelled caller waits for the
    end of its write. Writers that meet wait for each other, 30 s at most. After every 32 writes,
    more in a table of more than 32,000 records, the write that completes them also merges the small
    files that they left, and removes versions older than ten minutes: a reader of an older one by
    other means loses it. A deletion with a filter reads the ids that pass first: a record that
    another process replaces in between is deleted all the same. `scan` reads all ids of a namespace
    with the first page, and keeps them.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {*BackedStore.capabilities, "existing", "purge"}
    )

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
            raise MissingDriver(self._name, driver="lancedb", extra="lancedb")
        super().__init__(dimension, metric)
        self._config = TableConfig(
            uri=_checked_uri(fspath(uri)),
            table=_checked_table(table),
            dimension=checked_dimension(dimension),
            metric=metric,
            storage_options=None if storage_options is None else dict(storage_options),
            initial_batch=_checked_batch_size(initial_batch),
        )

    async def setup(self) -> None:
        """Open the table, made if it is missing, or was dropped; safe to repeat.

        Several processes may do it at once.

        Raises:
            DimensionMismatch: the table was made for another dimension.
            MetricMismatch: it was made for another metric.
            StoreCorrupt: it was made for something else.
            SchemaTooNew: a newer release has made it.
            StoreUnavailable: the place cannot be reached or written.
        """
        backend = self._backend

        async def fresh(table: Table) -> None:
            if table is backend:
                await table.reopen()

        await self._run(fresh)

    async def existing(self) -> Layout | None:
        """Return how the table was made, whatever this object expects; None if there is none.

        Raises:
            StoreCorrupt: it was made for something else.
            SchemaTooNew: a newer release has made it.
            StoreUnavailable: the place cannot be reached.
        """
        with self._closing:
            if not await asyncio.to_thread(_may_exist, self._config):
                return None
            driver = await asyncio.to_thread(_load)
            return await driver.existing(self._config)

    async def purge(self) -> None:
        """Leave no byte of deleted records in the place: see `PurgingStore`.

        Writes the whole table anew, and removes every older version of it: a reader of one fails.
        What another process had begun to write and left when it died is removed after seven days.
        """
        await self._run(lambda table: table.purge())

    async def open_backend(self) -> Table:
        """Open the table; loading the driver takes a second, and a thread."""
        driver = await asyncio.to_thread(_load)
        table: Table = await driver.opened(self._config)
        return table

    async def close_backend(self, backend: Table) -> None:
        """Let the files go."""
        backend.close()


def _load() -> Any:
    from lib.vector.stores.lancedb import table  # noqa: PLC0415 - loads the driver

    return table


def _may_exist(config: TableConfig) -> bool:
    """Return False if the place is a folder without the table: to open one makes the folder."""
    in_file_uri = _FILE_URI(config.uri)
    if in_file_uri is None and "://" in config.uri:
        return True
    folder = Path(unquote(in_file_uri[1]) if in_file_uri else config.uri)
    try:
        return (folder / f"{config.table}.lance").exists()
    except OSError as error:
        raise StoreUnavailable(f"{config.label} cannot be read: {error.strerror}") from error


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
