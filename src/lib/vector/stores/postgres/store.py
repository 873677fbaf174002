"""`PostgresVectorStore`: checks its input, then hands the work to its database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lib.errors import MissingDriver, StoreClosed
from lib.vector.filter import Filter, fold, refusals
from lib.vector.protocol import FilterLike
from lib.vector.records import Layout, Match, Metric, Record, Vector
from lib.vector.stores.postgres.table import NAME, Table
from lib.vector.validate import (
    checked_batch,
    checked_deletion,
    checked_dimension,
    checked_ids,
    checked_metric,
    checked_namespace,
    checked_query,
    checked_scan,
    checked_words,
)
from lib.vector.values import plain_text

if TYPE_CHECKING:
    from lib.vector.stores.postgres.database import Database

T = TypeVar("T")

_INLINE_RECORDS: Final = 100


class PostgresVectorStore:
    """Records in one table of a PostgreSQL database with the extension pgvector.

    Filters run in SQL, before the search: among few records it is exact, among many it takes the
    HNSW index (with pgvector 0.8 or newer, up to 2,000 dimensions, under cosine up to 4,000) and
    is approximate; ties stand in the order of ids either way. No call returns fewer records than
    there are. A table that others have made may have more columns; `namespace`, `id`, `v`, `text`
    and `meta` are needed, what else the store needs is added.

    `text_search_config` says how words are cut, stemmed and left out: `english` and its like stem
    one language, `simple` none. Accents of Latin letters are folded first ("cafe" finds "Café").
    Chinese, Japanese and Thai text, which has no spaces, is one word for all of them: parts of it
    are not found by words, only by vectors.
    """

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
            ValueError: an argument is out of its range, or both dsn and pool are given.
            MissingDriver: psycopg or psycopg_pool is not installed.
        """
        checked_dimension(dimension)
        checked_metric(metric)
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
        await self._opened()
        if database is not None:
            await database.setup()

    async def close(self) -> None:
        """Close the pool unless it was given; safe to repeat. Then any call raises StoreClosed."""
        self._closed = True
        async with self._opening:
            if self._database is not None:
                await self._database.close()

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held; all of them or none."""
        name, given = checked_namespace(namespace), list(records)

        def check() -> Any:
            return checked_batch(given, metric=self.metric, dimension=self.dimension)

        few = len(given) <= _INLINE_RECORDS
        batch = check() if few else await asyncio.to_thread(check)
        if batch is None:
            await self._opened()
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
        query = checked_query(vector, k, metric=self.metric, dimension=self.dimension)
        name = checked_namespace(namespace)
        return await self._filtered(
            filter,
            lambda database, plan: database.query(
                name, query, k, plan, include_vectors=include_vectors
            ),
            otherwise=[],
        )

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

        Any word of `text` may match. Texts are ranked by PostgreSQL's `ts_rank` for each word,
        weighted by how rare the word is in the namespace.
        """
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
        start, name = checked_scan(after, limit), checked_namespace(namespace)
        return await self._run(lambda database: database.scan(name, start, limit))

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
        try:
            plain_text(prefix)
        except ValueError:  # what no name can hold, no name starts with
            await self._opened()
            return []
        return await self._run(lambda database: database.namespaces(prefix))

    async def _filtered(
        self,
        filter: FilterLike,
        work: Callable[[Database, Filter | None], Awaitable[T]],
        *,
        otherwise: T,
    ) -> T:
        """Do the work with a filter that has no constants left; not at all if nothing passes."""
        plan = fold(Filter.parse(filter))
        if plan is False:
            await self._opened()
            return otherwise
        kept = None if plan is True else refusals.checked(plan, store=NAME)
        return await self._run(lambda database: work(database, kept))

    async def _run(self, work: Callable[[Database], Awaitable[T]]) -> T:
        return await work(await self._opened())

    async def _opened(self) -> Database:
        """Return the database, opened by whoever comes first."""
        self._check_open()
        database = self._database
        if database is None:
            async with self._opening:
                self._check_open()
                database = self._database
                if database is None:
                    driven = await asyncio.to_thread(_driven)
                    database = await driven.opened(self._dsn, self._pool, self._table)
                    self._database = database
        return database

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{NAME} is closed")


def _driven() -> Any:
    """Return the module that uses the driver; loading both takes a while."""
    try:
        return import_module("lib.vector.stores.postgres.database")
    except ImportError as error:  # psycopg is there, but has no libpq to work with
        raise MissingDriver(NAME, driver="psycopg", extra="postgres") from error
