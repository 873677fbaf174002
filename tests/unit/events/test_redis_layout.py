"""Opening Redis event stores of older and newer layouts, and ones that others change."""

import asyncio

import pytest

from lib.errors import MigrationNeeded, SchemaTooNew, StoreCorrupt, StoreReadOnly
from lib.events import RedisEventStore, RunQuery
from lib.events.stores.redis import layout
from lib.testing.event_store.kit import attached, begin, note, started
from servers import redis

from .redis_kit import admin

A, B = "a" * 64, "b" * 64
KEY = "{lib}"


@pytest.fixture
def url() -> str:
    return redis.fresh_url()


async def layout_1(url: str) -> None:
    """Make a place as layout 1 was, with runs in it."""
    store = RedisEventStore(url)
    await store.setup()
    await begin(store, "one", tenant="t", input=attached(A, B))
    parent = {"run_id": "one", "key": "child/1"}
    await begin(store, "child", tenant="t", root="one", parent=parent, input=attached(A))
    await begin(store, "none", 3)
    await store.set_mark("name", "value")
    await store.close()
    async with admin(url) as server:
        for pattern in ("blob*", "parent:*", "tombstones"):
            for key in await server.call("KEYS", f"{KEY}:{pattern}"):
                await server.call("DEL", key)
        await server.call("HSET", f"{KEY}:meta", "version", 1)


async def test_a_place_of_layout_1_gets_its_blob_users_and_the_index_by_parent(url: str) -> None:
    await layout_1(url)
    store = RedisEventStore(url)
    await store.setup()

    assert await store.schema_version() == 2
    assert await store.blob_users(A, limit=9) == ["one", "child"]
    assert await store.blob_users(B, limit=9) == ["one"]
    [child] = await store.runs(RunQuery(parent_id="one"))
    assert child.run_id == "child"
    assert await store.mark("name") == "value"
    assert len(await store.append("none", [note()], expected=4)) == 1
    await store.erase("one")
    assert await store.blob_users(A, limit=9) == ["child"]
    await store.close()


async def test_racing_processes_make_and_migrate_a_store_once(url: str) -> None:
    for _ in range(2):
        stores = [RedisEventStore(url) for _ in range(4)]
        await asyncio.gather(*(store.setup() for store in stores))
        for store in stores:
            await store.close()
        async with admin(url) as server:
            await server.call("FLUSHDB")
        await layout_1(url)
    last = RedisEventStore(url)
    await last.setup()
    assert await last.blob_users(A, limit=9) == ["one", "child"]
    await last.close()


async def test_a_migration_planned_on_outdated_state_changes_nothing(url: str) -> None:
    await layout_1(url)
    async with admin(url) as server:
        state = await server.run(layout.STATE + "return state", KEY)
        await server.call("RPUSH", f"{KEY}:feed:0", "9:9")
        args = (state, "1", "=x", 1, A)
        assert await server.run(layout.SECOND, KEY, *args) == 0
        assert await server.call("HGET", f"{KEY}:meta", "version") == b"1"
        assert await server.call("EXISTS", f"{KEY}:blob:{A}") == 0
        await server.call("RPOP", f"{KEY}:feed:0")
        assert await server.run(layout.SECOND, KEY, *args) == 1
        state = await server.run(layout.STATE + "return state", KEY)
        assert await server.run(layout.SECOND, KEY, state) == 0


async def test_a_run_that_is_erased_while_a_place_is_migrated_is_passed_over(url: str) -> None:
    await layout_1(url)
    async with admin(url) as server:
        await server.call("ZADD", f"{KEY}:all", 77, 77)
    store = RedisEventStore(url)
    await store.setup()

    assert await store.blob_users(A, limit=9) == ["one", "child"]
    await store.close()


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_place_of_a_newer_release_is_refused_and_left_as_it_is(
    url: str, read_only: bool
) -> None:
    async with admin(url) as server:
        await server.call("HSET", f"{KEY}:meta", "version", 3, "partitions", 8)
        with pytest.raises(SchemaTooNew) as caught:
            await RedisEventStore(url, read_only=read_only).setup()
        assert (caught.value.found, caught.value.supported) == (3, 2)
        assert await server.call("KEYS", "*") == [b"{lib}:meta"]


async def test_a_place_of_layout_1_that_is_only_read_needs_a_migration(url: str) -> None:
    await layout_1(url)
    with pytest.raises(MigrationNeeded) as caught:
        await RedisEventStore(url, read_only=True).setup()
    assert (caught.value.found, caught.value.supported) == (1, 2)
    async with admin(url) as server:
        assert await server.call("HGET", f"{KEY}:meta", "version") == b"1"


async def test_a_read_only_store_on_an_empty_place_makes_nothing(url: str) -> None:
    with pytest.raises(StoreReadOnly, match="holds no event store"):
        await RedisEventStore(url, read_only=True).setup()
    async with admin(url) as server:
        assert await server.call("KEYS", "*") == []


@pytest.mark.parametrize("record", [("version", "two"), ("version", "2"), ("partitions", "8")])
async def test_an_unreadable_record_of_the_layout_is_damage(
    url: str, record: tuple[str, str]
) -> None:
    async with admin(url) as server:
        await server.call("HSET", f"{KEY}:meta", *record)
    with pytest.raises(StoreCorrupt):
        await RedisEventStore(url).setup()


async def test_too_few_connections_for_the_partitions_that_a_store_has_are_refused_at_setup(
    url: str,
) -> None:
    store = RedisEventStore(url, partitions=9)
    await store.setup()
    await store.close()
    with pytest.raises(ValueError, match="9 partitions need at least 11"):
        await RedisEventStore(url, max_connections=10).setup()


async def test_connections_are_held_against_the_partitions_that_a_store_has(url: str) -> None:
    for partitions in (1, None):  # the second finds it
        store = RedisEventStore(url, partitions=partitions, max_connections=3)
        await store.setup()
        assert store.partitions == 1
        await store.close()


async def test_too_few_connections_for_a_new_store_are_refused_before_it_is_made(url: str) -> None:
    with pytest.raises(ValueError, match="8 partitions need at least 10"):
        await RedisEventStore(url, max_connections=9).setup()
    with pytest.raises(StoreReadOnly, match="holds no event store"):
        await RedisEventStore(url, read_only=True).setup()


async def test_one_connection_is_enough_for_reading(url: str) -> None:
    store = RedisEventStore(url, partitions=4)
    await store.setup()
    await store.append("r1", [started()], expected=0)
    await store.close()
    reading = RedisEventStore(url, max_connections=1, read_only=True)
    await reading.setup()
    assert len(await reading.read("r1")) == 1
    await reading.close()


async def test_the_number_of_partitions_never_changes(url: str) -> None:
    store = RedisEventStore(url, partitions=4)
    await store.setup()
    await store.close()
    with pytest.raises(ValueError, match="has 4 partitions, which never change: not 5"):
        await RedisEventStore(url, partitions=5).setup()
    for read_only in (True, False):
        other = RedisEventStore(url, read_only=read_only)
        await other.setup()
        assert other.partitions == 4
        await other.close()


async def test_a_place_that_goes_while_it_is_open_has_no_version(url: str) -> None:
    store = RedisEventStore(url)
    await store.setup()
    async with admin(url) as server:
        await server.call("FLUSHDB")
    with pytest.raises(StoreCorrupt, match="is gone"):
        await store.schema_version()
    await store.close()
