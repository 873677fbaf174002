"""`ChromaVectorStore`: checks its input, then asks Chroma's client; imports no driver itself."""

from __future__ import annotations

import asyncio
import re
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
    from lib.vector.stores.chroma.database import Database

T = TypeVar("T")

_PREFIX: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,255}")
_MARK: Final = "chroma.sqlite3"
"""In every folder that Chroma has opened."""


class ChromaVectorStore(BackedStore["Database"]):
    """Records in Chroma: in a folder, on a server or in memory; each namespace is a collection.

    Search is approximate, since Chroma's is; yet it never returns fewer records than there are.
    A batch is checked as a whole, then sent in requests of some thousand records and 8 MB. Chroma
    keeps each request whole, but has no transaction over several: if one fails, what the earlier
    ones have stored stays, and the same upsert again completes it.

    Chroma merges metadata where it should replace it; this store unsets what was there before.
    Stores of one folder take turns at that. Two stores on a server, wherever they run, that write
    the same id at the same moment can leave filters seeing fields of both, until it is written
    again. One process at a time may use a folder: others need a server.
    In a process everything a store does is done in one thread, in turn.

    `delete(filter=EVERYTHING)` also deletes the collection; one that was emptied otherwise stays,
    since it may be filled again in that moment. `scan` reads all ids of a namespace with the first
    page, and keeps them until the last one.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {*BackedStore.capabilities, "existing"}
    )
    refusals: ClassVar[frozenset[Refusal]] = frozenset(
        {"string order", "wide number", "nested", "nested presence"}
    )

    def __init__(
        self,
        *,
        dimension: int,
        metric: Metric = "cosine",
        path: str | None = None,
        host: str | None = None,
        port: int = 8000,
        client: Any = None,
        prefix: str = "lib",
    ) -> None:
        """Open nothing yet: `setup`, or the first call, does.

        With neither `path`, `host` nor `client`, records are kept in memory, apart from those of
        every other store, and are gone when it is closed.

        Args:
            dimension: of every vector.
            metric: how nearness is measured.
            path: of a folder, made if it is missing.
            host: of a server, or the whole of its address with "https://".
            port: of that server, unless the address is whole.
            client: any of Chroma's clients; it stays the caller's and is not closed.
            prefix: of the collections' names: letters, digits, dots, dashes and underscores.

        Raises:
            ValueError: the dimension is not positive, the metric unknown, the prefix no name, or
                there is more than one of `path`, `host` and `client`.
            MissingDriver: chromadb is not installed.
        """
        if find_spec("chromadb") is None:
            raise MissingDriver(self._name, driver="chromadb", extra="chroma")
        if sum(one is not None for one in (path, host, client)) > 1:
            raise ValueError("give one of path, host and client")
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(
                "prefix is 1 to 256 letters, digits, dots, dashes and underscores, "
                f"a letter or digit first, got {prefix!r}"
            )
        super().__init__(dimension, metric)
        self._size = checked_dimension(dimension)
        self._location: dict[str, Any] = {
            "path": path,
            "host": host,
            "port": port,
            "client": client,
        }
        self._prefix = prefix
        self._database: Database | None = None
        self._blocks = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._name)

    async def setup(self) -> None:
        """Open the folder or connect to the server; safe to repeat.

        Raises:
            DimensionMismatch: its collections were made for another dimension.
            MetricMismatch: they were made for another metric.
            StoreUnavailable: the folder cannot be opened, or the server not be reached.
        """
        await super().setup()

    async def close(self) -> None:
        """Wait for the calls that run, then close the client if it is the store's own.

        Safe to repeat, also after it was cancelled. Any other call then raises StoreClosed.
        """
        await self._closing.close(self._release)

    async def existing(self) -> Layout | None:
        """Return how the collections were made, whatever this object expects; None without any.

        Raises:
            StoreCorrupt: one was made by something else.
            StoreUnavailable: the folder cannot be opened, or the server not be reached.
        """
        path = self._location["path"]
        if path is not None:
            self._closing.check_open()
            if not await asyncio.to_thread(_is_folder_of_chroma, Path(path)):
                return None
        return await self._do(lambda database: database.existing())

    async def _run(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        return await self._do(lambda database: _prepared(database, work))

    async def _do(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        """Do the work here, or in the thread if it blocks."""
        in_thread = asyncio.get_running_loop().run_in_executor
        with self._closing:
            database = self._database or await in_thread(self._thread, self._open)
            if self._blocks:
                return await in_thread(self._thread, lambda: finished(work(database)))
            return await work(database)

    def _open(self) -> Database:
        """Return the database; in the store's thread, since loading the driver takes a second."""
        if self._database is None:
            from lib.vector.stores.chroma import client, database  # noqa: PLC0415 - loads it

            config = database.DatabaseConfig(
                location=client.Location(**self._location),
                prefix=self._prefix,
                dimension=self._size,
                metric=self._metric,
            )
            self._blocks = config.location.blocks
            self._database = database.Database(config)
        return self._database

    async def _release(self) -> None:
        # In the thread, after what cancelled calls have left there: it may be opening a client.
        in_thread = asyncio.get_running_loop().run_in_executor
        database = await in_thread(self._thread, lambda: self._database)
        if database is not None and self._blocks:
            await in_thread(self._thread, lambda: finished(database.close()))
        elif database is not None:
            await database.close()
        self._thread.shutdown(wait=False)


async def _prepared(database: Database, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    await database.prepare()
    return await work(database)


def _is_folder_of_chroma(path: Path) -> bool:
    """Return True if Chroma has ever been opened here; opening it makes the folder its own."""
    try:
        return (path / _MARK).is_file()
    except OSError as error:
        raise StoreUnavailable(f"the Chroma folder cannot be read: {error.strerror}") from error
