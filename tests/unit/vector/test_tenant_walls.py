"""A tenant sees and changes its own records only, whatever it asks for."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from lib.errors import InvalidFilter, TenantViolation
from lib.testing.vector_store import StoreKind
from lib.testing.vector_store.tenants import check_tenants
from lib.vector import EVERYTHING, F, InMemoryVectorStore, Match, Record, SQLiteVectorStore
from lib.vector.contract import FilterLike
from lib.vector.tenant import TenantVectorStore

from .tenant_kit import Bare, made, planted


class Deaf(InMemoryVectorStore):
    """A store that does not listen to filters."""

    async def query(
        self, vector: Any, k: int = 5, *, filter: FilterLike = None, **options: Any
    ) -> list[Match]:
        return await super().query(vector, k, **options)

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        return await super().count(namespace=namespace)


class OneRoom(InMemoryVectorStore):
    """A store that puts everything into one namespace."""

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        await super().upsert(records, namespace=None)


@pytest.mark.parametrize("named", ["b", "", "ab", "a:x", "A", 1])
async def test_another_namespace_is_refused_before_any_request(named: Any) -> None:
    store: Any = Bare()
    view = TenantVectorStore(store, "a")
    store.called = False

    for call in (
        lambda: view.upsert(made("1"), namespace=named),
        lambda: view.insert(made("1"), namespace=named),
        lambda: view.update_meta({"x": 1}, ids=["1"], namespace=named),
        lambda: view.query([1.0, 0.0], namespace=named),
        lambda: view.query_many([[1.0, 0.0]], namespace=named),
        lambda: view.facet("tenant", namespace=named),
        lambda: view.get(["1"], namespace=named),
        lambda: view.delete(["1"], namespace=named),
        lambda: view.count(namespace=named),
    ):
        with pytest.raises(TenantViolation, match="was requested"):
            await call()
    assert not store.called

    whole: Any = TenantVectorStore(InMemoryVectorStore(2), "a")
    for call in (
        lambda: whole.query_hybrid([1.0, 0.0], "x", namespace=named),
        lambda: whole.query_keywords("x", namespace=named),
        lambda: whole.scan(namespace=named),
        lambda: anext(whole.list_records(namespace=named)),
    ):
        with pytest.raises(TenantViolation):
            await call()


async def test_its_own_namespace_may_be_named() -> None:
    view = TenantVectorStore(InMemoryVectorStore(2), "a")
    await view.upsert(made("1"), namespace="a")

    assert await view.count(namespace="a") == await view.count() == 1


async def test_what_others_have_put_into_the_namespace_is_as_if_it_were_not_there() -> None:
    store = InMemoryVectorStore(2)
    view: Any = TenantVectorStore(store, "a")
    await planted(store)

    assert await view.namespaces() == []
    await view.upsert(made("own"))
    assert await view.count() == 1
    assert [record.id for record in await view.get(["b's", "own", "no tenant's"])] == ["own"]
    for filter in (None, EVERYTHING, F("tenant") == "b", {"$or": [{"tenant": "b"}, {}]}):
        for found in (
            await view.query([1.0, 0.0], 9, filter=filter),
            await view.query_hybrid([1.0, 0.0], "a text", 9, filter=filter),
            await view.query_keywords("a text", 9, filter=filter),
            *await view.query_many([[1.0, 0.0]], 9, filter=filter),
        ):
            assert {match.id for match in found} <= {"own"}
    assert [record.id for record in await view.scan(limit=1)] == ["own"]
    assert await view.scan(after="own") == []
    for filter in (F("tenant") == "b", F("tenant").exists(present=False), EVERYTHING):
        assert {record.id for record in await view.scan(filter=filter)} <= {"own"}
        assert {value for value, _ in (await view.facet("tenant", filter=filter)).values} <= {"a"}
        assert {record.id async for record in view.list_records(filter=filter)} <= {"own"}
    assert await view.update_meta({"x": 1}, ids=["b's", "no tenant's"]) == 0
    assert await view.update_meta({"x": 1}, filter=F("tenant") != "a") == 0
    for claim in ({"tenant": "b"}, {"tenant": 1}):
        with pytest.raises(TenantViolation, match="claims another tenant"):
            await view.update_meta(claim, filter=EVERYTHING)
    assert await view.update_meta({"tenant": "a"}, filter=EVERYTHING) == 1
    with pytest.raises(TenantViolation, match="belongs to another tenant"):
        await view.insert(made("b's"))
    assert await view.insert(made("own")) == 0
    assert await view.delete(["b's", "no tenant's"]) == 0
    assert await view.delete(filter=F("tenant") != "a") == 0
    assert await view.delete(filter=EVERYTHING) == 1
    await view.erase()
    assert await view.count() == 0
    assert await store.count(namespace="a") == 2


async def test_two_prefixes_that_lead_to_one_namespace_keep_their_tenants_apart() -> None:
    store = InMemoryVectorStore(2)
    first = TenantVectorStore(store, "yz", namespace_prefix="x")
    second = TenantVectorStore(store, "z", namespace_prefix="xy")
    await first.upsert(made("1"))

    assert await second.namespaces() == []
    assert await second.query([1.0, 0.0]) == []
    with pytest.raises(TenantViolation):
        await second.upsert(made("1"))
    await second.upsert(made("2"))
    await second.erase()
    assert await first.count() == 1


async def test_a_filter_that_is_as_large_as_it_may_be_still_is_in_a_view() -> None:
    view = TenantVectorStore(InMemoryVectorStore(2), "a")
    await view.upsert(made("1", x=1))
    deep: Any = reduce(lambda inner, _: {"$not": inner}, range(16), {"x": 1})

    assert await view.count(filter=deep) == 1
    assert await view.count(filter={"$or": [{"x": 1}] * 256}) == 1
    with pytest.raises(InvalidFilter):
        await view.count(filter={"$not": deep})


async def test_deleting_everything_has_to_be_said_here_too() -> None:
    view = TenantVectorStore(InMemoryVectorStore(2), "a")
    await view.upsert(made("1"))

    for call in (view.delete, lambda: view.delete(filter={})):
        with pytest.raises(ValueError, match="EVERYTHING"):
            await call()
    assert await view.count() == 1


async def test_a_store_that_does_not_listen_to_filters_is_not_believed() -> None:
    store = Deaf(2)
    await planted(store)

    with pytest.raises(TenantViolation, match="the store has found"):
        await TenantVectorStore(store, "a").query([1.0, 0.0])


@pytest.mark.usefixtures("first_fault")
@pytest.mark.parametrize("leaky", [Deaf, OneRoom])
def test_the_check_of_tenants_catches_a_store_that_leaks(leaky: type[InMemoryVectorStore]) -> None:
    kind = StoreKind(open=lambda _, dimension, metric: leaky(dimension, metric))

    with pytest.raises((AssertionError, TenantViolation)):
        check_tenants(kind, max_examples=500)  # which stops at the first fault


@pytest.fixture
def first_fault() -> Iterator[None]:
    """Be content with the first fault, and do not look for the shortest way to it."""
    profile = settings.get_current_profile_name()
    settings.register_profile(
        "first fault", parent=settings(), phases=[Phase.generate], report_multiple_bugs=False
    )
    settings.load_profile("first fault")
    yield
    settings.load_profile(profile)


async def test_tenants_work_on_one_store_at_the_same_time(tmp_path: Path) -> None:
    store = SQLiteVectorStore(tmp_path / "v.db", dimension=2)
    await store.setup()
    views = [TenantVectorStore(store, str(number)) for number in range(10)]
    await asyncio.gather(*(view.upsert(made("1", "2", "3")) for view in views))
    await asyncio.gather(*(view.erase() for view in views[::2]))

    assert [await view.count() for view in views] == [0, 3] * 5
    await store.close()
