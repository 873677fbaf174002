"""A tenant's view of an event store: what is its own, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from lib.errors import Conflict, RunErased, RunNotFound, StoreClosed, StoreError, TenantViolation
from lib.events import EventStore, MemoryEventStore, RunQuery
from lib.events.store import END, run_mark
from lib.events.tenant import TenantEventStore, tenant_mark
from lib.testing.event_store.kit import attached, begin, ended, note, started


async def opened() -> tuple[MemoryEventStore, TenantEventStore, TenantEventStore]:
    store = MemoryEventStore()
    acme, globex = TenantEventStore(store, "acme"), TenantEventStore(store, "globex")
    await acme.setup()
    return store, acme, globex


async def test_a_run_started_through_a_view_belongs_to_its_tenant() -> None:
    store, acme, globex = await opened()
    await begin(acme, "one", notes=2)
    await begin(acme, "two", tenant="acme")
    await acme.append("one", [replace(note(), tenant="acme")], expected=None)

    assert {event.tenant for event in await store.read("one")} == {"acme"}
    assert await acme.runs() == await store.runs()
    assert await globex.runs() == await globex.runs(RunQuery(tenant="acme")) == []
    for event in (started(tenant="globex"), replace(note(), tenant="globex")):
        with pytest.raises(TenantViolation) as caught:
            await acme.append("one", [event], expected=None)
        assert caught.value.tenant == "acme"
    assert (acme.tenant, acme.partitions, acme.wakeups) == ("acme", 1, store.wakeups)
    assert await acme.schema_version() == await store.schema_version()


async def test_a_start_under_the_id_of_a_foreign_run_is_refused() -> None:
    store, acme, globex = await opened()
    await begin(globex, "taken")

    with pytest.raises(TenantViolation) as caught:
        await begin(acme, "taken")
    assert isinstance(caught.value, StoreError)
    await globex.erase("taken")
    with pytest.raises(RunErased):
        await begin(acme, "taken")
    assert await store.runs() == []


async def test_a_foreign_run_behaves_like_a_missing_one() -> None:
    _, acme, globex = await opened()
    await begin(globex, "foreign", notes=3)
    answers: list[list[Any]] = []
    for run_id in ("foreign", "missing"):
        results: list[Any] = []
        for expected, event in ((None, note()), (2, note()), (0, note()), (4, ended())):
            with pytest.raises((StoreError, ValueError)) as caught:
                await acme.append(run_id, [event], expected=expected)
            results.append(repr(caught.value).replace(run_id, "…"))
        with pytest.raises(RunNotFound):
            await acme.runs(RunQuery(after=run_id))
        with pytest.raises(RunNotFound):
            await begin(acme, "child", parent={"run_id": run_id, "key": "k"}, root=run_id)
        with pytest.raises(RunNotFound):
            await begin(acme, "child", root=run_id)
        results += [await acme.read(run_id), await acme.run(run_id), await acme.erase(run_id)]
        results += [await acme.claim("w", ttl_s=1, run_id=run_id), await acme.tombstone(run_id)]
        answers.append(results)

    assert answers[0] == answers[1]
    assert len(await globex.read("foreign")) == 4


async def test_children_of_own_runs_are_started_like_any_other() -> None:
    _, acme, _ = await opened()
    await begin(acme, "root")
    await begin(acme, "child", parent={"run_id": "root", "key": "k"}, root="root")

    assert [info.run_id for info in await acme.runs(RunQuery(root_id="root"))] == [
        "root",
        "child",
    ]


async def test_leases_are_taken_of_own_runs_only() -> None:
    _, acme, globex = await opened()
    for number in range(3):
        await begin(acme, f"a{number}")
        await begin(globex, f"g{number}")
    await begin(acme, "closed", end=True)
    [first] = await acme.claim("w", ttl_s=30)
    await acme.release(first, idle_at=1)
    assert await acme.claim("w", ttl_s=30, run_id="a1", skip=["a1"]) == []
    [other] = await acme.claim("w", ttl_s=30, limit=1, skip=["a1", "g0"])
    await acme.release(other)
    leases = await acme.claim("w", ttl_s=30, limit=2, algorithms=["react"])

    assert other.run_id == "a2"
    assert [lease.run_id for lease in leases] == ["a1", "a2"]
    assert await acme.claim("w", ttl_s=30, limit=9) == []
    assert [one.run_id for one in await acme.claim("w", ttl_s=30, run_id="a0")] == ["a0"]
    assert await acme.renew(leases[0], ttl_s=60)
    assert await globex.renew(leases[0], ttl_s=60) is None
    await globex.release(leases[0])
    assert await acme.renew(leases[0], ttl_s=60)
    await acme.release(leases[0])
    assert await acme.renew(leases[0], ttl_s=60) is None


async def test_a_feed_skips_the_events_of_other_tenants() -> None:
    _, acme, globex = await opened()
    for number in range(10):
        await begin(globex, f"g{number}")
        await begin(acme, f"a{number}", notes=1)
    pages: list[list[str]] = []
    page = await acme.feed(limit=4)
    while page.events:
        pages.append([f"{event.run_id}.{event.seq}" for event in page.events])
        page = await acme.feed(page.cursor, limit=4)

    assert [len(names) for names in pages] == [4, 4, 4, 4, 4]
    assert [name for names in pages for name in names] == [
        f"a{number}.{seq}" for number in range(10) for seq in (1, 2)
    ]
    assert (await acme.feed(END)).events == []


async def test_marks_of_views_are_separate() -> None:
    store, acme, globex = await opened()
    await begin(acme, "one")
    mark = run_mark("one", "seen")
    await store.set_mark(mark, "store")
    await acme.set_mark(mark, "acme")
    assert await globex.compare_and_set_mark(mark, expected=None, value="globex")

    assert [await each.mark(mark) for each in (store, acme, globex)] == [
        "store",
        "acme",
        "globex",
    ]
    assert await acme.marks("run/") == {mark: "acme"}
    assert sorted(await store.marks("")) == [
        mark,
        tenant_mark("acme", mark),
        tenant_mark("globex", mark),
    ]
    assert await acme.erase("one") is True
    assert await store.marks("") == {tenant_mark("globex", mark): "globex"}


class SmallPages(TenantEventStore):
    _users_at_once = 2


async def test_blob_users_are_only_runs_of_the_tenant() -> None:
    store = MemoryEventStore()
    await store.setup()
    acme, globex = SmallPages(store, "acme"), SmallPages(store, "globex")
    for number in range(9):
        await begin(globex, f"g{number}", input=attached("d" * 64))
    await begin(acme, "a", input=attached("d" * 64))

    assert await acme.blob_users("d" * 64) == ["a"]
    assert await acme.blob_users("d" * 64, limit=5) == ["a"]
    assert await globex.blob_users("d" * 64, limit=2) == ["g0", "g1"]
    assert await acme.blob_users("e" * 64) == []


async def test_a_closed_view_does_nothing_and_leaves_the_store_open() -> None:
    store, acme, _ = await opened()
    await acme.close()
    await acme.close()
    for call in (acme.runs(), acme.tombstone("x"), acme.mark("x"), begin(acme, "x")):
        with pytest.raises(StoreClosed):
            await call
    assert await store.runs() == []
    await acme.setup()
    assert await acme.runs() == []
    with pytest.raises(Conflict):
        await acme.append("x", [note()], expected=3)


def test_a_tenant_has_an_id() -> None:
    with pytest.raises(ValueError, match="got an empty text"):
        TenantEventStore(MemoryEventStore(), "")
    store: EventStore = TenantEventStore(MemoryEventStore(), "a/b:c")
    assert isinstance(store, TenantEventStore)
    assert tenant_mark("a/b") != tenant_mark("a", "b")
