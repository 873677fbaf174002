"""A tenant sees and changes its own records only, whatever it asks for."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from lib.errors import InvalidFilter, InvalidMeta, StoreClosed, TenantViolation
from lib.testing.aio import run
from lib.testing.vector_store import StoreKind
from lib.testing.vector_store.tenants import check_tenants
from lib.vector import (
    EVERYTHING,
    EmbeddingIndex,
    F,
    HybridStore,
    InMemoryVectorStore,
    Match,
    Record,
    ScanStore,
    SQLiteVectorStore,
    VectorStore,
    copy_store,
)
from lib.vector.protocol import FilterLike
from lib.vector.tenant import RESERVED, TenantVectorStore


class Bare:
    """A store that can do what every store must, and nothing more."""

    def __init__(self) -> None:
        self._whole = InMemoryVectorStore(2)
        self.asked = False

    def __getattr__(self, name: str) -> Any:
        if name in ("query_hybrid", "scan"):
            raise AttributeError(name)
        self.asked = True
        return getattr(self._whole, name)


class Deaf(InMemoryVectorStore):
    """A store that does not listen to filters."""

    async def query(
        self, vector: Any, k: int = 5, *, filter: FilterLike = None, **options: Any
    ) -> list[Match]:
        return await super().query(vector, k, **options)

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        return await super().count(namespace=namespace)


def made(*names: str, **meta: Any) -> list[Record]:
    return [Record(name, [1.0, 0.0], "a text", dict(meta)) for name in names]


async def planted(store: VectorStore) -> None:
    """Put a record of b and one of nobody into the namespace of a, past the views."""
    await store.upsert([*made("b's", tenant="b"), *made("nobody's")], namespace="a")


def test_a_record_is_stored_in_the_tenants_namespace_and_says_whose_it_is() -> None:
    async def main() -> None:
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

    run(main())


def test_the_callers_record_is_left_as_it_is() -> None:
    async def main() -> None:
        record = Record("1", [1.0, 0.0], "", {"x": 1})
        await TenantVectorStore(InMemoryVectorStore(2), "a").upsert([record])

        assert record.meta == {"x": 1}

    run(main())


@pytest.mark.parametrize("claim", ["b", "", "A", "a ", 1, True, ["a"], {"a": "a"}])
def test_a_record_that_claims_another_tenant_is_refused_before_anything_is_asked(
    claim: Any,
) -> None:
    async def main() -> None:
        store: Any = Bare()
        view = TenantVectorStore(store, "a")
        store.asked = False

        with pytest.raises(TenantViolation, match="record 'forged' claims") as refusal:
            await view.upsert([*made("good"), *made("forged", tenant=claim)])
        assert (refusal.value.tenant, refusal.value.what) == (
            "a",
            "record 'forged' claims another tenant",
        )
        assert not store.asked

    run(main())


class Alone(str):
    """A string that equals nothing but itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class TwoFaced(dict[str, Any]):
    """Metadata that says one thing when asked for a key and another when it is read."""

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
def test_a_claim_under_a_key_that_only_looks_like_another_is_a_claim(meta: dict[str, Any]) -> None:
    async def main() -> None:
        store = InMemoryVectorStore(2)
        view = TenantVectorStore(store, "a")

        with pytest.raises(TenantViolation, match="claims another tenant"):
            await view.upsert([Record("1", [1.0, 0.0], "", meta)])
        assert await store.namespaces() == []

        mine: dict[str, Any] = {Alone("tenant"): Alone("a"), Alone("x"): 1}
        await view.upsert([Record("1", [1.0, 0.0], "", mine)])
        assert (await store.get(["1"], namespace="a"))[0].meta == {"tenant": "a", "x": 1}

    run(main())


@pytest.mark.parametrize("named", ["b", "", "ab", "a:x", "A", 1])
def test_another_namespace_is_refused_before_anything_is_asked(named: Any) -> None:
    async def main() -> None:
        store: Any = Bare()
        view = TenantVectorStore(store, "a")
        store.asked = False

        for call in (
            lambda: view.upsert(made("1"), namespace=named),
            lambda: view.query([1.0, 0.0], namespace=named),
            lambda: view.get(["1"], namespace=named),
            lambda: view.delete(["1"], namespace=named),
            lambda: view.count(namespace=named),
        ):
            with pytest.raises(TenantViolation, match="was asked for"):
                await call()
        assert not store.asked

        whole: Any = TenantVectorStore(InMemoryVectorStore(2), "a")
        for call in (
            lambda: whole.query_hybrid([1.0, 0.0], "x", namespace=named),
            lambda: whole.scan(namespace=named),
        ):
            with pytest.raises(TenantViolation):
                await call()

    run(main())


def test_its_own_namespace_may_be_named() -> None:
    async def main() -> None:
        view = TenantVectorStore(InMemoryVectorStore(2), "a")
        await view.upsert(made("1"), namespace="a")

        assert await view.count(namespace="a") == await view.count() == 1

    run(main())


def test_what_others_have_put_into_the_namespace_is_as_if_it_were_not_there() -> None:
    async def main() -> None:
        store = InMemoryVectorStore(2)
        view: Any = TenantVectorStore(store, "a")
        await planted(store)

        assert await view.namespaces() == []
        await view.upsert(made("own"))
        assert await view.count() == 1
        assert [record.id for record in await view.get(["b's", "own", "nobody's"])] == ["own"]
        for filter in (None, EVERYTHING, F("tenant") == "b", {"$or": [{"tenant": "b"}, {}]}):
            for found in (
                await view.query([1.0, 0.0], 9, filter=filter),
                await view.query_hybrid([1.0, 0.0], "a text", 9, filter=filter),
            ):
                assert {match.id for match in found} <= {"own"}
        assert [record.id for record in await view.scan(limit=1)] == ["own"]
        assert await view.scan(after="own") == []
        await view.delete(["b's", "nobody's"])
        await view.delete(filter=F("tenant") != "a")
        await view.delete(filter=EVERYTHING)
        await view.erase()
        assert await view.count() == 0
        assert await store.count(namespace="a") == 2

    run(main())


def test_an_id_that_somebody_else_has_there_is_not_replaced() -> None:
    async def main() -> None:
        store = InMemoryVectorStore(2)
        view = TenantVectorStore(store, "a")
        await planted(store)
        before = await store.get(["b's", "nobody's"], namespace="a")

        for name in ("b's", "nobody's"):
            with pytest.raises(TenantViolation, match="an id in 'a' belongs to another tenant"):
                await view.upsert(made("good", name))
        assert await store.get(["b's", "nobody's"], namespace="a") == before
        assert await view.count() == 0

    run(main())


def test_two_prefixes_that_lead_to_one_namespace_keep_their_tenants_apart() -> None:
    async def main() -> None:
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

    run(main())


def test_a_filter_that_is_as_large_as_it_may_be_still_is_in_a_view() -> None:
    async def main() -> None:
        view = TenantVectorStore(InMemoryVectorStore(2), "a")
        await view.upsert(made("1", x=1))
        deep: Any = reduce(lambda inner, _: {"$not": inner}, range(16), {"x": 1})

        assert await view.count(filter=deep) == 1
        assert await view.count(filter={"$or": [{"x": 1}] * 256}) == 1
        with pytest.raises(InvalidFilter):
            await view.count(filter={"$not": deep})

    run(main())


def test_deleting_everything_has_to_be_said_here_too() -> None:
    async def main() -> None:
        view = TenantVectorStore(InMemoryVectorStore(2), "a")
        await view.upsert(made("1"))

        for call in (view.delete, lambda: view.delete(filter={})):
            with pytest.raises(ValueError, match="EVERYTHING"):
                await call()
        assert await view.count() == 1

    run(main())


@pytest.mark.parametrize(
    "batch",
    [
        [("1", [1.0])],
        [Record("1", [1.0, 0.0], "", None)],  # type: ignore[arg-type]  # on purpose
        [Record("", [1.0])],
    ],
)
def test_what_is_no_record_is_refused_before_anything_is_asked(batch: Any) -> None:
    async def main() -> None:
        store: Any = Bare()
        view = TenantVectorStore(store, "a")
        store.asked = False

        with pytest.raises(InvalidMeta):
            await view.upsert(batch)
        assert not store.asked

    run(main())


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


def test_siblings_are_apart_and_behind_the_same_walls() -> None:
    async def main() -> None:
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
        told = "'p-a/notes' was asked for, which has a view of its own"
        with pytest.raises(TenantViolation, match=told):
            await view.get(["1"], namespace="p-a/notes")
        assert await view.sibling("/notes").count(namespace="p-a/notes") == 1

    run(main())


@pytest.mark.parametrize("asked", ["", "/notes", "#nothing"])
def test_erasing_takes_the_namespace_and_all_siblings_and_nobody_elses(asked: str) -> None:
    async def main() -> None:
        store = InMemoryVectorStore(2)
        view = TenantVectorStore(store, "a")
        others = [TenantVectorStore(store, name) for name in ("ab", "A", "á")]
        for one in (view, view.sibling("/notes"), view.sibling(":x:y"), *others):
            await one.upsert(made("1", "2"))

        asks = view.sibling(asked) if asked else view
        await asks.erase()
        await asks.erase()

        assert await store.namespaces() == sorted(["ab", "A", "á"])
        assert [await one.count() for one in others] == [2, 2, 2]

    run(main())


@pytest.mark.parametrize("mark", RESERVED)
def test_no_tenant_and_suffix_make_the_namespace_of_another_tenant(mark: str) -> None:
    store = InMemoryVectorStore(2)
    view = TenantVectorStore(store, "a").sibling(f"{mark}b")

    assert view.namespace == f"a{mark}b"
    with pytest.raises(ValueError, match="holds none of"):
        TenantVectorStore(store, f"a{mark}b")


def test_closing_a_view_closes_neither_the_store_nor_other_views() -> None:
    async def main() -> None:
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

    run(main())


def test_a_view_can_do_what_its_store_can() -> None:
    bare: Any = Bare()
    whole = TenantVectorStore(InMemoryVectorStore(2), "a")
    narrow = TenantVectorStore(bare, "a")

    for view in (whole, whole.sibling(":x")):
        assert isinstance(view, TenantVectorStore)
        assert isinstance(view, HybridStore)
        assert isinstance(view, ScanStore)
    for view in (narrow, narrow.sibling(":x")):
        assert isinstance(view, VectorStore)
        assert not isinstance(view, HybridStore)
        assert not isinstance(view, ScanStore)


def test_a_view_of_a_store_that_has_one_of_the_two_has_that_one() -> None:
    class Scanned(Bare):
        async def scan(self, **options: Any) -> list[Record]:
            return []

    class Worded(Bare):
        async def query_hybrid(self, *arguments: Any, **options: Any) -> list[Match]:
            return []

    scanned: Any = TenantVectorStore(Scanned(), "a")  # type: ignore[arg-type]  # by __getattr__
    worded: Any = TenantVectorStore(Worded(), "a")  # type: ignore[arg-type]  # by __getattr__

    assert (isinstance(scanned, ScanStore), isinstance(scanned, HybridStore)) == (True, False)
    assert (isinstance(worded, ScanStore), isinstance(worded, HybridStore)) == (False, True)


def test_a_subclass_is_what_it_is_called() -> None:
    class Mine(TenantVectorStore):
        pass

    assert type(Mine(InMemoryVectorStore(2), "a")) is Mine


def test_it_measures_as_its_store_does() -> None:
    store = InMemoryVectorStore(None, "euclidean")
    view = TenantVectorStore(store, "a")

    assert (view.metric, view.dimension, view.higher_is_better) == ("euclidean", None, False)
    run(view.upsert(made("1")))
    assert view.dimension == 2


def test_an_index_over_a_view_searches_the_tenants_documents() -> None:
    class Embedder:
        dimension = 2

        async def embed(self, texts: Sequence[str], *, purpose: str = "document") -> Any:
            import numpy as np

            return np.array([[1.0, len(text)] for text in texts], np.float32)

    async def main() -> None:
        store = InMemoryVectorStore(2)
        for tenant in ("a", "b"):
            index = EmbeddingIndex(TenantVectorStore(store, tenant), Embedder(), hybrid="auto")
            await index.add([doc("1", f"apple of {tenant}"), doc("2", "pear")])

        index = EmbeddingIndex(TenantVectorStore(store, "a"), Embedder(), hybrid="auto")
        hits = await index.search("apple", filter={"$or": [{"tenant": "b"}, {"tenant": "a"}]})
        assert [(hit.text, hit.metric) for hit in hits] == [("apple of a", "rrf"), ("pear", "rrf")]

    from lib.vector import Doc as doc  # noqa: N813 - reads as what it makes

    run(main())


def test_a_store_that_does_not_listen_to_filters_is_not_believed() -> None:
    async def main() -> None:
        store = Deaf(2)
        await planted(store)

        with pytest.raises(TenantViolation, match="the store has found"):
            await TenantVectorStore(store, "a").query([1.0, 0.0])

    run(main())


class OneRoom(InMemoryVectorStore):
    """A store that puts everything into one namespace."""

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        await super().upsert(records, namespace=None)


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


def test_tenants_work_on_one_store_at_the_same_time(tmp_path: Path) -> None:
    async def main() -> None:
        store = SQLiteVectorStore(tmp_path / "v.db", dimension=2)
        await store.setup()
        views = [TenantVectorStore(store, str(number)) for number in range(10)]
        await asyncio.gather(*(view.upsert(made("1", "2", "3")) for view in views))
        await asyncio.gather(*(view.erase() for view in views[::2]))

        assert [await view.count() for view in views] == [0, 3] * 5
        await store.close()

    run(main())


def test_a_tenant_is_copied_view_by_view_and_refused_as_a_whole_before_anything_is_written() -> (
    None
):
    async def main() -> None:
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

    run(main())
