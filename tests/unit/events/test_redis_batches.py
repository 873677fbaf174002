"""Appends to Redis in large batches, and by several stores at the same time."""

import asyncio

import pytest

from lib.errors import Conflict, InvalidEvent
from lib.events import NewEvent, RunQuery
from lib.events import kinds as k
from lib.events.stores.redis.operations import Limits
from lib.events.stores.redis.store import RedisEventStore
from lib.testing.event_store.kit import AT, NOTE, begin, ended, note, started
from servers import redis

from .redis_kit import everything, opened


@pytest.fixture
def url() -> str:
    return redis.fresh_url()


async def test_a_batch_beyond_what_lua_can_unpack_is_stored_read_followed_and_erased(
    url: str,
) -> None:
    async with opened(url, partitions=1) as store:
        batch = [started(), *(note(str(number)) for number in range(20_000))]
        stored = await store.append("run", batch, expected=0)

        assert await store.read("run") == stored
        assert (await store.feed(limit=30_000)).events == stored
        assert (await store.feed(limit=0)).events == []
        assert await store.erase("run")
        assert await store.feed() == await store.feed("$")


async def test_a_page_of_megabytes_comes_in_several_answers(url: str) -> None:
    async with opened(url, partitions=1) as store:
        events = await begin(store, "run")
        for head in range(1, 6):
            events += await store.append("run", [note("x" * 2_000_000)], expected=head)

        assert (await store.feed(limit=10)).events == events
        assert await store.read("run") == events


class Small(RedisEventStore):
    _limits = Limits(operations=2, runs=2, cached_runs=3)


async def test_many_runs_are_listed_page_by_page(url: str) -> None:
    async with opened(url, kind=Small) as store:
        names = [f"run-{number}" for number in range(6)]
        for number, name in enumerate(names):
            await begin(store, name, end=number % 3 == 0)

        assert [info.run_id for info in await store.runs()] == names
        after = RunQuery(after="run-1", limit=3)
        assert [info.run_id for info in await store.runs(after)] == names[2:5]
        closed = await store.runs(RunQuery(status="closed", limit=2))
        assert [info.run_id for info in closed] == ["run-0", "run-3"]


async def test_a_refused_append_of_a_batch_leaves_the_rest(url: str) -> None:
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


async def test_a_batch_too_large_for_one_script_takes_several(url: str) -> None:
    async with opened(url, kind=Small, partitions=1) as store:
        await asyncio.gather(*(begin(store, f"run-{number}", 2) for number in range(9)))
        again = [store.append(f"run-{n}", [note()], expected=3) for n in range(9)]
        await asyncio.gather(*again)

        assert len(await everything(store)) == 36


async def test_signals_of_two_stores_to_one_run_are_all_kept(url: str) -> None:
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


async def test_the_cached_state_of_a_run_may_be_outdated(url: str) -> None:
    async with opened(url) as one, opened(url) as two:
        await begin(one, "run")
        await two.append("run", [note()], expected=1)
        await one.append("run", [note()], expected=2)
        await two.append("run", [ended()], expected=3)
        with pytest.raises(ValueError, match="only signals"):
            await one.append("run", [NewEvent(k.RUN_RESUMED, {}, AT)], expected=4)
        await one.append("run", [note()], expected=None)

        assert len(await two.read("run")) == 5


async def test_a_run_exists_once_whatever_root_its_start_names(url: str) -> None:
    async with opened(url) as one, opened(url) as two:
        starts = [begin(store, "run", root=f"root-{n}") for n, store in enumerate([one, two] * 4)]
        outcomes = await asyncio.gather(*starts, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(list) == 1
        assert len(await everything(one)) == 1
        with pytest.raises(Conflict):
            await begin(one, "run", root="1")
        with pytest.raises(InvalidEvent):
            await begin(one, "run", root=1)
