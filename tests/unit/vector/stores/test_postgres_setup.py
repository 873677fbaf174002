"""Opening a PostgreSQL table: it is created, completed, taken over, or refused with a reason."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql

from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    SchemaTooNew,
    StoreCorrupt,
    StoreUnavailable,
)
from lib.vector import PostgresVectorStore, Record
from lib.vector.stores.postgres import driver, setup
from lib.vector.stores.postgres.config import Table
from servers import postgres

_names = count()
COLUMNS = "namespace text, id text, v vector(2), text text, meta jsonb"
FOREIGN = """
    CREATE TABLE {name} (
        namespace text, id text, v vector(2), text text, meta jsonb, more int DEFAULT 7,
        UNIQUE (id, namespace)
    );
    INSERT INTO {name} VALUES ('', 'old', '[1,0]', 'an old apple', '{{"x": 1}}');
"""


@pytest.fixture(scope="module")
def dsn() -> str:
    url = postgres.url()
    execute(url, "CREATE EXTENSION IF NOT EXISTS vector")
    execute(url, "CREATE ROLE plain LOGIN")
    return url


@pytest.fixture
def name() -> str:
    return f"setup_{next(_names)}"


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def found(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return [value for (value,) in connection.execute(statement.encode())]


def plain(dsn: str) -> str:
    return dsn.replace("//postgres:", "//plain:")


async def used(store: PostgresVectorStore) -> list[str]:
    """Return the ids found by words in a store that can be written."""
    try:
        await store.upsert([Record("new", [0.0, 1.0], "a new apple")])
        return [match.id for match in await store.query_hybrid([1.0, 0.0], "apples")]
    finally:
        await store.close()


async def opened(*arguments: Any, **keywords: Any) -> None:
    store = PostgresVectorStore(*arguments, **{"dimension": 2, **keywords})
    try:
        await store.setup()
    finally:
        await store.close()


async def test_many_stores_open_an_empty_database_at_once() -> None:
    dsn = postgres.fresh_url()

    stores = [PostgresVectorStore(dsn, dimension=2, table=f"t{n % 2}") for n in range(8)]
    await asyncio.gather(*(store.setup() for store in stores))
    for store in stores:
        await store.close()
    indexes = found(dsn, "SELECT indexdef FROM pg_indexes WHERE tablename = 't1'")
    assert len(indexes) == 4


async def test_setup_recreates_what_was_dropped(dsn: str, name: str) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.setup()
    await asyncio.to_thread(execute, dsn, f"ALTER TABLE {name} DROP COLUMN ts")
    with pytest.raises(StoreUnavailable, match="UndefinedColumn"):
        await store.query_hybrid([1.0, 0.0], "apple")
    await store.setup()
    await store.query_hybrid([1.0, 0.0], "apple")
    await store.close()


@pytest.mark.parametrize("table", ["odd.Name", 'odd.it\'s "quoted" %s {}', "odd.ä"])
async def test_a_table_has_any_name_and_may_have_a_schema(dsn: str, table: str) -> None:
    execute(dsn, "CREATE SCHEMA IF NOT EXISTS odd")

    assert (await used(PostgresVectorStore(dsn, dimension=2, table=table))) == ["new"]
    assert table.removeprefix("odd.") in found(
        dsn, "SELECT tablename FROM pg_tables WHERE schemaname = 'odd'"
    )


@pytest.mark.parametrize("table", ["", "a.b.c", "a.", ".a", "x" * 64, "ü" * 32, "a\0", "a\n"])
def test_what_is_no_name_of_a_table_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="table is a name"):
        PostgresVectorStore(dimension=2, table=table)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dimension": 16_001}, "16000"),
        ({"dimension": 0}, "dimension"),
        ({"metric": "manhattan"}, "metric"),
        ({"ef_search": 0}, "ef_search"),
        ({"ef_search": 1_001}, "ef_search"),
        ({"dsn": "", "pool": object()}, "not both"),
    ],
)
def test_arguments_out_of_their_range_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PostgresVectorStore(**cast(Any, {"dimension": 2, **keywords}))


async def test_a_schema_that_is_missing_is_named(dsn: str) -> None:
    with pytest.raises(StoreUnavailable, match="no such schema"):
        await opened(dsn, table="nowhere.t")


async def test_a_table_made_for_something_else_is_refused_with_both_facts(
    dsn: str, name: str
) -> None:
    await opened(dsn, table=name)

    with pytest.raises(DimensionMismatch) as dimension:
        await opened(dsn, table=name, dimension=3)
    assert (dimension.value.expected, dimension.value.got) == (2, 3)
    with pytest.raises(MetricMismatch) as metric:
        await opened(dsn, table=name, metric="dot")
    assert (metric.value.expected, metric.value.got) == ("cosine", "dot")
    with pytest.raises(ValueError, match=r"'english'.*'german'"):
        await opened(dsn, table=name, text_search_config="german")
    await opened(dsn, table=name, text_search_config="pg_catalog.english")


@pytest.mark.parametrize("config", ["klingon", "a b", "", "'; DROP TABLE x; --"])
async def test_an_unknown_text_search_configuration_is_refused(
    dsn: str, name: str, config: str
) -> None:
    with pytest.raises(ValueError, match="no text search configuration"):
        await opened(dsn, table=name, text_search_config=config)


async def test_a_configuration_with_a_quote_in_its_name_is_kept_and_compared(
    dsn: str, name: str
) -> None:
    execute(dsn, 'CREATE TEXT SEARCH CONFIGURATION "o\'r" (COPY = simple)')

    for _ in range(2):
        await opened(dsn, table=name, text_search_config='"o\'r"')


async def test_a_configuration_says_how_words_are_cut(dsn: str, name: str) -> None:
    store = PostgresVectorStore(dsn, dimension=2, table=name, text_search_config="simple")

    await store.upsert([Record("a", [1, 0], "x"), Record("b", [1, 0.1], "The Foxes")])
    for words, best in (("fox", "a"), ("foxes", "b"), ("the", "b")):
        assert (await store.query_hybrid([1.0, 0.0], words))[0].id == best
    await store.close()


async def test_a_table_of_other_origin_is_completed_and_its_rows_are_found(
    dsn: str, name: str
) -> None:
    execute(dsn, FOREIGN.format(name=name) + f"COMMENT ON COLUMN {name}.v IS '100% ours'")

    assert (await used(PostgresVectorStore(dsn, dimension=2, table=name, metric="dot"))) == [
        "new",
        "old",
    ]
    assert found(dsn, f"SELECT more FROM {name}") == [7, 7]
    assert found(dsn, f"SELECT col_description('{name}'::regclass, 3)") == [
        "100% ours; lib.vector layout=1 metric=dot"
    ]
    with pytest.raises(MetricMismatch):
        await opened(dsn, table=name)

    store = PostgresVectorStore(dsn, dimension=2, table=name, metric="dot")
    (record,) = await store.get(["old"])
    await store.close()
    assert record == Record("old", [1.0, 0.0], "an old apple", {"x": 1})


async def test_a_text_search_column_that_folds_no_accents_is_queried_as_it_was_made(
    dsn: str, name: str
) -> None:
    execute(
        dsn,
        FOREIGN.format(name=name) + f"ALTER TABLE {name} ADD COLUMN ts tsvector GENERATED ALWAYS AS"
        " (to_tsvector('english', text)) STORED",
    )

    store = PostgresVectorStore(dsn, dimension=2, table=name)
    await store.upsert([Record("a", [1, 0], ""), Record("b", [0, 1], "Café")])
    for words, ids in (("café", ["b", "a", "old"]), ("cafe", ["a", "old", "b"])):
        found = await store.query_hybrid([1.0, 0.0], words)
        assert [match.id for match in found] == ids
    await store.close()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("id text PRIMARY KEY", "no text column namespace"),
        ("namespace text, id text, v real[], text text, meta jsonb", "no vector column v"),
        (COLUMNS, "not its key"),
        (
            f"{COLUMNS}, ts tsvector, UNIQUE (namespace, id)",
            "ts is not generated",
        ),
    ],
)
async def test_a_table_that_is_no_vector_stores_is_refused(
    dsn: str, name: str, columns: str, reason: str
) -> None:
    execute(dsn, f"CREATE TABLE {name} ({columns})")

    with pytest.raises(StoreCorrupt, match=reason):
        await opened(dsn, table=name)


async def test_a_table_of_a_newer_release_is_refused(dsn: str, name: str) -> None:
    await opened(dsn, table=name)
    execute(dsn, f"COMMENT ON COLUMN {name}.v IS 'lib.vector layout=2 metric=cosine'")

    with pytest.raises(SchemaTooNew) as refusal:
        await opened(dsn, table=name)
    assert (refusal.value.found, refusal.value.supported) == (2, 1)


async def test_the_extension_may_be_in_a_schema_off_the_search_path() -> None:
    dsn = postgres.fresh_url()
    execute(dsn, "CREATE SCHEMA ext; CREATE EXTENSION vector SCHEMA ext")

    for number, dimension in enumerate((2, 2_500)):
        store = PostgresVectorStore(dsn, dimension=dimension, table=f"t{number}")

        async def main(store: PostgresVectorStore = store, rest: int = dimension - 2) -> None:
            records = [Record(f"{row}", [1.0, row, *[0.0] * rest]) for row in range(3)]
            await store.upsert(records)
            found = await store.query([1.0, 2.0, *[0.0] * rest], 2)
            assert [match.id for match in found] == ["2", "1"]
            await store.close()

        await main()


async def test_without_the_right_to_create_the_extension_the_error_names_the_statement(
    dsn: str,
) -> None:
    with pytest.raises(StoreUnavailable, match=r"superuser.*CREATE EXTENSION") as refusal:
        await opened(plain(postgres.fresh_url()))
    assert not refusal.value.retryable


async def test_a_server_without_pgvector_is_named(dsn: str) -> None:
    table = Table(
        name="t", dimension=2, metric="cosine", hnsw=True, ef_search=100, config="english"
    )

    async with (
        await psycopg.AsyncConnection.connect(dsn) as connection,
        driver.cursor(connection) as cursor,
    ):
        with pytest.raises(StoreUnavailable, match="does not have"):
            await setup.make(cursor, table, sql.SQL("CREATE EXTENSION nowhere"))


async def test_a_complete_table_needs_no_right_to_change_it(dsn: str, name: str) -> None:
    await opened(dsn, table=name)
    execute(dsn, f"GRANT SELECT, INSERT, UPDATE ON {name} TO plain")

    store = PostgresVectorStore(plain(dsn), dimension=2, table=name)
    await store.upsert([Record(f"{row}", [1.0, row]) for row in range(1_500)])
    assert await store.count() == 1_500
    with pytest.raises(StoreUnavailable, match="lacks the right"):
        await store.delete(["0"])
    await store.close()
    execute(dsn, f"ALTER TABLE {name} DROP COLUMN ts")
    with pytest.raises(StoreUnavailable, match=r"have its owner.*ADD COLUMN ts"):
        await opened(plain(dsn), table=name)


async def test_a_server_that_only_reads_can_be_searched(dsn: str, name: str) -> None:
    await used(PostgresVectorStore(dsn, dimension=2, table=name))

    reading = f"{dsn}&options=-c%20default_transaction_read_only%3Don"
    store = PostgresVectorStore(reading, dimension=2, table=name)
    assert len(await store.query_hybrid([1.0, 0.0], "apple")) == 1
    with pytest.raises(StoreUnavailable, match="only reads"):
        await store.upsert([Record("b", [1.0, 0.0])])
    await store.close()


async def test_with_an_older_pgvector_searches_are_exact(
    dsn: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "_ITERATIVE_SCAN", (99,))

    assert (await used(PostgresVectorStore(dsn, dimension=2, table=name))) == ["new"]
    assert len(found(dsn, f"SELECT 1 FROM pg_indexes WHERE tablename = '{name}'")) == 3


async def test_a_database_in_another_encoding_is_refused() -> None:
    dsn = postgres.fresh_url("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")

    with pytest.raises(StoreUnavailable, match="UTF8, not LATIN1"):
        await opened(dsn)


async def test_the_order_is_that_of_code_points_in_a_table_of_other_origin_too() -> None:
    dsn = postgres.fresh_url()
    execute(dsn, "CREATE EXTENSION vector;" + FOREIGN.format(name="foreign_one"))
    names = ["b", "B", "a", "a-b", "ab", "Z", "é", "10", "9", "_"]

    for table in ("foreign_one", "ours"):
        store = PostgresVectorStore(dsn, dimension=2, table=table)
        for name in names:
            await store.upsert([Record(one, [1.0, 0.0]) for one in names], namespace=name)
        assert [match.id for match in await store.query([1, 0], 20, namespace="a")] == sorted(names)
        listed = [name for name in await store.namespaces() if name]
        assert listed == sorted(names)
        assert await store.namespaces("a") == ["a", "a-b", "ab"]
        matches = await store.query([1, 0], 20, namespace="a", filter={"x": {"$lt": "b"}})
        assert matches == []
        await store.close()
