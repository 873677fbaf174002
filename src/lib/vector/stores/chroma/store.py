"""`ChromaVectorStore`: checks its input, then asks Chroma's client; imports no driver itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lib.errors import MissingDriver, StoreClosed
from lib.vector.filter import Filter, fold, refusals
from lib.vector.listing import Listing
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
    from lib.vector.stores.chroma.database import Database

T = TypeVar("T")

_NAME: Final = "ChromaVectorStore"
_PREFIX: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,255}")


class ChromaVectorStore:
    """Records in Chroma: in a folder, on a server or in memory; each namespace is a collection.

    Search is approximate, since Chroma's is; yet it never returns fewer records than there are.
    A batch is checked as a whole, then sent in requests of some thousand records and 8 MB. Chroma
    keeps each request whole, but has no transaction over several: if one fails, what the earlier
    ones have stored stays, and the same upsert again completes it.

    Chroma merges metadata where it should replace it; this store unsets what was there before. Two
    processes that write the same id at the same moment can leave filters seeing fields of both,
    until it is written again. One process at a time may use a folder: others need a server.
    In a process everything is done in one thread, in turn.
    """

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
            raise MissingDriver(_NAME, driver="chromadb", extra="chroma")
        if sum(place is not None for place in (path, host, client)) > 1:
            raise ValueError("give one of path, host and client")
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(
                "prefix is 1 to 256 letters, digits, dots, dashes and underscores, "
                f"a letter or digit first, got {prefix!r}"
            )
        checked_dimension(dimension)
        self._dimension = dimension
        self._metric: Metric = checked_metric(metric)
        self._place: dict[str, Any] = {"path": path, "host": host, "port": port, "client": client}
        self._prefix = prefix
        self._database: Database | None = None
        self._listing = Listing()
        self._blocks = False
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
        """Open the folder or connect to the server; safe to repeat.

        Raises:
            DimensionMismatch: its collections were made for another dimension.
            MetricMismatch: they were made for another metric.
            StoreUnavailable: the folder cannot be opened, or the server not be reached.
        """
        await self._run(_nothing)

    async def close(self) -> None:
        """Close the client if it is the store's own; safe to repeat."""
        if self._closed:
            return
        self._closed = True
        if self._database is not None:
            await self._do(self._database.close)
        self._thread.shutdown(wait=False)

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held.

        All of them are checked before any is sent. More than fit into one request can be stored in
        part when Chroma fails midway; safe to repeat.
        """
        name = checked_namespace(namespace)
        batch = checked_batch(list(records), metric=self._metric, dimension=self._dimension)
        if batch is None:
            await self._run(_nothing)
        else:
            await self._run(lambda database: database.upsert(name, batch))

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
            lambda database, plan: database.query(
                name, query, k, plan, include_vectors=include_vectors
            ),
            otherwise=nothing,
        )

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids in the order asked; unknown ids are left out."""
        wanted, name = checked_ids(ids), checked_namespace(namespace)
        return await self._run(lambda database: database.get(name, wanted))

    async def scan(
        self, *, after: str | None = None, limit: int = 1000, namespace: str | None = None
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids.

        All ids of the namespace are read with the first page, and kept until the last one.
        """
        start, name = checked_scan(after, limit), checked_namespace(namespace)
        return await self._run(
            lambda database: self._listing.page(
                name, start, limit, ids=database.ids, get=database.get
            )
        )

    async def existing(self) -> Layout | None:
        """Return how the collections were made, whatever this object expects; None without any.

        Raises:
            StoreCorrupt: one was made by something else.
            StoreUnavailable: the folder cannot be opened, or the server not be reached.
        """
        self._check_open()
        path = self._place["path"]
        if path is not None and not await asyncio.to_thread(Path(path).is_dir):
            return None
        database = await self._opened()
        return await self._do(database.existing)

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> None:
        """Delete records by id, by filter, or those that meet both; unknown ids are ignored.

        `delete(filter=EVERYTHING)` also deletes the collection; an emptied one stays otherwise,
        since it may be filled again in that moment.
        """
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

    async def _filtered(
        self,
        filter: FilterLike,
        work: Callable[[Database, Filter | None], Coroutine[Any, Any, T]],
        *,
        otherwise: T,
    ) -> T:
        """Do the work with a filter that has no constants left; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        if plan is False:
            await self._run(_nothing)
            return otherwise
        if plan is True:
            return await self._run(lambda database: work(database, None))
        checked = refusals.checked(plan, store=_NAME)
        return await self._run(lambda database: work(database, checked))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{_NAME} is closed")

    async def _opened(self) -> Database:
        self._check_open()
        if self._database is not None:
            return self._database
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def _run(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        database = await self._opened()

        async def prepared() -> T:
            await database.prepare()
            return await work(database)

        return await self._do(prepared)

    async def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work here, or in the thread if it blocks."""
        if not self._blocks:
            return await work()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: _finished(work()))

    def _open(self) -> Database:
        """Return the database; in the store's thread, since loading the driver takes a second."""
        if self._database is None:
            from lib.vector.stores.chroma import clients, database  # noqa: PLC0415 - loads it

            asked = database.Asked(
                place=clients.Place(**self._place),
                prefix=self._prefix,
                dimension=self._dimension,
                metric=self._metric,
            )
            self._blocks = asked.place.blocks
            self._database = database.Database(asked)
        return self._database


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits: with a client that blocks, none does."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the client waits for something, though it is one that blocks")


async def _nothing(_: Database) -> None:
    """Do what `setup` does, and no more."""
