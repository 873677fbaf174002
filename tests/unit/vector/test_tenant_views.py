"""A view is a store: it can do what its store can, and is closed, searched, copied by itself."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lib.errors import HybridUnavailable, StoreClosed, TenantViolation, VectorError
from lib.vector import (
    EmbeddingIndex,
    InMemoryVectorStore,
    Match,
    Record,
    copy_store,
)
from lib.vector.tenant import TenantVectorStore

from .tenant_kit import Bare, made, planted


async def test_closing_a_view_closes_neither_the_store_nor_other_views() -> None:
    store = InMemoryVectorStore(2)
    view: Any = TenantVectorStore(store, "a")
    sibling, other = view.sibling("/x"), TenantVectorStore(store, "b")
    await view.setup()
    await view.close()
    await view.close()

    calls: Sequence[Callable[[], Any]] = (
        view.setup,
        lambda: view.upsert(made("1")),
        lambda: view.query([1.0, 0.0]),
        lambda: view.query_hybrid([1.0, 0.0], "x"),
        lambda: view.get(["1"]),
        lambda: view.delete(["1"]),
        view.count,
        view.namespaces,
        view.scan,
        view.erase,
    )
    for call in calls:
        with pytest.raises(StoreClosed):
            await call()
    await sibling.upsert(made("1"))
    assert await other.count() == 0
    assert await sibling.count() == 1


async def test_a_view_can_do_what_its_store_can() -> None:
    bare: Any = Bare()
    whole = TenantVectorStore(InMemoryVectorStore(2), "a")
    narrow = TenantVectorStore(bare, "a")

    for view in (whole, whole.sibling(":x")):
        assert isinstance(view, TenantVectorStore)
        assert view.capabilities == {
            "hybrid",
            "keywords",
            "scan",
            "insert",
            "update",
            "batch",
            "facet",
        }
    for view in (narrow, narrow.sibling(":x")):
        assert view.capabilities == set()
        with pytest.raises(HybridUnavailable, match="Bare has no full-text search"):
            await view.query_hybrid([1.0, 0.0], "apple")
        with pytest.raises(HybridUnavailable, match="Bare has no full-text search"):
            await view.query_keywords("apple")
        with pytest.raises(VectorError, match=r"Bare cannot be read in order: it has no scan\(\)"):
            await view.scan()
        with pytest.raises(VectorError, match=r"Bare has no query_many\(\)"):
            await view.query_many([[1.0, 0.0]])
        with pytest.raises(VectorError, match=r"Bare has no facet\(\)"):
            await view.facet("x")
        with pytest.raises(VectorError, match=r"Bare has no insert\(\)"):
            await view.insert(made("1"))
        with pytest.raises(VectorError, match=r"Bare has no update_meta\(\)"):
            await view.update_meta({"x": 1}, ids=["1"])


def test_a_view_of_a_store_that_has_one_of_the_two_has_that_one() -> None:
    class Scanned(Bare):
        async def scan(self, **options: Any) -> list[Record]:
            return []

    class Worded(Bare):
        async def query_hybrid(self, *arguments: Any, **options: Any) -> list[Match]:
            return []

    scanned: Any = TenantVectorStore(Scanned(), "a")  # type: ignore[arg-type] - by __getattr__
    worded: Any = TenantVectorStore(Worded(), "a")  # type: ignore[arg-type] - by __getattr__

    assert scanned.capabilities == {"scan"}
    assert worded.capabilities == {"hybrid"}


def test_a_subclass_is_what_it_is_called() -> None:
    class Mine(TenantVectorStore):
        pass

    assert type(Mine(InMemoryVectorStore(2), "a")) is Mine


async def test_it_measures_as_its_store_does() -> None:
    store = InMemoryVectorStore(None, "euclidean")
    view = TenantVectorStore(store, "a")

    assert (view.metric, view.dimension, view.higher_is_better) == ("euclidean", None, False)
    await view.upsert(made("1"))
    assert view.dimension == 2


async def test_an_index_over_a_view_searches_the_tenants_documents() -> None:
    class Embedder:
        dimension = 2

        async def embed(self, texts: Sequence[str], *, purpose: str = "document") -> Any:
            import numpy as np

            return np.array([[1.0, len(text)] for text in texts], np.float32)

    from lib.vector import Doc as doc  # noqa: N813 - reads as what it makes

    store = InMemoryVectorStore(2)
    for tenant in ("a", "b"):
        index = EmbeddingIndex(TenantVectorStore(store, tenant), Embedder(), hybrid="auto")
        await index.add([doc("1", f"apple of {tenant}"), doc("2", "pear")])

    index = EmbeddingIndex(TenantVectorStore(store, "a"), Embedder(), hybrid="auto")
    hits = await index.search("apple", filter={"$or": [{"tenant": "b"}, {"tenant": "a"}]})
    assert [(hit.text, hit.metric) for hit in hits] == [("apple of a", "rrf"), ("pear", "rrf")]


async def test_a_tenant_is_copied_by_views_and_refused_whole_before_any_write() -> None:
    store, target = InMemoryVectorStore(2), InMemoryVectorStore(2)
    view: Any = TenantVectorStore(store, "a")
    await view.upsert(made("1"))
    await view.sibling(":x").upsert(made("2"))
    await planted(store)

    with pytest.raises(TenantViolation, match="sibling"):
        await copy_store(view, target)
    assert await target.namespaces() == []

    for name in await view.namespaces():
        suffix = name.removeprefix(view.namespace)
        one = view.sibling(suffix) if suffix else view
        await copy_store(one, target, namespaces=[name])
    assert {
        name: [record.id for record in await target.scan(namespace=name)]
        for name in await target.namespaces()
    } == {"a": ["1"], "a:x": ["2"]}
