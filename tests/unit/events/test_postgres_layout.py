"""The layouts of a PostgreSQL event store: made once, migrated, refused by an older release."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from lib._util.postgres import Connections
from lib.errors import (
    MigrationNeeded,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.events import PostgresEventStore
from lib.events.codec import encode_data, encode_time
from lib.events.runs import partition_of
from lib.events.store import LAYOUT_VERSION, tombstone_name
from lib.events.stores.postgres import layout
from lib.events.stores.postgres import reader as reading
from lib.events.stores.postgres.rows import run_name
from lib.events.stores.postgres.schema import place_of
from lib.testing.event_store.kit import AT, NOTE, all_events, begin, note, started
from servers import postgres

from .postgres_kit import opened

A, B = "a" * 64, "b" * 64


@pytest.fixture
def url() -> str:
    return postgres.url()


@pytest.fixture
def schema() -> str:
    return postgres.fresh_schema()


def execute(statement: str, *parameters: object) -> list[tuple[object, ...]]:
    return postgres.shared().execute(statement, *parameters)


async def migrate(url: str, schema: str, migrations: Sequence[layout.Migration]) -> None:
    place = place_of(url, schema)
    async with Connections(url, name="test").first() as connection:
        await layout.opened(connection, place, None, migrations)


def fill_version_1(schema: str) -> None:
    """Write what a release of layout 1 has written."""
    at = encode_time(AT)
    for number, run_id in enumerate(("one", "two", "three"), 1):
        home = partition_of(run_id, layout.DEFAULT_PARTITIONS)
        name = bytes.fromhex(tombstone_name(run_id))
        execute(
            f"INSERT INTO {schema}.lib_runs (name, part, run_id, root_id, algorithm, created_at, "
            "updated_at, head, ready) VALUES (%s, %s, %s, %s, 'react', %s, %s, 2, true)",
            *(name, home, run_id, run_id, at, at),
        )
        blob = {"$blob": A if number < 3 else "no digest", "size": 1, "type": "text/plain"}
        payloads = (started().data, {"text": "$blob", "file": [blob]})
        for seq, (kind, data) in enumerate(zip((started().kind, NOTE), payloads, strict=True), 1):
            execute(
                f"INSERT INTO {schema}.lib_events (part, pos, run, seq, kind, at, data) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                *(home, 2 * number + seq, number, seq, kind, at, encode_data(data)),
            )
        execute(f"UPDATE {schema}.lib_partitions SET head = 100")


@pytest.mark.parametrize("page", [1, 1_000])
async def test_a_store_of_layout_1_is_migrated_with_what_it_holds(
    url: str, schema: str, page: int
) -> None:
    await migrate(url, schema, layout.MIGRATIONS[:1])
    fill_version_1(schema)

    with pytest.raises(MigrationNeeded) as caught:
        await PostgresEventStore(url, schema=schema, read_only=True).setup()
    assert (caught.value.found, caught.value.supported) == (1, LAYOUT_VERSION)

    index_blobs = partial(layout.index_blobs, limit=page)
    await migrate(url, schema, [layout.MIGRATIONS[0], (2, index_blobs)])
    async with opened(url, schema) as store:
        assert await store.schema_version() == LAYOUT_VERSION
        assert [event.seq for event in await store.read("one")] == [1, 2]
        assert sorted(await store.blob_users(A, limit=9)) == ["one", "two"]
        assert await store.blob_users("no digest") == []
        assert await store.append("one", [note()], expected=2)
        assert await store.erase("two") is True
        assert await store.blob_users(A, limit=9) == ["one"]
        assert len(await all_events(store)) == 5


async def test_a_store_without_a_record_of_its_layout_counts_as_layout_1(
    url: str, schema: str
) -> None:
    await migrate(url, schema, layout.MIGRATIONS[:1])
    execute(f"DELETE FROM {schema}.lib_meta")

    with pytest.raises(MigrationNeeded):
        await PostgresEventStore(url, schema=schema, read_only=True).setup()
    async with opened(url, schema) as store:
        assert await store.schema_version() == LAYOUT_VERSION


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_store_of_a_newer_release_is_refused_and_left_alone(
    url: str, schema: str, read_only: bool
) -> None:
    await migrate(url, schema, layout.MIGRATIONS)
    execute(f"UPDATE {schema}.lib_meta SET value = '9'")

    with pytest.raises(SchemaTooNew) as caught:
        await PostgresEventStore(url, schema=schema, read_only=read_only).setup()
    assert (caught.value.found, caught.value.supported) == (9, LAYOUT_VERSION)


async def test_a_writer_stops_when_a_newer_release_migrates_its_store(
    url: str, schema: str
) -> None:
    async with opened(url, schema) as store:
        log = await begin(store, "run")
        change = [f"UPDATE {schema}.lib_meta SET value = '9'"]
        change.append(f"UPDATE {schema}.lib_partitions SET layout = 9")
        for statement in change:
            await asyncio.to_thread(execute, statement)
        with pytest.raises(SchemaTooNew):
            await store.append("run", [note()], expected=1)
        with pytest.raises(SchemaTooNew):
            await store.schema_version()
        assert await store.read("run") == log


async def test_a_partition_that_is_gone_is_damage(url: str, schema: str) -> None:
    async with opened(url, schema, partitions=1) as store:
        await asyncio.to_thread(execute, f"DELETE FROM {schema}.lib_partitions")
        with pytest.raises(StoreCorrupt, match="lacks"):
            await begin(store, "run")


@pytest.mark.parametrize("value", ["", "two"])
async def test_a_layout_version_that_is_no_number_is_damage(
    url: str, schema: str, value: str
) -> None:
    await migrate(url, schema, layout.MIGRATIONS)
    execute(f"UPDATE {schema}.lib_meta SET value = %s", value)

    with pytest.raises(StoreCorrupt, match="layout version"):
        await PostgresEventStore(url, schema=schema).setup()


async def test_read_only_makes_nothing_and_writes_nothing(url: str, schema: str) -> None:
    missing = PostgresEventStore(url, schema=schema, read_only=True)
    with pytest.raises(StoreReadOnly, match="holds no event store"):
        await missing.setup()
    found = await asyncio.to_thread(execute, "SELECT to_regnamespace(%s)::text", schema)
    assert found == [(None,)]

    async with opened(url, schema) as writer, opened(url, schema, read_only=True) as reader:
        log = await begin(writer, "run")
        assert await reader.read("run") == log
        for call in (
            reader.append("run", [note()], expected=1),
            reader.claim("me", ttl_s=1),
            reader.set_mark("a", "b"),
            reader.erase("run"),
        ):
            with pytest.raises(StoreReadOnly, match="read_only=True"):
                await call


async def test_a_read_only_store_could_not_write_even_if_it_tried(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url, schema) as writer, opened(url, schema, read_only=True) as reader:
        monkeypatch.setattr(reading, "_MARK", "DELETE FROM {lib_marks} RETURNING name")
        with pytest.raises(StoreReadOnly, match="only reads"):
            await reader.mark("name")
        await writer.mark("name")


async def test_two_schemas_of_a_database_are_two_stores(url: str, schema: str) -> None:
    stores = [PostgresEventStore(url, schema=name) for name in (schema, f"{schema}_b")]
    for number, store in enumerate(stores):
        await store.setup()
        await begin(store, "run", notes=number)
    assert [len(await store.read("run")) for store in stores] == [1, 2]
    for store in stores:
        await store.close()


async def test_the_number_of_partitions_is_fixed_when_a_store_is_made(
    url: str, schema: str
) -> None:
    store = PostgresEventStore(url, schema=schema, partitions=3)
    await store.setup()
    await store.close()
    reopened = PostgresEventStore(url, schema=schema)
    await reopened.setup()
    assert reopened.partitions == 3
    await reopened.close()
    for read_only in (False, True):
        other = PostgresEventStore(url, schema=schema, partitions=4, read_only=read_only)
        with pytest.raises(ValueError, match=r"3 partitions.*not 4"):
            await other.setup()


async def test_stores_that_are_made_at_once_are_made_once(url: str, schema: str) -> None:
    stores = [PostgresEventStore(url, schema=schema) for _ in range(4)]
    await asyncio.gather(*(store.setup() for store in stores))
    await begin(stores[0], "run")
    assert await stores[3].read("run")
    for store in stores:
        await store.close()


async def test_a_migration_that_fails_leaves_the_layout_before_it(url: str, schema: str) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("on purpose")

    with pytest.raises(StoreError, match="on purpose"):
        await migrate(url, schema, (layout.MIGRATIONS[0], (2, fail)))
    assert execute(f"SELECT value FROM {schema}.lib_meta") == [("1",)]
    await migrate(url, schema, layout.MIGRATIONS)
    assert execute(f"SELECT value FROM {schema}.lib_meta") == [("2",)]


async def test_a_database_that_keeps_no_unicode_is_refused() -> None:
    latin = postgres.fresh_url("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(StoreError, match="UTF8"):
        await PostgresEventStore(latin).setup()


async def test_a_role_that_may_only_read_is_refused_at_setup(url: str, schema: str) -> None:
    await migrate(url, schema, layout.MIGRATIONS)
    role = f"reader_{schema}"
    execute(f"CREATE ROLE {role} LOGIN")
    execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    as_role = url.replace("//postgres:@", f"//{role}:@")

    assert as_role != url
    with pytest.raises(StoreReadOnly, match="lacks the right"):
        await PostgresEventStore(as_role, schema=schema).setup()
    async with opened(as_role, schema=schema, read_only=True) as reader:
        assert await reader.runs() == []


async def test_times_of_erasure_come_from_the_clock_and_nothing_of_the_run_stays(
    url: str, schema: str
) -> None:
    async with opened(url, schema) as store:
        start = replace(started(root="secret", tenant="secret", user="secret"))
        await store.append("secret", [start, note("secret", user="secret")], expected=0)
        await store.set_mark("run/secret/x", "secret")
        await store.erase("secret")
    for table in ("lib_runs", "lib_events", "lib_marks", "lib_blob_uses"):
        rows = execute(f"SELECT t::text FROM {schema}.{table} AS t")
        assert "secret" not in str(rows)


async def test_listing_runs_does_not_walk_over_tombstones(url: str, schema: str) -> None:
    async with opened(url, schema) as store:
        await begin(store, "kept")
    runs = f'"{schema}".lib_runs'
    execute = postgres.shared().execute
    execute(
        f"INSERT INTO {runs} (name, part, run_id, root_id, algorithm, created_at, updated_at, "
        "head, outcome, ready) SELECT sha256(n::text::bytea), 0, NULL, '', '', 0, 1, 5, '', "
        "false FROM generate_series(1, 5000) n"
    )
    execute(f"ANALYZE {runs}")
    plan = execute(f"EXPLAIN SELECT * FROM {runs} WHERE run_id IS NOT NULL ORDER BY id LIMIT 9")

    assert "lib_runs_kept" in str(plan)


async def test_a_page_of_a_log_is_read_without_later_events(url: str, schema: str) -> None:
    async with opened(url, schema) as store:
        await begin(store, "long")
    events = f'"{schema}".lib_events'
    execute(
        f"INSERT INTO {events} (part, pos, run, seq, kind, at, data) SELECT part, pos + n, run, "
        f"seq + n, kind, at, data FROM {events}, generate_series(1, 5000) n"
    )
    statement = place_of(url, schema).put(reading._READ).as_string()  # pyright: ignore[reportPrivateUsage] - its plan is the point
    for name, value in {
        "name": f"'\\x{run_name('long').hex()}'",
        "after": "10",
        "upto": "19",
    }.items():
        statement = statement.replace(f"%({name})s", value)
    for command in ("SELECT 1 FROM", "ANALYZE"):  # before the server has looked at it, and after
        execute(f"{command} {events}")
        plan = str(execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}"))
        assert "rows=9" in plan
        assert not re.search("rows=[0-9]{2}", plan)


@pytest.mark.parametrize(
    ("dsn", "database"),
    [
        ("postgresql://ada:secret@db.example/runs", "db.example/runs"),
        ("postgresql://ada:secret@db.example:5432/runs", "db.example/runs"),
        ("postgresql://ada:secret@db.example:6543/runs", "db.example:6543/runs"),
        ("host=db.example port=6543", "db.example:6543/"),
        ("postgresql:///runs", "/runs"),
    ],
)
def test_a_store_is_named_by_host_and_port_and_never_by_user_or_password(
    dsn: str, database: str
) -> None:
    name = place_of(dsn, "agents").name

    assert name == f"PostgresEventStore({database!r}, schema='agents')"


async def test_racing_processes_give_an_id_only_to_an_empty_store(url: str, schema: str) -> None:
    async def ids(count: int) -> set[str]:
        stores = [PostgresEventStore(url, schema=schema) for _ in range(count)]
        await asyncio.gather(*(store.setup() for store in stores))
        for store in stores:
            await store.close()
        return {store.store_id for store in stores}

    await migrate(url, schema, layout.MIGRATIONS[:1])
    fill_version_1(schema)
    assert (await ids(1)) == {""}
    execute(f"DELETE FROM {schema}.lib_runs")
    made = await ids(4)
    assert len(made) == 1
    assert "" not in made
    assert (await ids(1)) == made
