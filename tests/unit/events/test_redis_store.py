"""What is the Redis event store's own: its keys, its batches, what it refuses."""

import asyncio
import sys
from datetime import timedelta

import pytest

from lib.errors import (
    Conflict,
    MigrationNeeded,
    MissingDriver,
    SchemaTooNew,
    StoreCorrupt,
    StoreReadOnly,
)
from lib.events import NewEvent, RedisEventStore, RunQuery
from lib.events import kinds as k
from lib.events.store import run_mark
from lib.events.stores.redis import lanes, operations, reader
from lib.events.stores.redis.watch import Heads
from lib.events.wakeups import Wakeups
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import AT, NOTE, attached, begin, ended, note, started
from lib.testing.servers import redis

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


def test_a_pool_too_small_for_the_partitions_is_refused_at_construction_with_the_rule() -> None:
    with pytest.raises(ValueError, match="max_connections is 9, and 8 partitions need at least 10"):
        RedisEventStore("redis://host", max_connections=9)
    RedisEventStore("redis://host", max_connections=10)
    RedisEventStore("redis://host", partitions=40)


@pytest.mark.parametrize("prefix", ["", "{a}", "a b", "a\n", "a*", "ä"])
def test_a_prefix_that_could_be_taken_for_more_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        RedisEventStore("redis://host", prefix=prefix)


class Told(Wakeups):
    """Remembers of which partitions it was told that others have written."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: list[int | None] = []

    def foreign(self, partition: int | None = None) -> None:
        self.partitions.append(partition)


def test_what_this_process_has_written_is_not_taken_for_news_whenever_it_is_seen() -> None:
    told = Told()
    heads = Heads([4, 4], told)
    heads.grown(0, 4, 6)
    heads.grown(0, 6, 7)
    assert [heads.seen(look) for look in ([4, 4], [6, 4], [7, 4])] == [False] * 3
    assert heads.seen([9, 4]) is True  # its own, if this look came before the answer
    heads.grown(0, 7, 9)
    assert told.partitions == [0]

    heads.grown(1, 5, 6)
    assert heads.seen([9, 6]) is False
    assert told.partitions == [0, 1]


def test_a_store_has_a_partition() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        RedisEventStore("redis://host", partitions=0)


@pytest.mark.parametrize(
    "url",
    [
        "http://:geheim@host",
        "redis://:geheim/1@host",
        "redis://:geheim@host/0?color=red",
        "geheim",
        "redis://:geheim℀@host",
        "redis://:12#geheim@host",
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"redis://|%40") as caught:
        RedisEventStore(url)

    assert "geheim" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_names_are_only_names_whatever_is_in_them(url: str) -> None:
    async def main() -> None:
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
            assert list(await store.marks("")) == sorted([*HOSTILE, *map(_hostile_mark, HOSTILE)])
            assert len(await everything(store)) == 2 * len(HOSTILE)

            for name in HOSTILE:
                await store.set_mark(name, name)
                assert await store.swap_mark(name, expected=name, value=None)
                assert await store.erase(name)
                assert await store.erase(f"{name}/child")
            left = await keys(url) - before
            feeds = {b"{lib}:feed:%d" % p for p in range(8)}
            assert left - feeds == {b"{lib}:algorithms", b"{lib}:tombstones"}
            assert len(await everything(neighbour)) == 1

    run(main())


def _hostile_mark(name: str) -> str:
    return run_mark(name, name)


def test_text_that_is_none_is_found_nowhere(url: str) -> None:
    async def main() -> None:
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

    run(main())


def test_a_batch_beyond_what_lua_can_unpack_is_stored_read_followed_and_erased(url: str) -> None:
    async def main() -> None:
        async with opened(url, partitions=1) as store:
            batch = [started(), *(note(str(number)) for number in range(20_000))]
            stored = await store.append("run", batch, expected=0)

            assert await store.read("run") == stored
            assert (await store.feed(limit=30_000)).events == stored
            assert (await store.feed(limit=0)).events == []
            assert await store.erase("run")
            assert await store.feed() == await store.feed("$")

    run(main())


def test_a_page_of_megabytes_comes_in_several_answers(url: str) -> None:
    async def main() -> None:
        async with opened(url, partitions=1) as store:
            events = await begin(store, "run")
            for head in range(1, 6):
                events += await store.append("run", [note("x" * 2_000_000)], expected=head)

            assert (await store.feed(limit=10)).events == events
            assert await store.read("run") == events

    run(main())


def test_many_runs_are_listed_page_by_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PAGE", 2)

    async def main() -> None:
        async with opened(url) as store:
            names = [f"run-{number}" for number in range(6)]
            for number, name in enumerate(names):
                await begin(store, name, end=number % 3 == 0)

            assert [info.run_id for info in await store.runs()] == names
            after = RunQuery(after="run-1", limit=3)
            assert [info.run_id for info in await store.runs(after)] == names[2:5]
            closed = await store.runs(RunQuery(status="closed", limit=2))
            assert [info.run_id for info in closed] == ["run-0", "run-3"]

    run(main())


def test_what_is_refused_in_a_batch_leaves_the_rest_of_it(url: str) -> None:
    async def main() -> None:
        async with opened(url, partitions=1) as store:
            await begin(store, "a")
            outcomes = await asyncio.gather(
                store.append("a", [note("1")], expected=1),
                store.append("a", [note("2")], expected=1),
                store.append("a", [note("3")], expected=None),
                begin(store, "b"),
                store.append("a", [ended(), note("4")], expected=3),
                store.append("a", [NewEvent(k.RUN_RESUMED, {}, AT)], expected=5),
                begin(store, "b"),
                return_exceptions=True,
            )

            kinds = [type(outcome) for outcome in outcomes]
            assert kinds == [list, Conflict, list, list, list, ValueError, Conflict]
            texts = [event.data.get("text") for event in await store.read("a")]
            assert texts == [None, "1", "3", None, "4"]

    run(main())


def test_more_than_fits_into_a_script_goes_in_several(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_MAX_OPERATIONS", 2)
    monkeypatch.setattr(operations, "_KEPT_RUNS", 3)

    async def main() -> None:
        async with opened(url, partitions=1) as store:
            await asyncio.gather(*(begin(store, f"run-{number}", 2) for number in range(9)))
            again = [store.append(f"run-{n}", [note()], expected=3) for n in range(9)]
            await asyncio.gather(*again)

            assert len(await everything(store)) == 36

    run(main())


def test_signals_of_two_stores_to_one_run_are_all_kept(url: str) -> None:
    async def main() -> None:
        async with opened(url) as one, opened(url) as two:
            await begin(one, "run")
            signals = [
                store.append("run", [NewEvent(NOTE, {"text": f"{number}"}, AT)], expected=None)
                for number in range(40)
                for store in (one, two)
            ]
            await asyncio.gather(*signals)
            log = await one.read("run")

            assert [event.seq for event in log] == list(range(1, 82))
            assert await everything(two) == log

    run(main())


def test_what_a_store_knows_of_a_run_may_be_outdated(url: str) -> None:
    async def main() -> None:
        async with opened(url) as one, opened(url) as two:
            await begin(one, "run")
            await two.append("run", [note()], expected=1)
            await one.append("run", [note()], expected=2)
            await two.append("run", [ended()], expected=3)
            with pytest.raises(ValueError, match="only signals"):
                await one.append("run", [NewEvent(k.RUN_RESUMED, {}, AT)], expected=4)
            await one.append("run", [note()], expected=None)

            assert len(await two.read("run")) == 5

    run(main())


def test_a_run_exists_once_whatever_root_its_start_names(url: str) -> None:
    async def main() -> None:
        async with opened(url) as one, opened(url) as two:
            starts = [
                begin(store, "run", root=f"root-{n}") for n, store in enumerate([one, two] * 4)
            ]
            outcomes = await asyncio.gather(*starts, return_exceptions=True)

            assert [type(outcome) for outcome in outcomes].count(list) == 1
            assert len(await everything(one)) == 1
            with pytest.raises(Conflict):
                await begin(one, "run", root=1)

    run(main())


def test_a_clock_that_is_behind_does_not_take_what_another_holds(url: str) -> None:
    async def main() -> None:
        ahead, behind = ManualClock(), ManualClock()
        ahead.advance(100)
        async with opened(url, clock=ahead) as one, opened(url, clock=behind) as two:
            for name in ("a", "b", "c"):
                await begin(one, name)
            [first] = await two.claim("two", ttl_s=50)
            [second] = await one.claim("one", ttl_s=50)  # also finds that a's lease is over
            assert (first.run_id, second.run_id, second.takeover) == ("a", "a", True)
            held = await two.renew(first, ttl_s=50)
            [third] = await two.claim("two", ttl_s=120)
            ahead.advance(60)
            fourth = await one.claim("one", ttl_s=50, limit=0)
            fifth = await two.claim("two", ttl_s=50, limit=5)

            assert held is None
            assert (third.run_id, fourth) == ("b", [])
            assert [lease.run_id for lease in fifth] == ["c"]
            assert await two.claim("two", ttl_s=50, run_id="a", limit=0) == []
            assert await one.claim("one", ttl_s=50, run_id="a", algorithms=["other"]) == []
            [last] = await one.claim("one", ttl_s=50, run_id="a", algorithms=["react"])
            assert last.epoch == 3

    run(main())


def test_a_lease_found_over_by_a_clock_ahead_is_still_held_for_one_behind(url: str) -> None:
    async def main() -> None:
        ahead, behind = ManualClock(), ManualClock()
        ahead.advance(100)
        async with opened(url, clock=ahead) as one, opened(url, clock=behind) as two:
            await begin(one, "a")
            await begin(one, "b")
            await two.claim("two", ttl_s=50, run_id="b")
            [taken] = await one.claim("one", ttl_s=50)

            assert taken.run_id == "a"
            assert await two.claim("two", ttl_s=50, limit=5) == []
            [over] = await one.claim("one", ttl_s=50)
            assert (over.run_id, over.takeover) == ("b", True)

    run(main())


def test_a_store_whose_keys_were_deleted_says_so(url: str) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await begin(store, "run")
            await commands(url, ("FLUSHDB",))
            with pytest.raises(StoreCorrupt, match="deleted its keys"):
                await store.append("run", [note()], expected=1)

    run(main())


@pytest.mark.parametrize(("version", "error"), [("3", SchemaTooNew), ("1", MigrationNeeded)])
def test_a_place_that_another_release_has_changed_meanwhile_is_not_written(
    url: str, version: str, error: type[Exception]
) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await begin(store, "run")
            await commands(url, ("HSET", "{lib}:meta", "version", version))
            with pytest.raises(error, match=f"layout {version}"):
                await store.set_mark("name", "value")
            assert await store.mark("name") is None

    run(main())


def test_a_store_that_is_only_read_refuses_to_write_and_reads(url: str) -> None:
    async def main() -> None:
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

    run(main())


def test_a_damaged_event_is_told_of(url: str) -> None:
    async def main() -> None:
        async with opened(url) as store:
            for number, entry in enumerate(("no json", "[1]", '[1,"k",null,null,[]]'), 1):
                await begin(store, f"run-{number}")
                await commands(url, ("LSET", f"{{lib}}:log:{number}", 0, entry))
                with pytest.raises(StoreCorrupt, match="event 1 of run"):
                    await store.read(f"run-{number}")

    run(main())


def test_a_reader_that_is_ahead_of_a_server_which_lost_its_last_events_goes_on(url: str) -> None:
    async def main() -> None:
        async with opened(url, partitions=1) as store:
            await begin(store, "run")
            ahead = await store.feed("9")
            more = await begin(store, "new")

            assert ahead.events == []
            assert (await store.feed(ahead.cursor)).events == more

    run(main())


def test_other_processes_events_wake_within_a_second_and_ones_own_at_once(url: str) -> None:
    async def main() -> None:
        async with opened(url) as one, opened(url) as two:
            with two.wakeups.listen() as listener:
                for number in range(3):
                    await begin(one, f"run-{number}")
                    assert await listener.wait(5)
                assert not await listener.wait(0.2)
                await begin(two, "own")
                assert await listener.wait(0)

    run(main())


def test_what_others_have_written_is_noticed_with_an_append_of_ones_own(url: str) -> None:
    async def main() -> None:
        still = ManualClock()
        async with opened(url, partitions=1) as one, opened(url, partitions=1, clock=still) as two:
            with two.wakeups.listen("other") as listener:
                await begin(one, "other")
                assert not await listener.wait(0)
                await begin(two, "own")
                assert await listener.wait(0)

    run(main())


def test_runs_that_refer_to_a_blob_are_told_oldest_first(url: str) -> None:
    async def main() -> None:
        async with opened(url) as store:
            for name in ("c", "a", "b"):
                await begin(store, name, input=attached(SHA, SHA))

            assert await store.blob_users(SHA, limit=2) == ["c", "a"]
            assert await store.blob_users(SHA, limit=0) == []

    run(main())


def test_leases_and_times_far_away_are_kept_exactly(url: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with opened(url, clock=clock) as store:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=9e9)
            found = await store.run("run")

            assert found is not None
            assert found.lease_until == lease.until == clock.now() + timedelta(seconds=9e9)
            assert await store.claim("you", ttl_s=1) == []

    run(main())


def test_what_somebody_else_keeps_under_a_key_of_the_store_is_not_overwritten(url: str) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await store.swap_mark("a", expected=None, value="b")
            await commands(url, ("SET", "{lib}:marks", "x"))
            with pytest.raises(StoreCorrupt, match="holds other data"):
                await store.set_mark("a", "c")

    run(main())


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDriver, match=r"pip install 'lib-agents\[redis\]'"):
        RedisEventStore("redis://host")
