"""A PostgreSQL event store whose connections or server are lost: it raises an error and goes on."""

import asyncio
from itertools import count
from typing import Any, Literal

import psycopg
import pytest

from lib.errors import Conflict, StoreError
from lib.events import PostgresEventStore
from lib.events.stores.postgres import writer as module
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin, note
from servers import postgres
from servers.postgres import PostgresServer

from .postgres_kit import LOST, called, execute, hasty, opened, until_blocked


@pytest.fixture
def url() -> str:
    return postgres.url()


@pytest.fixture
def schema() -> str:
    return postgres.fresh_schema()


@pytest.fixture(scope="module")
def own() -> PostgresServer:
    return PostgresServer(durable=True)


def terminate(database: str = "postgres") -> None:
    """End every connection of the shared server but that of this statement."""
    postgres.shared().execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        database,
    )


async def test_connections_that_were_lost_while_idle_are_replaced_without_a_failure(
    url: str, schema: str
) -> None:
    async with opened(url, schema, partitions=1) as store:
        await begin(store, "before")
        await called(terminate)
        await begin(store, "run")
        assert await store.read("run")


@pytest.mark.parametrize("stored", [False, True])
async def test_an_append_that_loses_its_connection_fails_and_the_next_one_works(
    url: str, schema: str, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(patched: pytest.MonkeyPatch, *, stored: bool) -> None:
        original = module.run

        async def lossy(using: Any, statement: Any, parameters: Any = None) -> Any:
            if not stored:
                await called(terminate)
            await original(using, statement, parameters)
            await using.connection.close()
            raise psycopg.OperationalError("consuming input failed: server closed the connection")

        patched.setattr(module, "run", lossy)

    async with opened(url, schema, partitions=1) as store:
        await begin(store, "run")
        with monkeypatch.context() as patched:
            cut(patched, stored=stored)
            with pytest.raises(StoreError, match=LOST) as caught:
                await store.append("run", [note()], expected=1)
        assert type(caught.value) is StoreError
        assert caught.value.retryable
        if stored:  # a second try conflicts
            with pytest.raises(Conflict):
                await store.append("run", [note()], expected=1)
        else:
            await store.append("run", [note()], expected=1)
        assert [event.seq for event in await store.read("run")] == [1, 2]
        assert await store.append("run", [note()], expected=2)


async def test_an_append_whose_server_process_dies_under_way_changes_nothing(
    url: str, schema: str
) -> None:
    def terminate_blocked() -> None:
        postgres.shared().execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE cardinality(pg_blocking_pids(pid)) > 0"
        )

    async with opened(url, schema, partitions=1) as store:
        await begin(store, "run")
        async with await psycopg.AsyncConnection.connect(url) as blocking:
            await execute(blocking, f"SELECT * FROM {schema}.lib_partitions FOR UPDATE")
            appends = [
                asyncio.create_task(store.append("run", [note()], expected=1)),
                asyncio.create_task(begin(store, "other")),
            ]
            await until_blocked()
            late = asyncio.create_task(store.append("run", [note()], expected=None))
            await called(terminate_blocked)
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
            await blocking.rollback()
        assert [type(outcome) for outcome in outcomes] == [StoreError, StoreError]
        assert [event.seq for event in await late] == [2]
        assert await store.run("other") is None


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_store_survives_a_restart_of_its_server_amid_appends(  # noqa: C901, PLR0915 - one story
    own: PostgresServer, schema: str, mode: Literal["fast", "immediate"]
) -> None:
    stored: dict[str, int] = {}
    unexpected: list[Exception] = []

    async def until_stored(store: PostgresEventStore, count: int) -> None:
        with store.wakeups.listen() as listener:
            while sum(stored.values()) < count:
                await listener.wait(1)

    async def write(store: PostgresEventStore, name: str, stop: asyncio.Event) -> None:
        stored[name] = len(await begin(store, name))
        while not stop.is_set():
            head = stored[name]
            try:
                await store.append(name, [note(str(head))], expected=head)
                stored[name] += 1
            except StoreError as error:
                if not error.retryable:
                    unexpected.append(error)
                stored[name] = len(await again(store, name))

    async def again(store: PostgresEventStore, name: str) -> list[Any]:
        while True:
            try:
                return await store.read(name)
            except StoreError as error:
                if not error.retryable:
                    unexpected.append(error)

    async with opened(own.url, schema) as store:
        stop = asyncio.Event()
        writers = [asyncio.create_task(write(store, f"run-{n}", stop)) for n in range(12)]
        await until_stored(store, 100)
        await called(own.stop, mode)
        await called(own.start)
        await until_stored(store, sum(stored.values()) + 100)
        stop.set()
        await asyncio.gather(*writers)
        for name, head in stored.items():
            texts = [event.data["text"] for event in (await store.read(name))[1:]]
            assert texts == [str(number) for number in range(1, head)]
        assert unexpected == []


async def test_an_unreachable_server_fails_in_time(own: PostgresServer, schema: str) -> None:
    async with hasty(own.url, schema, 0.2) as store:
        async with opened(own.url, schema) as patient:
            await begin(patient, "run")
        await called(own.stop)
        try:
            waiting = [begin(store, f"run-{n}") for n in range(3)]
            outcomes: list[Any] = await asyncio.gather(
                *waiting, store.read("run"), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [StoreError] * 4
            assert all(outcome.retryable for outcome in outcomes)
            assert not any(LOST in str(outcome) for outcome in outcomes)  # nothing was sent
            with pytest.raises(StoreError, match="unreachable") as away:
                await PostgresEventStore(own.url, schema=schema).setup()
            assert LOST not in str(away.value)
        finally:
            await called(own.start)
        for number in count():
            try:
                await begin(store, f"again-{number}")
                break
            except StoreError:
                continue


async def test_a_poll_that_fails_is_logged_and_followed_by_others(
    own: PostgresServer, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    async with hasty(own.url, schema, 0.1, clock=clock) as store:
        with store.wakeups.listen() as listener:
            await called(own.stop)
            while "cannot look" not in caplog.text:
                clock.advance(1)
                await listener.wait(0.05)
            await called(own.start)
            async with opened(own.url, schema) as other:
                await begin(other, "run")
            woken = False
            while not woken:
                clock.advance(1)
                woken = await listener.wait(0.05)
