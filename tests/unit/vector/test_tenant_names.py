"""The names of tenants, prefixes and siblings, and that none leads to another tenant."""

from typing import Any

import pytest

from lib.errors import TenantViolation
from lib.vector import InMemoryVectorStore
from lib.vector.tenant import RESERVED, TenantVectorStore

from .tenant_kit import made


@pytest.mark.parametrize(
    "tenant", ["", "a:b", "/", "a#", None, 1, b"a", "a\0", "\ud800", "x" * 513]
)
def test_what_is_no_tenant_is_refused(tenant: Any) -> None:
    with pytest.raises(ValueError, match=r"tenant|namespace"):
        TenantVectorStore(InMemoryVectorStore(2), tenant)


@pytest.mark.parametrize("prefix", ["app:", "a/b", "#", None, 1, "x" * 512])
def test_what_is_no_prefix_is_refused(prefix: Any) -> None:
    with pytest.raises(ValueError, match=r"prefix|namespace"):
        TenantVectorStore(InMemoryVectorStore(2), "a", namespace_prefix=prefix)


@pytest.mark.parametrize(
    "suffix", ["", "b", "b:", "-", " :", None, 1, (":",), ":\0", ":" + "x" * 511]
)
def test_a_suffix_that_could_lead_to_another_tenant_is_refused(suffix: Any) -> None:
    with pytest.raises(ValueError, match=r"suffix|namespace"):
        TenantVectorStore(InMemoryVectorStore(2), "a").sibling(suffix)


async def test_siblings_are_apart_and_behind_the_same_walls() -> None:
    store = InMemoryVectorStore(2)
    view = TenantVectorStore(store, "a", namespace_prefix="p-")
    notes = view.sibling("/notes")
    old = notes.sibling("#old")
    await TenantVectorStore(store, "ab", namespace_prefix="p-").sibling(":c").upsert(made("1"))
    for number, one in enumerate((view, notes, old)):
        await one.upsert(made("1", number=number))

    assert [one.namespace for one in (view, notes, old)] == [
        "p-a",
        "p-a/notes",
        "p-a/notes#old",
    ]
    assert [(await one.get(["1"]))[0].meta["number"] for one in (view, notes, old)] == [0, 1, 2]
    for one in (view, notes, old):
        assert await one.namespaces() == ["p-a", "p-a/notes", "p-a/notes#old"]
        assert await one.namespaces("p-a/") == ["p-a/notes", "p-a/notes#old"]
    assert await view.namespaces("p-ab") == []
    with pytest.raises(TenantViolation):
        await notes.count(namespace="p-a")
    with pytest.raises(TenantViolation):
        await old.upsert(made("2", tenant="ab"))
    message = "'p-a/notes' was requested, which has a view of its own"
    with pytest.raises(TenantViolation, match=message):
        await view.get(["1"], namespace="p-a/notes")
    assert await view.sibling("/notes").count(namespace="p-a/notes") == 1


@pytest.mark.parametrize("suffix", ["", "/notes", "#nothing"])
async def test_erase_removes_the_namespace_and_all_siblings_of_one_tenant_only(suffix: str) -> None:
    store = InMemoryVectorStore(2)
    view = TenantVectorStore(store, "a")
    others = [TenantVectorStore(store, name) for name in ("ab", "A", "á")]
    for one in (view, view.sibling("/notes"), view.sibling(":x:y"), *others):
        await one.upsert(made("1", "2"))

    erased = view.sibling(suffix) if suffix else view
    await erased.erase()
    await erased.erase()

    assert await store.namespaces() == sorted(["ab", "A", "á"])
    assert [await one.count() for one in others] == [2, 2, 2]


@pytest.mark.parametrize("mark", RESERVED)
def test_no_tenant_and_suffix_make_the_namespace_of_another_tenant(mark: str) -> None:
    store = InMemoryVectorStore(2)
    view = TenantVectorStore(store, "a").sibling(f"{mark}b")

    assert view.namespace == f"a{mark}b"
    with pytest.raises(ValueError, match="holds none of"):
        TenantVectorStore(store, f"a{mark}b")
