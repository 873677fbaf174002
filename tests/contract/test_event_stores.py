"""Every event store keeps the contract; a new one is one more line of the table."""

import os

import pytest

from lib.events import MemoryEventStore, SQLiteEventStore
from lib.events.stores.postgres import PostgresEventStore
from lib.events.stores.redis import RedisEventStore
from lib.testing.event_store import EventStoreContract, StoreKind, check_against_memory
from servers import postgres, redis

LONG = bool(os.environ.get("LIB_TEST_LONG"))
EVENT_STORES = {
    "memory": StoreKind(
        open=lambda _, clock: MemoryEventStore(clock=clock), survives_close=True, shared=False
    ),
    "sqlite": StoreKind(
        open=lambda place, clock: SQLiteEventStore(place / "log.db", clock=clock),
        survives_close=True,
        shared=True,
    ),
    "sqlite in memory": StoreKind(
        open=lambda _, clock: SQLiteEventStore(clock=clock), survives_close=False, shared=False
    ),
    "postgres": StoreKind(
        open=lambda place, clock: PostgresEventStore(
            postgres.url(), schema=postgres.schema_of(place), clock=clock
        ),
        survives_close=True,
        shared=True,
    ),
    "redis": StoreKind(
        open=lambda place, clock: RedisEventStore(
            redis.url(), prefix=redis.prefix_of(place), clock=clock
        ),
        survives_close=True,
        shared=True,
    ),
}

SERVERS = {"postgres": postgres.url, "redis": redis.url}
"""The function that starts the server of a store; it blocks: call it outside of an event loop."""


@pytest.fixture(params=list(EVENT_STORES))
def each_kind(request: pytest.FixtureRequest) -> StoreKind:
    if start := SERVERS.get(request.param):
        start()
    return EVENT_STORES[request.param]


class TestEventStores(EventStoreContract):
    @pytest.fixture
    def kind(self, each_kind: StoreKind) -> StoreKind:
        return each_kind

    def test_it_answers_as_the_memory_store_does(self, kind: StoreKind) -> None:
        slow = kind is EVENT_STORES["postgres"]  # a statement takes it ten times as long
        check_against_memory(kind, max_examples=200 if LONG else 10 if slow else 25)
