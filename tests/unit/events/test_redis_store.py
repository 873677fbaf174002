"""The keys of a Redis event store, and other clients that change them."""

import pytest

from lib.errors import MigrationNeeded, SchemaTooNew, StoreCorrupt, StoreReadOnly
from lib.events import RunQuery
from lib.events.store import run_mark
from lib.testing.event_store.kit import attached, begin, note
from servers import redis

from .redis_kit import commands, everything, opened

HOSTILE = [
    "{",
    "}",
    "{lib}",
    "a:b",
    "*",
    "?",
    "[a]",
    "\n",
    "\r\n$3\r\n",
    "\x00",
    "lib}:meta",
    "ü",
    " ",
]
SHA = "a" * 64


@pytest.fixture
def url() -> str:
    return redis.fresh_url()


async def keys(url: str) -> set[bytes]:
    return set((await commands(url, ("KEYS", "*")))[0])


async def test_names_may_hold_any_text(url: str) -> None:
    async with opened(url) as store, opened(url, prefix="lib:x") as neighbour:
        await begin(neighbour, "run", tenant="t")
        before = await keys(url)
        for name in HOSTILE:
            parent = {"run_id": name, "key": "k"}
            await begin(store, name, tenant=name, user=name, algorithm=name)
            await begin(store, f"{name}/child", tenant=name, root=name, parent=parent)
            await store.set_mark(name, name)
            await store.set_mark(run_mark(name, name), name)
        for name in HOSTILE:
            found = await store.run(name)
            assert found is not None
            assert (found.run_id, found.tenant, found.algorithm) == (name, name, name)
            for query, ids in (
                (RunQuery(tenant=name), [name, f"{name}/child"]),
                (RunQuery(root_id=name), [name, f"{name}/child"]),
                (RunQuery(parent_id=name), [f"{name}/child"]),
            ):
                assert [info.run_id for info in await store.runs(query)] == ids
            assert await store.mark(name) == name
            assert list(await store.marks(run_mark(name))) == [run_mark(name, name)]
            [lease] = await store.claim(name, ttl_s=9, algorithms=[name])
            assert (lease.run_id, lease.owner) == (name, name)
        marks = [run_mark(name, name) for name in HOSTILE]
        assert list(await store.marks("")) == sorted([*HOSTILE, *marks])
        assert len(await everything(store)) == 2 * len(HOSTILE)

        for name in HOSTILE:
            await store.set_mark(name, name)
            assert await store.compare_and_set_mark(name, expected=name, value=None)
            assert await store.erase(name)
            assert await store.erase(f"{name}/child")
        left = await keys(url) - before
        feeds = {b"{lib}:feed:%d" % p for p in range(8)}
        assert left - feeds == {b"{lib}:algorithms", b"{lib}:tombstones"}
        assert len(await everything(neighbour)) == 1


async def test_invalid_text_is_never_found(url: str) -> None:
    async with opened(url) as store:
        await begin(store, "run")
        odd = "\ud800"

        assert await store.run(odd) is None
        assert await store.read(odd) == []
        assert await store.mark(odd) is None
        assert await store.marks(odd) == {}
        assert await store.runs(RunQuery(tenant=odd)) == []
        assert await store.claim("me", ttl_s=1, algorithms=[odd]) == []
        assert await store.blob_users(odd) == []
        assert await store.erase(odd) is False


async def test_a_store_whose_keys_were_deleted_fails(url: str) -> None:
    async with opened(url) as store:
        await begin(store, "run")
        await commands(url, ("FLUSHDB",))
        with pytest.raises(StoreCorrupt, match="deleted its keys"):
            await store.append("run", [note()], expected=1)


@pytest.mark.parametrize(("version", "error"), [("3", SchemaTooNew), ("1", MigrationNeeded)])
async def test_a_store_migrated_meanwhile_by_another_release_is_not_written(
    url: str, version: str, error: type[Exception]
) -> None:
    async with opened(url) as store:
        await begin(store, "run")
        await commands(url, ("HSET", "{lib}:meta", "version", version))
        with pytest.raises(error, match=f"layout {version}"):
            await store.set_mark("name", "value")
        assert await store.mark("name") is None


async def test_a_read_only_store_reads_and_refuses_to_write(url: str) -> None:
    async with opened(url, partitions=3) as writer, opened(url, read_only=True) as store:
        log = await begin(writer, "run")

        assert store.partitions == 3
        assert await everything(store) == log
        assert await store.schema_version() == 2
        with store.wakeups.listen("run"):
            pass
        for write in (
            store.append("run", [note()], expected=1),
            store.claim("me", ttl_s=1),
            store.set_mark("a", "b"),
            store.erase("run"),
        ):
            with pytest.raises(StoreReadOnly):
                await write


async def test_a_damaged_event_raises_an_error(url: str) -> None:
    async with opened(url) as store:
        for number, entry in enumerate(("no json", "[1]", '[1,"k",null,null,[]]'), 1):
            await begin(store, f"run-{number}")
            await commands(url, ("LSET", f"{{lib}}:log:{number}", 0, entry))
            with pytest.raises(StoreCorrupt, match="event 1 of run"):
                await store.read(f"run-{number}")


async def test_a_reader_that_is_ahead_of_a_server_which_lost_its_last_events_goes_on(
    url: str,
) -> None:
    async with opened(url, partitions=1) as store:
        await begin(store, "run")
        ahead = await store.feed("9")
        more = await begin(store, "new")

        assert ahead.events == []
        assert (await store.feed(ahead.cursor)).events == more


async def test_runs_that_refer_to_a_blob_are_listed_oldest_first(url: str) -> None:
    async with opened(url) as store:
        for name in ("c", "a", "b"):
            await begin(store, name, input=attached(SHA, SHA))

        assert await store.blob_users(SHA, limit=2) == ["c", "a"]
        assert await store.blob_users(SHA, limit=0) == []


async def test_foreign_data_under_a_key_of_the_store_is_not_overwritten(
    url: str,
) -> None:
    async with opened(url) as store:
        await store.compare_and_set_mark("a", expected=None, value="b")
        await commands(url, ("SET", "{lib}:marks", "x"))
        with pytest.raises(StoreCorrupt, match="holds other data"):
            await store.set_mark("a", "c")
