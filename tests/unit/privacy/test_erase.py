"""Erasure of runs and tenants, through crashes and concurrent writers."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from lib.errors import RunErased, RunNotFound, RunOpen, StoreError, TenantViolation
from lib.events import EventStore, MemoryBlobStore, MemoryEventStore, RunQuery
from lib.events.store import run_mark
from lib.events.tenant import TenantEventStore
from lib.privacy.erase import Erased, erase_run, erase_tenant
from lib.testing.event_store.kit import attached, begin, ended
from lib.vector import InMemoryVectorStore, Record
from lib.vector.tenant import TenantVectorStore


async def opened() -> MemoryEventStore:
    store = MemoryEventStore()
    await store.setup()
    return store


async def family(
    store: EventStore, root: str = "root", *, tenant: str | None = None, end: bool = True
) -> list[str]:
    """Start a root, two children of it and two grandchildren; return their ids, root first."""
    names = [root, f"{root}/a", f"{root}/b", f"{root}/a/a", f"{root}/a/b"]
    for name in names:
        parent = name.rpartition("/")[0]
        more = {"parent": {"run_id": parent, "key": name}, "root": root} if parent else {}
        await begin(store, name, notes=1, end=end, tenant=tenant, **more)
    return names


async def ids(store: EventStore) -> list[str]:
    return [info.run_id for info in await store.runs()]


async def referring(store: EventStore, run_id: str, *digests: str, **more: Any) -> None:
    """Start and end a run that refers to blobs."""
    await begin(store, run_id, end=True, input=attached(*digests), **more)


async def test_a_run_is_erased_with_its_descendants_and_nothing_else() -> None:
    store = await opened()
    names, others = await family(store), await family(store, "other")

    assert await erase_run(store, "root", dry_run=True) == Erased(runs=5, events=15)
    assert await erase_run(store, "root/a") == Erased(
        runs=3, events=9, parent_id="root", root_id="root"
    )
    assert await ids(store) == ["root", "root/b", *others]
    assert await erase_run(store, "root") == Erased(runs=2, events=6)
    assert await ids(store) == others
    assert all([await store.tombstone(name) for name in names])
    assert await erase_run(store, "root") == await erase_run(store, "root/a/b") == Erased()
    with pytest.raises(RunNotFound):
        await erase_run(store, "never")


async def test_a_run_that_is_its_own_ancestor_is_erased_once() -> None:
    store = await opened()
    for one, other in (("a", "b"), ("b", "a")):
        parent = {"run_id": other, "key": "k"}
        await begin(store, one, end=True, parent=parent, root="nowhere")

    assert await erase_run(store, "a") == Erased(runs=2, events=4)


async def test_open_runs_are_refused_before_anything_is_erased_unless_forced() -> None:
    store = await opened()
    names = await family(store, tenant="acme", end=False)
    for name in names[:-1]:
        await store.append(name, [ended()], expected=2)

    with pytest.raises(RunOpen) as caught:
        await erase_run(store, "root")
    assert caught.value.run_id == "root/a/b"
    with pytest.raises(RunOpen):
        await erase_tenant(store, "acme")
    assert await ids(store) == names
    assert (await erase_run(store, "root", force=True)).runs == 5
    await begin(store, "open", tenant="acme")
    assert (await erase_tenant(store, "acme", force=True)).runs == 1
    with pytest.raises(RunErased):
        await store.append("open", [ended()], expected=1)


async def test_a_blob_goes_with_the_last_run_that_refers_to_it() -> None:
    store, blobs = await opened(), MemoryBlobStore()
    own, shared = await blobs.put(b"own"), await blobs.put(b"shared")
    await referring(store, "one", own, shared)
    await referring(store, "two", shared)

    assert (await erase_run(store, "one", blobs=blobs, dry_run=True)).blobs == 2
    assert (await erase_run(store, "one", blobs=blobs)).blobs == 1
    assert (await blobs.has(own), await blobs.has(shared)) == (False, True)
    assert (await erase_run(store, "two", blobs=blobs)).blobs == 1
    assert await blobs.stored() == []


async def test_a_blob_that_a_whole_tree_shares_goes_with_the_tree() -> None:
    store, blobs = await opened(), MemoryBlobStore()
    shared = await blobs.put(b"shared")
    await referring(store, "root", shared)
    parent: dict[str, Any] = {"parent": {"run_id": "root", "key": "k"}, "root": "root"}
    await referring(store, "child", shared, **parent)

    assert (await erase_run(store, "root", blobs=blobs, dry_run=True)).blobs == 1
    assert await erase_run(store, "root", blobs=blobs) == Erased(runs=2, events=4, blobs=1)


async def test_marks_of_runs_go_with_them_those_of_views_too() -> None:
    store = await opened()
    await family(store, tenant="acme")
    view = TenantEventStore(store, "acme")
    await store.set_mark(run_mark("root/a", "dead/group/1"), "letter")
    await view.set_mark(run_mark("root/a", "seen"), "yes")
    await view.set_mark("cursor", "7")
    await erase_run(store, "root")

    assert await store.marks("run/") == {}
    assert await view.marks("") == {"cursor": "7"}
    await erase_tenant(store, "acme")
    assert await store.marks("") == {}


async def test_a_tenant_is_erased_with_its_own_vectors_only() -> None:
    store = await opened()
    await family(store, "one", tenant="acme")
    await family(store, "two", tenant="acme")
    others = await family(store, "three", tenant="globex")
    shared = InMemoryVectorStore(2)
    views = [TenantVectorStore(shared, name) for name in ("acme", "globex")]
    for view in views:
        await view.upsert([Record("r", [1.0, 0.0], "text")])
        await view.sibling("/s").upsert([Record("r", [1.0, 0.0], "text")])
    would = await erase_tenant(store, "acme", vectors=views[:1], dry_run=True)
    done = await erase_tenant(store, "acme", vectors=views[:1])

    assert would == done == Erased(runs=10, events=30, vectors=2)
    assert await ids(store) == others
    assert [await view.count_all() for view in views] == [0, 2]
    assert await erase_tenant(store, "acme", vectors=views[:1]) == Erased()
    with pytest.raises(TenantViolation):
        await erase_tenant(store, "acme", vectors=views)
    with pytest.raises(ValueError, match="empty text"):
        await erase_tenant(store, "")


async def test_a_child_of_another_tenant_does_not_go_with_the_tenant() -> None:
    store = await opened()
    await begin(store, "root", end=True, tenant="acme")
    parent: dict[str, Any] = {"parent": {"run_id": "root", "key": "k"}, "root": "root"}
    await begin(store, "child", end=True, tenant="globex", **parent)

    assert (await erase_tenant(store, "acme")).runs == 1
    assert await ids(store) == ["child"]


class Interrupted(Exception):
    pass


class Failing:
    """A store of which the n-th call fails, before or after it has had its effect."""

    def __init__(self, inner: Any, after: int, log: list[str]) -> None:
        self._inner, self._left, self._calls = inner, after, log

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Awaitable[Any]] = getattr(self._inner, name)
        if not callable(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._calls.append(name)
            if len(self._calls) * 2 - 1 == self._left:
                raise Interrupted
            result = await method(*args, **kwargs)
            if len(self._calls) * 2 == self._left:
                raise Interrupted
            return result

        return call


async def filled() -> tuple[MemoryEventStore, MemoryBlobStore, TenantVectorStore]:
    store, blobs = await opened(), MemoryBlobStore()
    own, shared = await blobs.put(b"own"), await blobs.put(b"shared")
    await family(store, tenant="acme")
    await referring(store, "one", own, shared, tenant="acme")
    await referring(store, "two", shared, tenant="acme")
    await TenantEventStore(store, "acme").set_mark(run_mark("one", "seen"), "yes")
    view = TenantVectorStore(InMemoryVectorStore(2), "acme")
    await view.upsert([Record("r", [1.0, 0.0], "text")])
    return store, blobs, view


async def test_an_erasure_that_is_killed_at_any_step_is_completed_by_the_same_call() -> None:
    steps = 0
    while True:
        steps += 1
        store, blobs, view = await filled()
        calls: list[str] = []
        failing = [cast("Any", Failing(one, steps, calls)) for one in (store, blobs, view)]
        failing[2].tenant = "acme"
        try:
            await erase_tenant(failing[0], "acme", blobs=failing[1], vectors=failing[2:])
        except Interrupted:
            await erase_tenant(store, "acme", blobs=blobs, vectors=[view])
            left = (await ids(store), await store.marks(""), await blobs.stored())
            assert (*left, await view.count_all()) == ([], {}, [], 0), (steps, calls[-1])
        else:
            break

    assert steps > 60


class StartsMeanwhile(MemoryEventStore):
    """An erasure of a run finds that another one has begun."""

    starts: int = 3

    async def erase(self, run_id: str) -> bool:
        if self.starts:
            self.starts -= 1
            parent: dict[str, Any] = {"parent": {"run_id": run_id, "key": "k"}, "root": "root"}
            await begin(self, f"late-{self.starts}", end=True, tenant="acme", **parent)
        return await super().erase(run_id)


async def test_runs_that_start_meanwhile_are_erased_too() -> None:
    for name in ("tree", "branch", "tenant"):
        store = StartsMeanwhile()
        await store.setup()
        await family(store, tenant="acme")
        if name == "tree":
            await erase_run(store, "root")
        elif name == "branch":
            await erase_run(store, "root/a")
            assert await ids(store) == ["root", "root/b"]
            continue
        else:
            await erase_tenant(store, "acme")
        assert await ids(store) == []


async def test_a_run_of_the_tenant_that_starts_while_vectors_are_erased_is_caught() -> None:
    store = await opened()

    class Slow(TenantVectorStore):
        async def erase(self) -> None:
            await super().erase()
            if not await store.tombstone("late"):
                await begin(store, "late", end=True, tenant="acme")

    view = Slow(InMemoryVectorStore(2), "acme")
    assert (await erase_tenant(store, "acme", vectors=[view])).runs == 1
    assert await store.runs(RunQuery(tenant="acme")) == []


def test_the_error_of_an_open_run_is_one_of_stores() -> None:
    assert issubclass(RunOpen, StoreError)
