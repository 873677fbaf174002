"""The arguments, the names and the batches of a PostgreSQL event store."""

import asyncio
import importlib
import traceback
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import (
    Conflict,
    MissingDriver,
    RunNotFound,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.events import NewEvent, PostgresEventStore
from lib.events.stores.postgres.batch import Append, Batch
from lib.events.stores.postgres.rows import MAX_NAME_BYTES, text, untext
from lib.events.stores.postgres.schema import typed_errors
from lib.events.stores.postgres.writer import Limits
from lib.testing.event_store.kit import AT, NOTE, all_events, begin, note, started
from servers import postgres

from .postgres_kit import opened

names = st.text(st.sampled_from("\x00\x01\x02a\x7fä"), max_size=6)


@pytest.fixture
def schema() -> str:
    return postgres.fresh_schema()


@pytest.fixture
def url() -> str:
    return postgres.url()


@given(names, names)
def test_text_without_nul_is_as_unique_and_in_the_same_order(one: str, two: str) -> None:
    assert "\x00" not in text(one)
    assert untext(text(one)) == one
    assert (text(one) < text(two)) is (one < two)
    assert text(one).startswith(text(two)) is one.startswith(two)


@pytest.mark.parametrize(
    "schema", ["", "Upper", "a-b", 'a"; DROP TABLE x; --', "a.b", "ä", "1a", "a" * 64, "a\n"]
)
def test_a_schema_whose_name_is_not_plain_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        PostgresEventStore("postgresql:///", schema=schema)


@pytest.mark.parametrize("partitions", [0, -1, 1_025])
def test_a_number_of_partitions_out_of_range_is_refused(partitions: int) -> None:
    with pytest.raises(ValueError, match="partitions"):
        PostgresEventStore("postgresql:///", partitions=partitions)


@pytest.mark.parametrize(("partitions", "pool_size"), [(None, 2), (8, 9), (1, 2), (20, 21)])
def test_a_pool_too_small_for_the_partitions_is_refused_with_the_rule(
    partitions: int | None, pool_size: int
) -> None:
    with pytest.raises(ValueError, match=r"partitions \+ 2"):
        PostgresEventStore("postgresql:///", partitions=partitions, pool_size=pool_size)
    PostgresEventStore("postgresql:///", partitions=partitions, pool_size=pool_size + 1)
    PostgresEventStore("postgresql:///", partitions=partitions, pool_size=1, read_only=True)


async def test_a_pool_too_small_for_the_partitions_that_a_store_has_is_refused_at_setup(
    url: str, schema: str
) -> None:
    store = PostgresEventStore(url, schema=schema, partitions=9)
    await store.setup()
    await store.close()
    with pytest.raises(ValueError, match="at least 11"):
        await PostgresEventStore(url, schema=schema, pool_size=10).setup()


async def test_a_pool_is_compared_with_the_actual_and_not_the_default_number_of_partitions(
    url: str, schema: str
) -> None:
    for partitions in (1, None):  # the second finds it
        store = PostgresEventStore(url, schema=schema, partitions=partitions, pool_size=3)
        await store.setup()
        assert store.partitions == 1
        await store.close()


async def test_a_pool_too_small_for_a_new_store_is_refused_before_the_store_is_made(
    url: str, schema: str
) -> None:
    with pytest.raises(ValueError, match="8 partitions"):
        await PostgresEventStore(url, schema=schema, pool_size=9).setup()
    with pytest.raises(StoreReadOnly, match="holds no event store"):
        await PostgresEventStore(url, schema=schema, read_only=True).setup()
    store = PostgresEventStore(url, schema=schema, partitions=2, pool_size=4)
    await store.setup()
    await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:pa55word@127.0.0.1:1/db?connect_timeout=2",
        "host=127.0.0.1 port=1 user=user password=pa55word connect_timeout=2",
        "postgresql://user:pa55word@host/db?nonsense=1",
        "host=a nonsense pa55word",
    ],
)
async def test_no_error_and_no_name_has_the_password(url: str) -> None:
    with pytest.raises((StoreError, ValueError)) as caught:
        await PostgresEventStore(url).setup()
    lines = traceback.format_exception(caught.value, chain=True)
    assert "pa55word" not in "".join(lines)
    assert "pa55word" not in repr(caught.value)


async def test_names_may_hold_nul(url: str, schema: str) -> None:
    name = "a\x00b\x01c"

    async with opened(url, schema) as store:
        start = started(tenant=name, user=name, root=name, parent={"run_id": name, "key": "k"})
        log = await store.append(name, [start, NewEvent(f"x{name}", {name: name}, AT)], expected=0)
        assert await store.read(name) == log == await all_events(store)
        [info] = await store.runs()
        assert (info.run_id, info.root_id, info.parent_id, info.tenant) == (name,) * 4
        [lease] = await store.claim(name, ttl_s=1, algorithms=["react"])
        assert (lease.owner, lease.run_id) == (name, name)
        await store.set_mark(name, name)
        assert await store.marks("a\x00") == {name: name}


async def test_names_too_long_for_an_index_are_refused(url: str, schema: str) -> None:
    fits, long = "ä" * (MAX_NAME_BYTES // 2), "ä" * (MAX_NAME_BYTES // 2) + "a"

    async with opened(url, schema) as store:
        await store.append("run", [started(tenant=fits, root=fits)], expected=0)
        await store.set_mark(fits, long)
        calls = [
            store.append(long, [note()], expected=1),
            store.append("a", [started(tenant=long)], expected=0),
            store.append("a", [started(root=long)], expected=0),
            store.append("a", [started(parent={"run_id": long})], expected=0),
            store.set_mark(long, ""),
            store.compare_and_set_mark(long, expected=None, value=""),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="2600 bytes"):
                await call
        assert await store.mark(fits) == long
        assert [info.run_id for info in await store.runs()] == ["run"]


def test_an_append_that_breaks_fails_alone() -> None:
    beyond = datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))
    appends = [
        Append.of(0, "a", [started()], 0),
        Append.of(0, "b", [started(at=beyond)], 0),
        Append.of(0, "a", [note()], 1),
    ]
    batch = Batch.of(appends, {}, 1)

    first, broken, second = batch.outcomes
    assert [event.seq for event in first + second] == [1, 2]
    assert isinstance(broken, OverflowError)
    assert (list(batch.runs), batch.sizes) == (["a"], {0: 2})


async def test_one_refused_append_of_a_batch_does_not_touch_the_others(
    url: str, schema: str
) -> None:
    async with opened(url, schema, partitions=1) as store:
        await begin(store, "old", notes=2)
        outcomes: list[Any] = await asyncio.gather(
            begin(store, "a"),
            store.append("old", [note()], expected=1),
            store.append("missing", [note()], expected=None),
            store.append("old", [note()], expected=3),
            store.append("a", [started()], expected=1),
            store.append("a", [note()], expected=1),
            begin(store, "old"),
            return_exceptions=True,
        )
        kinds: list[type] = [type(outcome) for outcome in outcomes]
        assert kinds == [list, Conflict, RunNotFound, list, ValueError, list, Conflict]
        assert len(await store.read("old")) == 4
        assert len(await store.read("a")) == 2


class SmallBatches(PostgresEventStore):
    _limits = Limits(appends=3, chars=2_000, runs=4)


class SmallCaches(PostgresEventStore):
    _limits = Limits(runs=1, partitions=1)


async def test_a_batch_too_large_for_one_statement_takes_several(url: str, schema: str) -> None:
    async with opened(url, schema, kind=SmallBatches) as store:
        runs = [f"run-{number}" for number in range(40)]
        await asyncio.gather(*(begin(store, name) for name in runs))
        await asyncio.gather(
            *(store.append(name, [note("x" * 900)], expected=1) for name in runs),
            store.append("run-0", [note("x" * 9_000)], expected=None),
        )
        assert sum([len(await store.read(name)) for name in runs]) == 81


async def test_children_are_found_in_the_partition_of_their_root_by_a_process_that_never_saw_them(
    url: str, schema: str
) -> None:
    async def page(store: PostgresEventStore, partition: int) -> list[Any]:
        return (await store.feed(partition=partition)).events

    async with opened(url, schema) as one, opened(url, schema) as two:
        children = [f"child-{number}" for number in range(12)]
        for name in children:
            await begin(one, name, root="root", parent={"run_id": "root", "key": name})
        for name in children:
            await two.append(name, [note()], expected=None)
            with pytest.raises(Conflict):
                await begin(two, name)
            await one.append(name, [note()], expected=2)
        homes = {event.run_id: part for part in range(8) for event in await page(two, part)}
        assert len(set(homes.values())) == 1
        assert {len(await two.read(name)) for name in children} == {3}


async def test_a_start_that_was_refused_may_come_back_with_another_root(
    url: str, schema: str
) -> None:
    async with opened(url, schema) as store:
        for number in range(8):
            with pytest.raises(ValueError, match="begins with"):
                await store.append("run", [started(root="other"), started()], expected=0)
            with pytest.raises(RunNotFound):
                await store.append("run", [note()], expected=None)
            await store.append(f"run-{number}", [started(root=f"root-{number}")], expected=0)
        await store.append("run", [started(root="third")], expected=0)


async def test_a_long_log_and_a_long_list_are_read_whole(url: str, schema: str) -> None:
    async with opened(url, schema) as store:
        await store.append("run", [started(), *[note("x")] * 1_200], expected=0)
        await asyncio.gather(*(begin(store, f"run-{number}") for number in range(600)))
        assert [event.seq for event in await store.read("run")] == list(range(1, 1_202))
        assert len(await store.runs()) == 601


async def test_a_damaged_payload_raises_and_is_not_skipped(url: str, schema: str) -> None:
    async with opened(url, schema) as store:
        await begin(store, "run")
        damage = f"UPDATE {schema}.lib_events SET data = 'nonsense'"
        await asyncio.to_thread(postgres.shared().execute, damage)
        with pytest.raises(StoreCorrupt, match="event 1 of run 'run'"):
            await store.read("run")


async def test_an_append_that_waits_when_the_store_is_closed_is_committed(
    url: str, schema: str
) -> None:
    store = PostgresEventStore(url, schema=schema)
    await store.setup()
    tasks = [asyncio.create_task(begin(store, f"run-{n}")) for n in range(50)]
    await asyncio.sleep(0)  # noqa: TID251 - lets them begin
    await store.close()
    assert len(await asyncio.gather(*tasks)) == 50
    with pytest.raises(StoreClosed):
        await begin(store, "late")


async def test_an_append_that_is_cancelled_while_it_waits_is_not_carried_out(
    url: str, schema: str
) -> None:
    async with opened(url, schema, partitions=1) as store:
        await begin(store, "run")
        tasks = [
            asyncio.create_task(store.append("run", [NewEvent(NOTE, {"n": n}, AT)], expected=None))
            for n in range(4)
        ]
        await asyncio.sleep(0)  # noqa: TID251 - lets them begin
        tasks[1].cancel()
        tasks[2].cancel()
        await asyncio.wait(tasks)
        assert [event.data["n"] for event in (await store.read("run"))[1:]] == [0, 3]


async def test_the_cache_of_runs_is_bounded_and_refilled(url: str, schema: str) -> None:
    async with opened(url, schema, kind=SmallCaches) as store:
        for number in range(4):
            await begin(store, f"run-{number}")
        for number in range(4):
            await store.append(f"run-{number}", [note()], expected=None)
            assert [event.seq for event in await store.read(f"run-{number}")] == [1, 2]


@pytest.mark.parametrize(
    ("state", "kind"),
    [("25006", StoreReadOnly), ("XX001", StoreCorrupt), ("42P01", StoreError), ("", StoreError)],
)
def test_errors_of_the_server_become_store_errors(state: str, kind: type[StoreError]) -> None:
    refusal = psycopg.Error()
    refusal.sqlstate = state
    with pytest.raises(StoreError) as caught, typed_errors("the store"):
        raise refusal
    assert type(caught.value) is kind


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", nothing)
    with pytest.raises(MissingDriver, match="pip install 'psycopg"):
        importlib.reload(importlib.import_module("lib.events.stores.postgres"))
