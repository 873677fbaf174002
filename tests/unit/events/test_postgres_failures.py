"""A PostgreSQL event store whose connections, server or neighbours fail: it says so and goes on."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import psycopg
import pytest

from lib.errors import Conflict, RunErased, RunNotFound, StoreError, StoreReadOnly
from lib.events import PostgresEventStore
from lib.events.runs import partition_of
from lib.events.stores.postgres import writer as module
from lib.events.stores.postgres.errors import typed_errors
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import all_events, begin, note, started
from lib.testing.servers import postgres
from lib.testing.servers.postgres import PostgresServer

from .postgres_kit import opened

LOST = "may or may not"


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


async def called(function: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


def test_connections_that_were_lost_while_idle_are_replaced_without_a_failure(
    url: str, schema: str
) -> None:
    async def main() -> None:
        async with opened(url, schema, partitions=1) as store:
            await begin(store, "before")
            await called(terminate)
            await begin(store, "run")
            assert await store.read("run")

    run(main())


@pytest.mark.parametrize("stored", [False, True])
def test_an_append_that_loses_its_connection_fails_and_the_next_one_works(
    url: str, schema: str, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(url, schema, partitions=1) as store:
            await begin(store, "run")
            with monkeypatch.context() as patched:
                cut(patched, stored=stored)
                with pytest.raises(StoreError, match=LOST) as caught:
                    await store.append("run", [note()], expected=1)
            assert type(caught.value) is StoreError
            assert caught.value.retryable
            if stored:  # whoever tries again is told
                with pytest.raises(Conflict):
                    await store.append("run", [note()], expected=1)
            else:
                await store.append("run", [note()], expected=1)
            assert [event.seq for event in await store.read("run")] == [1, 2]
            assert await store.append("run", [note()], expected=2)

    def cut(patched: pytest.MonkeyPatch, *, stored: bool) -> None:
        original = module.run

        async def lossy(using: Any, statement: Any, parameters: Any = None) -> Any:
            if not stored:
                await called(terminate)
            await original(using, statement, parameters)
            await using.connection.close()
            raise psycopg.OperationalError("consuming input failed: server closed the connection")

        patched.setattr(module, "run", lossy)

    run(main())


def test_an_append_whose_server_process_dies_under_way_changes_nothing(
    url: str, schema: str
) -> None:
    async def main() -> None:
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

    def terminate_blocked() -> None:
        postgres.shared().execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE cardinality(pg_blocking_pids(pid)) > 0"
        )

    run(main())


def test_nobody_waits_for_ever_while_somebody_holds_the_tables(url: str, schema: str) -> None:
    async def main() -> None:
        store = PostgresEventStore(url, schema=schema, partitions=1, timeout_s=0.5)
        await store.setup()
        await begin(store, "run")
        async with await psycopg.AsyncConnection.connect(url) as other:
            tables = f'"{schema}".lib_partitions, "{schema}".lib_runs, "{schema}".lib_marks'
            await execute(other, f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
            calls = [
                store.append("run", [note()], expected=1),
                store.run("run"),
                store.claim("me", ttl_s=30),
                store.set_mark("m", "v"),
            ]
            async with asyncio.timeout(15):
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
            await other.rollback()
            for outcome in outcomes:
                assert isinstance(outcome, StoreError)
                assert outcome.retryable
                assert "gave no answer in time" in str(outcome)
            assert LOST in str(outcomes[0])
            await store.append("run", [note()], expected=1)
            await execute(other, f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
            waits = asyncio.create_task(store.append("run", [note()], expected=2))
            await until_blocked()
            async with asyncio.timeout(15):
                await store.close()
            with pytest.raises(StoreError, match=LOST):
                await waits

    run(main())


async def execute(connection: psycopg.AsyncConnection[Any], statement: str) -> None:
    await connection.execute(statement.encode())


async def until_blocked() -> None:
    find = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    while await called(postgres.shared().execute, find) == [(0,)]:
        pass


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_store_survives_a_restart_of_its_server_amid_appends(  # noqa: C901, PLR0915 - one story
    own: PostgresServer, schema: str, mode: Literal["fast", "immediate"]
) -> None:
    stored: dict[str, int] = {}
    unexpected: list[Exception] = []

    async def main() -> None:
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

    run(main(), timeout_s=55)


def test_a_server_that_is_away_is_told_in_time(own: PostgresServer, schema: str) -> None:
    async def main() -> None:
        async with opened(own.url, schema, timeout_s=0.2) as store:
            await begin(store, "run")
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
            while True:
                try:
                    await begin(store, "again")
                    break
                except StoreError:
                    continue

    run(main())


def test_a_deadlock_is_tried_again(url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, failures = module.run, iter([1, 4])

    async def main() -> None:
        async with opened(url, schema, partitions=1) as store:
            calls = 0
            following = next(failures)

            async def deadlocked(using: Any, statement: Any, parameters: Any = None) -> Any:
                nonlocal calls, following
                calls += 1
                if calls == following:
                    following = next(failures, 0)
                    raise psycopg.errors.DeadlockDetected("deadlock detected")
                return await original(using, statement, parameters)

            monkeypatch.setattr(module, "run", deadlocked)
            await begin(store, "run")
            assert calls == 7
            assert len(await store.read("run")) == 1

    run(main())


def test_an_append_that_never_gets_through_is_given_up(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(url, schema, partitions=1) as store:

            async def deadlocked(*_: Any) -> Any:
                raise psycopg.errors.DeadlockDetected("deadlock detected")

            with monkeypatch.context() as patched:
                patched.setattr(module, "run", deadlocked)
                with pytest.raises(StoreError, match="all the time") as caught:
                    await begin(store, "run")
                assert caught.value.retryable
            await begin(store, "run")

    run(main())


def test_a_fault_of_ours_reaches_whoever_waits(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(url, schema, partitions=1) as store:

            async def broken(*_: Any) -> Any:
                raise ZeroDivisionError

            with monkeypatch.context() as patched:
                patched.setattr(module, "run", broken)
                with pytest.raises(ZeroDivisionError):
                    await begin(store, "run")
            await begin(store, "run")

    run(main())


def test_two_starts_of_one_run_with_different_roots_are_one_start(url: str, schema: str) -> None:
    async def main() -> None:
        async with opened(url, schema) as one, opened(url, schema) as two:
            for number in range(20):
                outcomes = await asyncio.gather(
                    one.append(f"run-{number}", [started(root="a")], expected=0),
                    two.append(f"run-{number}", [started(root="b")], expected=0),
                    return_exceptions=True,
                )
                assert sorted(type(outcome).__name__ for outcome in outcomes) == [
                    "Conflict",
                    "list",
                ]

    assert partition_of("a", 8) != partition_of("b", 8)
    run(main())


def test_what_a_process_remembers_of_a_run_never_decides_against_the_database(
    url: str, schema: str
) -> None:
    async def main() -> None:
        async with opened(url, schema) as one, opened(url, schema) as two:
            await begin(one, "run")
            await two.append("run", [note()], expected=1)
            await two.append("run", [note()], expected=2)
            await one.append("run", [note()], expected=3)  # it remembers a head of 1
            await two.append("run", [note()], expected=None)
            with pytest.raises(Conflict) as caught:
                await one.append("run", [note()], expected=4)
            assert caught.value.actual == 5
            await two.erase("run")
            for expected in (0, 5, None):
                events = [started()] if expected == 0 else [note()]
                with pytest.raises(RunErased):
                    await one.append("run", events, expected=expected)
            with pytest.raises(RunNotFound):
                await one.append("none", [note()], expected=None)
            assert await all_events(one) == []

    run(main())


def test_a_reader_does_not_skip_what_is_committed_late(url: str, schema: str) -> None:
    """The gap of stores that number by a sequence: a later number is visible before an earlier."""

    async def main() -> None:
        async with opened(url, schema, partitions=1) as store, opened(url, schema) as other:
            await begin(store, "first")
            cursor = (await other.feed()).cursor
            async with await psycopg.AsyncConnection.connect(url) as slow:
                # As an append does, and then it takes its time.
                await execute(slow, f"UPDATE {schema}.lib_partitions SET head = head + 1")
                await execute(
                    slow,
                    f"INSERT INTO {schema}.lib_events (part, pos, run, seq, kind, at, data) "
                    f"SELECT 0, head, (SELECT id FROM {schema}.lib_runs), 2, 'late', 0, '{{}}' "
                    f"FROM {schema}.lib_partitions",
                )
                quick = asyncio.create_task(begin(other, "quick"))
                await until_blocked()
                assert (await store.feed(cursor)).events == []
                await slow.commit()
            await quick
            page = await store.feed(cursor)
            assert [event.kind for event in page.events] == ["late", "lib.run.started"]

    run(main())


def test_listeners_hear_of_what_others_have_written_and_of_nothing_else(
    url: str, schema: str
) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with (
            opened(url, schema, clock=clock) as one,
            opened(url, schema, clock=clock) as two,
        ):
            await begin(one, "theirs")
            await begin(two, "mine")
            with two.wakeups.listen("mine") as mine, two.wakeups.listen("theirs") as theirs:
                await two.append("mine", [note()], expected=1)
                assert await mine.wait(0)
                await one.append("theirs", [note()], expected=1)
                await until(clock, theirs.wait)
                assert not await mine.wait(0)
                await one.append("theirs", [note()] * 1_100, expected=2)
                await until(clock, mine.wait)  # too much to tell who: everybody looks

    async def until(clock: ManualClock, wait: Callable[[float], Any]) -> None:
        for _ in range(100):
            clock.advance(1)
            if await wait(0.05):
                return
        pytest.fail("nobody woke")

    run(main())


def test_a_look_that_fails_is_logged_and_followed_by_others(
    own: PostgresServer, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with opened(own.url, schema, timeout_s=0.1, clock=clock) as store:
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

    run(main())


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (psycopg.errors.AdminShutdown("x"), StoreError, True),
        (psycopg.errors.DiskFull("x"), StoreError, True),
        (psycopg.errors.ReadOnlySqlTransaction("x"), StoreReadOnly, False),
        (psycopg.errors.InsufficientPrivilege("x"), StoreReadOnly, False),
        (psycopg.errors.UndefinedTable("x"), StoreError, False),
        (psycopg.OperationalError("x"), StoreError, True),
        (psycopg.InterfaceError("x"), StoreError, False),
    ],
)
def test_what_the_driver_raises_has_a_type_of_ours_and_says_what_it_means(
    error: psycopg.Error, kind: type[StoreError], retryable: bool
) -> None:
    with pytest.raises(StoreError, match="the store") as caught, typed_errors("the store"):
        raise error
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable


def test_only_writes_leave_open_whether_they_were_stored() -> None:
    lost = psycopg.OperationalError("connection to server was lost")

    with pytest.raises(StoreError, match=LOST), typed_errors("the store"):
        raise lost
    with pytest.raises(StoreError) as read, typed_errors("the store", writes=False):
        raise lost
    assert read.value.retryable
    assert LOST not in str(read.value)
