"""A record that is stored through a view says whose it is, and may claim nothing else."""

from typing import Any

import pytest

from lib.errors import InvalidMeta, TenantViolation
from lib.vector import InMemoryVectorStore, Record
from lib.vector.tenant import TenantVectorStore

from .tenant_kit import Bare, made, planted


async def test_a_record_is_stored_in_the_tenants_namespace_and_says_whose_it_is() -> None:
    store = InMemoryVectorStore(2)
    view = TenantVectorStore(store, "acme", namespace_prefix="app-")
    await view.upsert([*made("1", x=1), *made("2", tenant="acme"), *made("3", tenant=None)])

    assert (view.tenant, view.namespace) == ("acme", "app-acme")
    assert await store.namespaces() == ["app-acme"]
    stored = await store.get(["1", "2", "3"], namespace="app-acme")
    assert [record.meta for record in stored] == [
        {"x": 1, "tenant": "acme"},
        {"tenant": "acme"},
        {"tenant": "acme"},
    ]
    assert await view.get(["1", "2", "3"]) == stored


async def test_the_callers_record_is_left_as_it_is() -> None:
    record = Record("1", [1.0, 0.0], "", {"x": 1})
    await TenantVectorStore(InMemoryVectorStore(2), "a").upsert([record])

    assert record.meta == {"x": 1}


@pytest.mark.parametrize("claim", ["b", "", "A", "a ", 1, True, ["a"], {"a": "a"}])
async def test_a_record_that_claims_another_tenant_is_refused_before_any_request(
    claim: Any,
) -> None:
    store: Any = Bare()
    view = TenantVectorStore(store, "a")
    store.called = False

    with pytest.raises(TenantViolation, match="record 'forged' claims") as refusal:
        await view.upsert([*made("good"), *made("forged", tenant=claim)])
    assert (refusal.value.tenant, refusal.value.what) == (
        "a",
        "record 'forged' claims another tenant",
    )
    assert not store.called


class Alone(str):
    """A string that equals nothing but itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class TwoFaced(dict[str, Any]):
    """Metadata whose `get` must not be trusted: it differs from what iteration yields."""

    def get(self, *_: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    "meta",
    [
        {"tenant": "a", Alone("tenant"): "b"},
        {Alone("tenant"): "b", "tenant": "a"},
        {Alone("tenant"): "b"},
        TwoFaced(tenant="b"),
    ],
)
async def test_a_claim_under_a_key_that_only_looks_like_another_is_a_claim(
    meta: dict[str, Any],
) -> None:
    store = InMemoryVectorStore(2)
    view = TenantVectorStore(store, "a")

    with pytest.raises(TenantViolation, match="claims another tenant"):
        await view.upsert([Record("1", [1.0, 0.0], "", meta)])
    assert await store.namespaces() == []

    mine: dict[str, Any] = {Alone("tenant"): Alone("a"), Alone("x"): 1}
    await view.upsert([Record("1", [1.0, 0.0], "", mine)])
    assert (await store.get(["1"], namespace="a"))[0].meta == {"tenant": "a", "x": 1}


async def test_an_id_of_another_tenant_is_not_replaced() -> None:
    store = InMemoryVectorStore(2)
    view = TenantVectorStore(store, "a")
    await planted(store)
    before = await store.get(["b's", "no tenant's"], namespace="a")

    for name in ("b's", "no tenant's"):
        with pytest.raises(TenantViolation, match="an id in 'a' belongs to another tenant"):
            await view.upsert(made("good", name))
    assert await store.get(["b's", "no tenant's"], namespace="a") == before
    assert await view.count() == 0


@pytest.mark.parametrize(
    "batch",
    [
        [("1", [1.0])],
        [Record("1", [1.0, 0.0], "", None)],  # type: ignore[arg-type] - on purpose
        [Record("", [1.0])],
    ],
)
async def test_an_object_that_is_not_a_record_is_refused_before_any_request(batch: Any) -> None:
    store: Any = Bare()
    view = TenantVectorStore(store, "a")
    store.called = False

    with pytest.raises(InvalidMeta):
        await view.upsert(batch)
    assert not store.called
