"""The stores in which the agent is killed: how a process opens each of them.

PostgreSQL and Redis are one server for all cases; a case has a schema or a prefix of its own, and
connects after its process has been forked.

Memory does not survive a process. There a "process" is an event loop that is stopped for good and
left as it stands; of all that it held only the store object lives on, and nothing reaches that from
the dead loop any more. This proves that the engine keeps nothing outside the store that it needs to
go on, as read off the reference store; not that anything would survive the end of a real process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent import CrashingStore, CrashPlan, LaterClock
from breaker import POSTGRES, REDIS, Breaker, Streams
from psycopg import sql

from lib.events import MemoryEventStore, SQLiteEventStore
from lib.events.stores.postgres import PostgresEventStore
from lib.events.stores.redis import RedisEventStore
from servers import postgres, redis


@dataclass
class Place:
    """The places of the logs and the ledger of a case.

    Attributes:
        url: of the server, if there is one.
        name: of what belongs to the case on the server.
        memory: the store that is only in memory.
    """

    folder: Path
    url: str
    name: str
    clock: LaterClock = field(default_factory=lambda: LaterClock(0))
    memory: MemoryEventStore | None = None

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"


class Opening(Protocol):
    """Opens a store at a place at a time."""

    def __call__(self, place: Place, clock: LaterClock, *, read_only: bool = False) -> Any: ...


@dataclass(frozen=True)
class StoreKind:
    """A kind of store.

    Attributes:
        open: opens it at a place at a time, read-only or not.
        start: starts the server and returns its URL.
        empty: makes room for a case where others have been.
        breaker: makes what can cut its connections; None where there are none.
        every: of the second crashes of a scenario only each n-th, see `matrix.py`.
    """

    open: Opening
    every: Mapping[str, int]
    start: Callable[[], str] = lambda: ""
    empty: Callable[[Place], None] = lambda _: None
    breaker: Callable[[Place], tuple[Breaker, Path, str]] | None = None
    survives: bool = True

    @asynccontextmanager
    async def crashing(self, place: Place, plan: CrashPlan, hours: int) -> AsyncGenerator[Any]:
        """Open the store for a process that follows a plan."""
        breaker, clock = None, LaterClock(hours)
        if self.breaker is None or not plan.cuts:
            yield CrashingStore(self.open(place, clock), plan, None)
            return
        breaker, path, url = self.breaker(place)
        async with breaker.listening(path):
            there = Place(place.folder, url, place.name)
            yield CrashingStore(self.open(there, clock), plan, breaker)
        if breaker.broken != 1:
            raise RuntimeError(f"{breaker.broken} connections were cut at {plan.point}")


def _memory(place: Place, clock: LaterClock, *, read_only: bool = False) -> MemoryEventStore:
    place.clock.hours = clock.hours
    place.memory = place.memory or MemoryEventStore(clock=place.clock)
    return place.memory


def _sqlite(place: Place, clock: LaterClock, *, read_only: bool = False) -> SQLiteEventStore:
    path = place.folder / "runs.db"
    return SQLiteEventStore(path, clock=clock, durability="normal", read_only=read_only)


def _postgres(place: Place, clock: LaterClock, *, read_only: bool = False) -> PostgresEventStore:
    return PostgresEventStore(place.url, schema=place.name, clock=clock, read_only=read_only)


def _empty_postgres(place: Place) -> None:
    tables = ("lib_events", "lib_runs", "lib_blob_uses", "lib_marks")
    with psycopg.connect(place.url, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace(%s)", [place.name]).fetchone() != (None,):
            for table in map(sql.Identifier, tables):
                schema = sql.Identifier(place.name)
                connection.execute(sql.SQL("DELETE FROM {}.{}").format(schema, table))


def _postgres_breaker(place: Place) -> tuple[Breaker, Path, str]:
    folder = Path(parse_qs(urlsplit(place.url).query)["host"][0])
    name = ".s.PGSQL.5432"

    async def connect() -> Streams:
        return await asyncio.open_unix_connection(folder / name)

    url = place.url.replace(str(folder), str(place.folder))
    return Breaker(POSTGRES, connect), place.folder / name, url


def _redis(place: Place, clock: LaterClock, *, read_only: bool = False) -> RedisEventStore:
    prefix = place.folder.name
    return RedisEventStore(place.url, prefix=prefix, clock=clock, read_only=read_only)


def _redis_breaker(place: Place) -> tuple[Breaker, Path, str]:
    server = urlsplit(place.url)

    async def connect() -> Streams:
        return await asyncio.open_connection(server.hostname, server.port)

    path = place.folder / "redis"
    return Breaker(REDIS, connect), path, f"unix://{path}"


STORES = {
    "memory": StoreKind(
        open=_memory, survives=False, every={"go": 5, "delegate": 5, "session": 20}
    ),
    "sqlite": StoreKind(open=_sqlite, every={"go": 12, "delegate": 12, "session": 60}),
    "postgres": StoreKind(
        open=_postgres,
        every={"go": 16, "delegate": 16, "session": 80},
        start=postgres.url,
        empty=_empty_postgres,
        breaker=_postgres_breaker,
    ),
    "redis": StoreKind(
        open=_redis,
        every={"go": 16, "delegate": 16, "session": 80},
        start=redis.url,
        breaker=_redis_breaker,
    ),
}
