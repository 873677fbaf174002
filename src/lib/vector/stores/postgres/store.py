"""`PostgresVectorStore`: checks its input, then hands the work to its database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lib.errors import MissingDriver, StoreClosed, StoreUnavailable
from lib.vector.contract import Capability
from lib.vector.filter import Filter
from lib.vector.hybrid import HybridBackedStore
from lib.vector.records import Layout, Metric
from lib.vector.stores.postgres.config import NAME, Table

if TYPE_CHECKING:
    from lib.vector.stores.postgres.database import Database

T = TypeVar("T")


class PostgresVectorStore(HybridBackedStore["Database"]):
    """Records in one table of a PostgreSQL database with the extension pgvector.

    Filters run in SQL, before the search: among few records it is exact, among many it takes the
    HNSW index (with pgvector 0.8 or newer, up to 2,000 dimensions, under cosine up to 4,000) and
    is approximate; ties stand in the order of ids either way. No call returns fewer records than
    there are. Under dot, vectors stored some thousand times over can hide others from that index:
    `hnsw=False` sees them all.

    A table that others have made may have more columns; `namespace`, `id`, `v`, `text` and `meta`
    are needed. What else the store needs is added, and no NULL is let into those five any more.
    GIN indexes that are there stay as they are: with their `fastupdate` off, hybrid queries after
    many writes are faster.

    A namespace and an id together have up to 2,600 bytes of UTF-8, more where PostgreSQL can
    compress them; what its index has no room for, `upsert` refuses as InvalidMeta.

    `text_search_config` says how words are cut, stemmed and left out: `english` and its like stem
    one language, `simple` none. Accents of Latin letters are folded first ("cafe" finds "Café").
    Chinese, Japanese and Thai text, which has no spaces, is one word for all of them: parts of it
    are not found by words, only by vectors. Hybrid queries rank texts by PostgreSQL's `ts_rank` for
    each word, weighted by how rare the word is in the namespace; of a text with more than 500 words
    those count that it repeats most.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {*HybridBackedStore.capabilities, "existing"}
    )

    def __init__(
        self,
        dsn: str | None = None,
        *,
        pool: Any = None,
        dimension: int,
        metric: Metric = "cosine",
        table: str = "lib_vectors",
        hnsw: bool = True,
        ef_search: int = 100,
        text_search_config: str = "english",
    ) -> None:
        """Connect to nothing yet: `setup`, or the first call, does.

        Args:
            dsn: a URL or key=value pairs; None leaves it to libpq's environment (`PGHOST`, ...).
            pool: an open `psycopg_pool.AsyncConnectionPool` to be used instead; it is left open.
            dimension: of every vector, at most 16,000.
            metric: how nearness is measured.
            table: its name, perhaps with its schema and a dot before it.
            hnsw: False searches exactly, however long that takes.
            ef_search: how many candidates the index keeps in view, 1 to 1,000; more is slower and
                finds more of the true neighbours.
            text_search_config: of this database, for hybrid queries; kept with the table.

        Raises:
            ValueError: an argument is out of its range, or there are both a dsn and a pool.
            MissingDriver: psycopg or psycopg_pool is not installed.
        """
        super().__init__(dimension, metric)
        if dsn is not None and pool is not None:
            raise ValueError("give dsn or pool, not both: a pool has a database already")
        if not all(map(find_spec, ("psycopg", "psycopg_pool"))):
            raise MissingDriver(NAME, driver="psycopg", extra="postgres")
        self._dsn, self._pool = dsn, pool
        self._table = Table(
            name=table,
            dimension=dimension,
            metric=metric,
            hnsw=hnsw,
            ef_search=ef_search,
            config=text_search_config,
        )
        self._database: Database | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def setup(self) -> None:
        """Open the pool and make the extension, the table and its indexes if need be.

        Safe to repeat, and to run in several processes at once. A table that is complete needs no
        right to change it.

        Raises:
            DimensionMismatch: the table was made for another dimension.
            MetricMismatch: it was made for another metric; a table of other origin takes the
                metric that it is first opened with.
            ValueError: it was made with another text search configuration, or the database has
                none of this name.
            StoreCorrupt: a table of this name is not a vector store's.
            SchemaTooNew: a newer release has made it.
            StoreUnavailable: the server cannot be reached, lacks pgvector, or grants no right to
                make what is missing; it says what a superuser or the owner has to run.
        """
        database = self._database
        await self._run(_nothing if database is None else type(database).setup)

    async def close(self) -> None:
        """Close a pool of its own; safe to repeat. Then any call raises StoreClosed."""
        self._closed = True
        async with self._opening:
            if self._database is not None:
                await self._database.close()

    async def existing(self) -> Layout | None:
        """Return how the table was made, whatever this object expects; None if there is none.

        Raises:
            StoreCorrupt: a table of this name is not a vector store's.
            SchemaTooNew: a newer release has made it.
            StoreUnavailable: the server cannot be reached.
        """
        self._check_open()
        driven = await asyncio.to_thread(_driven)
        return await driven.existing(self._dsn, self._pool, self._table)

    async def _metas(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[tuple[str, dict[str, Any]]]:
        return await self._run(lambda database: database.metas(namespace, after, limit, filter))

    async def _run(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        try:
            return await work(await self._opened())
        except StoreUnavailable as error:
            if self._closed:  # meanwhile: that its pool is gone is no fault of the server
                raise StoreClosed(f"{NAME} was closed during the call") from error
            raise

    async def _opened(self) -> Database:
        """Return the database, opened by the first call."""
        self._check_open()
        database = self._database
        if database is None:
            async with self._opening:
                self._check_open()
                database = self._database or await self._open()
                self._database = database
        self._check_open()  # what has just been opened is closed by the call that closes it
        return database

    async def _open(self) -> Database:
        driven = await asyncio.to_thread(_driven)
        return await driven.opened(self._dsn, self._pool, self._table)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{NAME} is closed")


async def _nothing(_: Database) -> None:
    """Do no more than opening does."""


def _driven() -> Any:
    """Return the module that uses the driver; loading both takes a while."""
    try:
        return import_module("lib.vector.stores.postgres.database")
    except ImportError as error:  # psycopg is there, but has no libpq to work with
        raise MissingDriver(NAME, driver="psycopg", extra="postgres") from error
