"""The contract holds a store that can do less to saying so, and catches one that pretends."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from lib.testing.vector_store import (
    StoreKind,
    VectorStoreContract,
    check_against_memory,
    check_tenants,
    features,
)
from lib.testing.vector_store.filters import refused
from lib.testing.vector_store.hybrid import HybridContract
from lib.testing.vector_store.kit import StoreTests, Using
from lib.testing.vector_store.search import SearchContract
from lib.vector import F, Filter, InMemoryVectorStore, Match, Metric, Record, Vector
from lib.vector.contract import FilterLike, FusionWord
from lib.vector.filter import fold
from lib.vector.filter.operands import LeafOperator
from lib.vector.filter.refusals import FEATURES, Feature, Refusal, checked


class NarrowStore:
    """A store without hybrid search and scans that refuses every filter that is hard to express."""

    refusals: frozenset[Refusal] = frozenset(FEATURES)

    def __init__(self, dimension: int, metric: Metric) -> None:
        self._whole = InMemoryVectorStore(dimension, metric)
        self.metric: Metric = metric
        self.dimension = dimension
        self.higher_is_better = self._whole.higher_is_better

    async def setup(self) -> None:
        await self._whole.setup()

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        await self._whole.upsert(records, namespace=namespace)

    async def query(
        self, vector: Vector, k: int = 5, *, filter: FilterLike = None, **options: Any
    ) -> list[Match]:
        return await self._whole.query(vector, k, filter=self._supported(filter), **options)

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        return await self._whole.get(ids, namespace=namespace)

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        return await self._whole.delete(ids, filter=self._supported(filter), namespace=namespace)

    async def count(self, *, filter: FilterLike = None, namespace: str | None = None) -> int:
        return await self._whole.count(filter=self._supported(filter), namespace=namespace)

    async def namespaces(self, prefix: str = "") -> list[str]:
        return await self._whole.namespaces(prefix)

    async def close(self) -> None:
        await self._whole.close()

    def _supported(self, spec: FilterLike) -> Filter | None:
        parsed = Filter.parse(spec)
        folded = fold(parsed)
        if isinstance(folded, Filter):
            checked(folded, store=self)
        return parsed


class BareStore(NarrowStore):
    """A store that has no filters at all but those that let everything through, or nothing."""

    refusals = frozenset[Refusal](get_args(LeafOperator))


class RanksAloneStore(InMemoryVectorStore):
    """A store that fuses by reciprocal rank, and in no other way."""

    fusions = frozenset[FusionWord]({"rrf"})


class TestRanksAloneStore(HybridContract):
    @pytest.fixture
    def kind(self) -> StoreKind:
        return StoreKind(open=lambda _, dimension, metric: RanksAloneStore(dimension, metric))


class TestNarrowStore(VectorStoreContract):
    @pytest.fixture
    def kind(self) -> StoreKind:
        return StoreKind(open=lambda _, dimension, metric: NarrowStore(dimension, metric))

    def test_it_answers_as_the_memory_store_does(self, kind: StoreKind) -> None:
        check_against_memory(kind, max_examples=5)

    def test_no_tenant_reaches_what_another_one_has(self, kind: StoreKind) -> None:
        check_tenants(kind, max_examples=5)


class TestBareStore(VectorStoreContract):
    @pytest.fixture
    def kind(self) -> StoreKind:
        return StoreKind(open=lambda _, dimension, metric: BareStore(dimension, metric))


def test_a_store_that_lacks_what_it_declares_is_caught(tmp_path: Path) -> None:
    class Pretender(NarrowStore):
        capabilities = ("scan",)

    kind = StoreKind(open=lambda _, dimension, metric: Pretender(dimension, metric))
    with pytest.raises(AssertionError):
        SearchContract().test_it_has_the_methods_of_what_it_declares(Using(kind, tmp_path))


def test_a_store_that_has_to_have_hybrid_search_is_caught_without(tmp_path: Path) -> None:
    kind = StoreKind(open=lambda _, dimension, metric: NarrowStore(dimension, metric), hybrid=True)
    with pytest.raises(AssertionError):
        SearchContract().test_it_has_the_methods_of_what_it_declares(Using(kind, tmp_path))


async def test_a_store_that_takes_a_filter_which_it_has_to_refuse_is_caught() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await refused(InMemoryVectorStore(2), F("x") > "a")


def test_the_contract_asks_for_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        StoreTests.kind.__wrapped__(StoreTests())  # type: ignore[attr-defined] - a fixture


@pytest.mark.parametrize(
    ("filter", "needed"),
    [
        (F("x") == 1, set[Feature]()),
        (F("x") > "a", {"string order"}),
        (F("x") <= 2**53, {"wide number"}),
        (F("x").in_([1, -(2**60)]), {"wide number"}),
        (F('"') == 1, {"quoted key"}),
        (F("\\").exists(), set[Feature]()),
        (F("x", "y") == 1, {"nested"}),
        (F("x", "y").exists(), {"nested", "nested presence"}),
        (F("x", "y").in_([1, None]), {"nested", "nested presence", "complement"}),
        (F("x", '"') > "a", {"nested", "quoted key", "string order"}),
        (F("x") != 1, {"complement"}),
        (F("x").exists(present=False), {"complement"}),
        (F("x").in_([None]), {"complement"}),
        (~(F("x") == 1), {"complement"}),
    ],
)
def test_the_features_that_a_filter_needs(filter: Filter, needed: set[Feature]) -> None:
    assert features(filter) & set(FEATURES) == needed
