"""The ends of what PostgreSQL takes: long names, endless lists, long questions, calls too late."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from itertools import count
from random import Random
from threading import Thread, current_thread, main_thread
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from lib._util.json import parse
from lib.errors import InvalidMeta, StoreClosed, StoreUnavailable
from lib.vector import EVERYTHING, PostgresVectorStore, Record
from lib.vector.stores.postgres import database, search
from lib.vector.stores.postgres.filter import written
from servers import postgres

_names = count()


@pytest.fixture(scope="module")
def dsn() -> str:
    return postgres.url()


@pytest.fixture
def name() -> str:
    return f"limits_{next(_names)}"


def noise(length: int, random: Random) -> str:
    """Return text of three bytes a character that no server can compress."""
    return "".join(chr(random.randrange(0x4E00, 0x9FA5)) for _ in range(length))


async def test_names_as_long_as_a_key_may_be_are_stored_and_longer_ones_refused(
    dsn: str, name: str
) -> None:
    """A key of PostgreSQL ends at 2,704 bytes, what it needs for itself among them."""
    random = Random(2)

    store = PostgresVectorStore(dsn, dimension=2, table=name)
    for first, second in ((510, 356), (356, 510), (433, 433)):
        names = noise(first, random), noise(second, random) + "ab"
        await store.upsert([Record(names[0], [1.0, 0.0])], namespace=names[1])
        assert [one.id for one in await store.scan(namespace=names[1])] == [names[0]]
    for short in (["a"], []):
        records = [Record(one, [1.0, 0.0]) for one in [*short, noise(512, random)]]
        with pytest.raises(InvalidMeta, match=r"2600 bytes.*3072"):
            await store.upsert(records, namespace=noise(512, random))
    await store.upsert([Record("é" * 512, [1.0, 0.0])], namespace="\U0001f30a" * 512)
    assert len(await store.namespaces()) == 4
    await store.close()


async def test_another_limit_of_the_server_is_no_fault_of_the_names(dsn: str, name: str) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.setup()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        await other.execute(
            f"""
                CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '54000'; END $$;
                CREATE TRIGGER full_up BEFORE INSERT ON {name} EXECUTE FUNCTION {name}();
            """.encode()
        )
    with pytest.raises(StoreUnavailable, match="54000"):
        await store.upsert([Record("a", [1.0, 0.0])])
    await store.close()


@pytest.mark.parametrize("k", [2**31, 2**32, sys.maxsize, 10**30])
@pytest.mark.parametrize("hnsw", [True, False])
async def test_any_limit_may_exceed_the_number_of_records(
    dsn: str, name: str, k: int, hnsw: bool
) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name, hnsw=hnsw)
    await store.upsert([Record("a", [1.0, 0.0], "apple"), Record("b", [0.0, 1.0])])
    assert [match.id for match in await store.query([1.0, 0.0], k)] == ["a", "b"]
    found = await store.query_hybrid([0.0, 1.0], "apple", k)
    assert {match.id for match in found} == {"a", "b"}
    await store.close()


@pytest.mark.parametrize("by_option", [True, False])
async def test_calls_that_a_store_is_closed_during_end_or_say_so(
    dsn: str, name: str, by_option: bool
) -> None:
    pool = AsyncConnectionPool(dsn, min_size=1, max_size=2, open=False)
    await pool.open()
    for turn in range(12):
        store = (
            PostgresVectorStore(pool=pool, dimension=2, table=name)
            if by_option
            else PostgresVectorStore(dsn, dimension=2, table=name)
        )
        if turn % 2:
            await store.upsert([Record("a", [1.0, 0.0])])
        calls = [asyncio.create_task(store.query([1.0, 0.0])) for _ in range(20)]
        await asyncio.wait(calls, timeout=(turn // 2) * 0.003)
        await asyncio.gather(store.close(), store.close())
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, list | StoreClosed), outcome
        with pytest.raises(StoreClosed):
            await store.existing()
    await pool.close()


async def test_the_call_that_opens_a_store_does_nothing_once_it_is_closed(
    dsn: str, name: str
) -> None:
    async with AsyncConnectionPool(dsn, min_size=1, max_size=2, open=False) as pool:
        store = PostgresVectorStore(pool=pool, dimension=2, table=name)
        connections = [await pool.getconn(), await pool.getconn()]
        calls = [
            asyncio.create_task(store.upsert([Record("a", [1.0, 0.0])])),
            asyncio.create_task(store.setup()),
        ]
        await asyncio.wait(calls, timeout=0.05)
        closing = asyncio.create_task(store.close())
        await asyncio.wait([closing], timeout=0)
        for one in connections:
            await pool.putconn(one)
        await closing
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreClosed] * 2
        fresh = PostgresVectorStore(pool=pool, dimension=2, table=name)
        assert await fresh.count() == 0
        await fresh.close()


async def test_a_cancelled_close_closes_all_the_same(name: str) -> None:
    dsn = postgres.fresh_url()

    async def main() -> None:
        for turn in range(6):
            store = PostgresVectorStore(dsn, dimension=2, table=name)
            await store.setup()
            closing = asyncio.create_task(store.close())
            await asyncio.wait([closing], timeout=turn * 0.0005)
            closing.cancel()
            await asyncio.wait([closing])
            await store.close()
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
            left = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            for _ in range(200):
                if len(await (await other.execute(left)).fetchall()) == 1:
                    return
                await other.execute("SELECT pg_sleep(0.01), pg_stat_clear_snapshot()")
        raise AssertionError("connections are left open")

    await main()


async def test_a_long_query_uses_its_most_frequent_terms(
    dsn: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MAX_TERMS", 3)

    store = PostgresVectorStore(dsn, dimension=2, table=name)
    words = ["zebra", "yak", "walrus", "vole"]
    await store.upsert([Record(word, [1.0, 0.0], word) for word in words])
    await store.upsert([Record("0", [1.0, 0.0], "none of them")])
    found = await store.query_hybrid([1.0, 0.0], "vole vole walrus zebra yak", 5)
    assert {match.id for match in found[:3]} == {"vole", "walrus", "zebra"}
    await store.close()


async def test_words_that_were_just_written_lie_in_the_index(name: str) -> None:
    """Not in its list of pending ones, which each term of a question would read to its end."""
    dsn = postgres.fresh_url()

    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.upsert([Record(f"{row}", [1.0, 0.0], f"word{row}") for row in range(300)])
    await store.close()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        listed = """
                SELECT gin_clean_pending_list(indexrelid) FROM pg_index i
                JOIN pg_class k ON k.oid = i.indexrelid JOIN pg_am m ON m.oid = k.relam
                WHERE amname = 'gin' AND indrelid = %s::regclass
            """
        assert await (await other.execute(listed, [name])).fetchall() == [(0,), (0,)]


async def test_much_metadata_is_written_and_read_in_a_thread(
    dsn: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = {f"key{number}": number for number in range(40)}
    records = [Record(f"{row}", [1.0, row], "", meta) for row in range(200)]
    threads = list[tuple[str, Thread]]()

    def seen(word: str, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(value: Any) -> Any:
            threads.append((word, current_thread()))
            return work(value)

        return noted

    monkeypatch.setattr(database, "written", seen("written", written))
    monkeypatch.setattr(database, "parse", seen("read", parse))

    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.upsert(records)
    assert (await store.query([1.0, 0.0], 200))[0].meta == meta
    assert await store.scan() == await store.get(sorted(record.id for record in records))
    assert len(await store.query_hybrid([1.0, 0.0], "", 200)) == 200
    await store.close()
    assert [word for word, _ in threads] == ["written"] * 200 + ["read"] * 800
    assert main_thread() not in {thread for _, thread in threads}


async def test_large_metadata_changes_in_statements_of_a_bounded_size(dsn: str, name: str) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    large = [Record(f"{n}", [1.0, 0.0], "", {"x": "y" * 6_000_000}) for n in range(4)]
    for one in large:
        await store.upsert([one])
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        for statement in (
            f"CREATE TABLE {name}_statements (of text)",
            f"""CREATE FUNCTION {name}_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO {name}_statements VALUES (TG_OP); RETURN NULL; END $$""",
            f"CREATE TRIGGER counted AFTER UPDATE ON {name} EXECUTE FUNCTION {name}_count()",
        ):
            await connection.execute(statement.encode())

        assert await store.update_meta({"seen": True}, filter=EVERYTHING) == 4
        assert await store.update_meta({"seen": True}, ids=["unknown"]) == 0

        counted = await connection.execute(f"SELECT count(*) FROM {name}_statements".encode())
        assert await counted.fetchone() == (4,)
    assert [one.meta["seen"] for one in await store.scan()] == [True] * 4
    await store.close()
