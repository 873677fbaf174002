"""PostgreSQL that fails, is killed or is kept waiting: all or nothing, and the next call works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from lib.errors import MissingDriver, StoreClosed, StoreUnavailable
from lib.vector import PostgresVectorStore, Record
from lib.vector.stores.postgres import database
from lib.vector.stores.postgres import store as module
from lib.vector.stores.postgres.driver import typed_errors
from servers import postgres

_names = count()
WRITER = """
import asyncio, sys
from itertools import count
from lib.vector import PostgresVectorStore, Record

async def main(dsn, table):
    store = PostgresVectorStore(dsn, dimension=64, table=table)
    await store.setup()
    for batch in count():
        print(batch, flush=True)
        await store.upsert(
            [Record(str(n), [1.0] * 63 + [n], "text", {"batch": batch}) for n in range(3000)]
        )

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def dsn() -> str:
    return postgres.url()


@pytest.fixture
def name() -> str:
    return f"failures_{next(_names)}"


def many(batch: int, rows: int = 3_000) -> list[Record]:
    return [Record(f"{row}", [1.0, row], "some text", {"batch": batch}) for row in range(rows)]


async def test_an_upsert_whose_process_is_killed_has_written_all_or_nothing(
    dsn: str, name: str, unmeasured: dict[str, str]
) -> None:
    async def batches() -> list[int]:
        store = PostgresVectorStore(dsn, dimension=64, table=name)
        seen = [await store.count(filter={"batch": batch}) for batch in range(100)]
        seen.append(await store.count())
        await store.close()
        return seen

    for delay_s in (0.02, 0.1, 0.2, 0.3, 0.45):
        command = [sys.executable, "-c", WRITER, dsn, name]
        with subprocess.Popen(
            command, env=unmeasured, stdout=subprocess.PIPE, encoding="utf-8"
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "0\n"
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(delay_s)
            writer.kill()

        *counts, total = await batches()
        assert total in (0, 3_000)
        assert set(counts) <= {0, total}
        assert sum(counts) == total


async def test_a_batch_that_fails_in_its_last_piece_leaves_nothing(
    dsn: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PIECE_BYTES", 1_000)

    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.upsert(many(1, 100))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        rule = f"ALTER TABLE {name} ADD CHECK (id <> '99' OR meta ->> 'batch' = '1')"
        await other.execute(rule.encode())
    with pytest.raises(StoreUnavailable, match=r"CheckViolation.*23514"):
        await store.upsert(many(2, 100))
    assert await store.count(filter={"batch": 1}) == 100
    await store.close()


async def test_a_text_larger_than_a_text_search_vector_is_stored(dsn: str, name: str) -> None:
    text = " ".join(f"word{number}" for number in range(120_000))
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.upsert([Record("a", [1, 0], text), Record("b", [1, 0], "x" * 3_000_000)])
    assert (await store.get(["a"]))[0].text == text
    assert (await store.query_hybrid([1.0, 0.0], "word7 " + text))[0].id == "a"
    await store.close()


async def test_upserts_of_the_same_ids_in_any_order_wait_for_each_other(
    dsn: str, name: str
) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.setup()
    random = Random(4)
    batches = [many(batch, 400) for batch in range(8)]
    for batch in batches:
        random.shuffle(batch)
    await asyncio.gather(*(store.upsert(batch) for batch in batches))
    found = await store.query([1.0, 0.0], 400)
    assert len({match.meta["batch"] for match in found}) == 1
    await store.close()


async def test_a_cancelled_call_leaves_all_or_nothing_and_a_store_that_works(
    dsn: str, name: str
) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.setup()
    for turn in range(12):
        writing = asyncio.create_task(store.upsert(many(turn)))
        reading = asyncio.create_task(store.query([1.0, 0.0], 3_000))
        await asyncio.wait([writing, reading], timeout=turn * 0.03)
        writing.cancel()
        reading.cancel()
        await asyncio.gather(writing, reading, return_exceptions=True)

        found = await store.query([1.0, 0.0], 3_000)
        assert len({match.meta["batch"] for match in found}) <= 1
        assert len(found) in (0, 3_000)
    await store.close()


async def test_connections_that_were_ended_are_replaced(name: str) -> None:
    dsn = postgres.fresh_url()

    async def end_all() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
            await other.execute("""
                SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()
            """)

    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.setup()
    await store.upsert(many(0, 10))
    for _ in range(3):
        await asyncio.gather(*(store.count() for _ in range(4)))
        await end_all()
        assert await store.count() == 10
    writing = asyncio.create_task(store.upsert(many(1, 20_000)))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        active = "SELECT 1 FROM pg_stat_activity WHERE wait_event IS NULL AND query LIKE %s"
        while not await (await other.execute(active, ["%INSERT INTO%unnest%"])).fetchone():
            pass
    await end_all()
    with pytest.raises(StoreUnavailable) as failure:
        await writing
    assert failure.value.retryable
    assert await store.count() == 10
    await store.close()


async def test_a_connection_that_has_something_to_read_need_not_be_lost(
    dsn: str, name: str
) -> None:
    async with AsyncConnectionPool(dsn, min_size=1, max_size=1, open=False) as pool:
        store = PostgresVectorStore(pool=pool, dimension=2, table=name)
        await store.setup()
        async with pool.connection() as connection:
            await connection.execute("LISTEN news")
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
            await other.execute("NOTIFY news")
        assert await store.count() == 0
        await store.close()


def test_a_misuse_of_the_driver_is_named() -> None:
    with pytest.raises(StoreUnavailable, match="InterfaceError"), typed_errors("table"):
        raise psycopg.InterfaceError("this event loop cannot do it")


async def test_a_pool_that_is_given_is_used_as_it_is_and_left_open(dsn: str, name: str) -> None:
    async with AsyncConnectionPool(
        dsn, min_size=1, max_size=1, timeout=200, open=False, kwargs={"row_factory": dict_row}
    ) as pool:
        store = PostgresVectorStore(pool=pool, dimension=2, table=name)
        await store.upsert(many(0, 10))
        assert len(await store.query([1.0, 0.0])) == 5
        assert len(await store.query_hybrid([1.0, 0.0], "text")) == 5
        async with pool.connection() as connection:
            pool.timeout = 0.2
            with pytest.raises(StoreUnavailable, match="too small") as failure:
                await store.count()
            pool.timeout = 200
            assert failure.value.retryable
            shown = await connection.execute("SHOW enable_sort")
            assert await shown.fetchone() == {"enable_sort": "on"}
        await store.close()
        async with pool.connection() as connection:
            await connection.execute("SELECT 1")
    late = PostgresVectorStore(pool=pool, dimension=2, table=name)
    with pytest.raises(StoreUnavailable, match="not open"):
        await late.setup()


@pytest.mark.parametrize(
    ("change", "retryable", "reason"),
    [
        (("/postgres?host=/tmp", "/postgres?host=/nowhere&x="), True, "unreachable"),
        (("//postgres:", "//no_such_role:"), False, "refused"),
        (("/postgres?", "/nothing?"), False, "refused"),
    ],
)
async def test_an_unreachable_server_is_reported_without_its_address(
    dsn: str, change: tuple[str, str], retryable: bool, reason: str
) -> None:
    wrong = dsn.replace(*change).replace("&x=", "&application_name=")

    store = PostgresVectorStore(wrong, dimension=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=reason) as failure:
            await store.count()
        assert failure.value.retryable == retryable
        assert not any(
            part in str(failure.value) for part in ("/nowhere", "no_such_role", "nothing")
        )
    await store.close()
    with pytest.raises(StoreClosed):
        await store.count()


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("the database system is starting up", "it is starting"),
        ("the database system is shutting down", "it is shutting down"),
        ("sorry, too many clients already", "it has as many as it allows"),
    ],
)
async def test_a_server_that_is_starting_is_a_retryable_failure(
    dsn: str, reason: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is replaced: a real server starts too fast for a test to meet it."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError(f"FATAL:  {reason}")

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", refuse)

    with pytest.raises(StoreUnavailable, match=f"refused a connection .*: {message}$") as failure:
        await PostgresVectorStore(dsn, dimension=2).setup()
    assert failure.value.retryable


@pytest.mark.parametrize("dsn", ["no such thing", "postgresql://[", "nokey=1"])
async def test_a_dsn_that_cannot_be_read_is_refused(dsn: str) -> None:
    with pytest.raises(ValueError, match="dsn is a URL"):
        await PostgresVectorStore(dsn, dimension=2).setup()


async def test_a_time_limit_of_the_caller_for_connecting_is_kept(dsn: str, name: str) -> None:
    store = PostgresVectorStore(f"{dsn}&connect_timeout=300", dimension=2, table=name)
    assert await store.count() == 0
    await store.close()


async def test_a_statement_that_takes_too_long_for_the_server_is_named(dsn: str, name: str) -> None:
    slow = f"{dsn}&options=-c%20statement_timeout%3D150"
    patient = PostgresVectorStore(dsn, dimension=2, table=name)
    await patient.setup()
    store = PostgresVectorStore(slow, dimension=2, table=name)
    with pytest.raises(StoreUnavailable, match="statement_timeout") as failure:
        await store.upsert(many(0, 60_000))
    assert failure.value.retryable
    assert await patient.count() == 0
    await store.close()
    await patient.close()


async def test_a_table_that_was_dropped_is_named(dsn: str, name: str) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.setup()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        await other.execute(f"DROP TABLE {name}".encode())
    with pytest.raises(StoreUnavailable, match="gone") as failure:
        await store.count()
    assert not failure.value.retryable
    await store.close()


async def test_a_store_closed_before_or_while_it_is_opened_stays_closed(
    dsn: str, name: str
) -> None:
    for turns in range(4):
        store = PostgresVectorStore(dsn, dimension=2, table=name)
        calls = [asyncio.create_task(store.count()) for _ in range(2)]
        await asyncio.wait(calls, timeout=turns * 0.01)
        await store.close()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert outcome == 0 or isinstance(outcome, StoreClosed | StoreUnavailable)
        with pytest.raises(StoreClosed):
            await store.setup()


async def test_calls_that_come_first_at_once_share_what_one_of_them_opens(
    dsn: str, name: str
) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    assert await asyncio.gather(*(store.count() for _ in range(5))) == [0] * 5
    await store.close()


async def test_names_that_cannot_be_stored_are_the_prefix_of_none(dsn: str, name: str) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.upsert(many(0, 1), namespace="a%b_")
    assert await store.namespaces("\0") == await store.namespaces("\ud800") == []
    assert await store.namespaces("a%") == ["a%b_"]
    assert await store.namespaces("a_") == []
    await store.close()


async def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "find_spec", {"psycopg": object()}.get)
        with pytest.raises(MissingDriver, match=r"psycopg: pip install 'psycopg"):
            PostgresVectorStore(dimension=2)
    store = PostgresVectorStore(dimension=2)
    monkeypatch.setitem(sys.modules, "lib.vector.stores.postgres.database", None)
    with pytest.raises(MissingDriver, match="psycopg"):
        await store.setup()
