"""Fusion of two lists by ranks and by scores."""

import math
from typing import Any

import pytest

from lib.errors import UnsupportedFusion
from lib.vector import EmbeddingIndex, Fusion, InMemoryVectorStore, Match, Record, TenantVectorStore
from lib.vector.contract import declared_fusions
from lib.vector.text.fusion import METHODS, Scored, depth, fused, fused_rows

RRF = Fusion()
CONVEX = Fusion("convex")
NEAR: Scored = [("a", 0.75), ("b", 0.5), ("c", 0.25)]
WORDED: Scored = [("c", 8.0), ("d", 6.0), ("e", 4.0)]


def test_a_score_is_the_sum_of_reciprocal_ranks() -> None:
    assert fused([("a", 9.0), ("b", 1.0)], [("b", 2.0), ("c", 2.0)], 3, RRF) == [
        ("b", pytest.approx(1 / 62 + 1 / 61)),
        ("a", pytest.approx(1 / 61)),
        ("c", pytest.approx(1 / 62)),
    ]


def test_weights_multiply_reciprocal_ranks() -> None:
    assert fused(NEAR[:1], WORDED[:1], 2, Fusion("rrf", (1.0, 3.0))) == [
        ("c", pytest.approx(3 / 61)),
        ("a", pytest.approx(1 / 61)),
    ]


def test_a_convex_score_is_the_mean_of_scores_spread_over_0_to_1() -> None:
    assert fused(NEAR, WORDED, 9, CONVEX) == [
        ("a", pytest.approx(0.5)),
        ("c", pytest.approx(0.5)),
        ("b", pytest.approx(0.25)),
        ("d", pytest.approx(0.25)),
        ("e", pytest.approx(0.0)),
    ]


def test_convex_weights_count_by_their_ratio() -> None:
    found = fused(NEAR, WORDED, 2, Fusion("convex", (1.0, 3.0)))

    assert found == [("c", pytest.approx(0.75)), ("d", pytest.approx(0.375))]
    assert found == fused(NEAR, WORDED, 2, Fusion("convex", (0.25, 0.75)))


def test_distances_are_spread_from_the_largest_to_the_smallest() -> None:
    distances = [("a", 1.0), ("b", 2.0), ("c", 5.0)]

    assert fused(distances, [], 3, CONVEX, higher_is_better=False) == [
        ("a", pytest.approx(0.5)),
        ("b", pytest.approx(0.375)),
        ("c", pytest.approx(0.0)),
    ]


def test_equal_scores_are_all_the_best() -> None:
    assert fused([("b", 2.0), ("a", 2.0)], [], 2, CONVEX) == [("a", 0.5), ("b", 0.5)]


@pytest.mark.parametrize("fusion", METHODS)
def test_the_list_of_a_weight_of_0_is_left_out(fusion: Any) -> None:
    names = [name for name, _ in fused(NEAR, WORDED, 9, Fusion(fusion, (0.0, 1.0)))]

    assert names == ["c", "d", "e"]


@pytest.mark.parametrize("fusion", [RRF, CONVEX])
def test_equal_scores_stand_in_the_order_of_their_ids(fusion: Fusion) -> None:
    near, worded = [("b", 2.0), ("x", 1.0)], [("a", 2.0), ("x", 1.0)]
    names = [name for name, _ in fused(near, worded, 3, fusion)]

    assert names == (["x", "a", "b"] if fusion == RRF else ["a", "b", "x"])


@pytest.mark.parametrize("fusion", [RRF, CONVEX, Fusion("adaptive")])
def test_no_more_than_k_come_back_and_nothing_from_nothing(fusion: Fusion) -> None:
    assert len(fused(NEAR, [], 2, fusion)) == 2
    assert len(fused([], WORDED, 2, fusion)) == 2
    assert fused([], [], 5, fusion) == []


def test_rows_are_fused_as_their_ids_are() -> None:
    near, worded = [(2, 0.9), (0, 0.8)], [(0, 7.0), (1, 3.0)]
    found = fused_rows(
        near, worded, 3, RRF, ids=["z", "y", "x"], higher_is_better=True, coherence=0.0
    )

    assert found == [
        (0, pytest.approx(1 / 62 + 1 / 61)),
        (2, pytest.approx(1 / 61)),
        (1, pytest.approx(1 / 62)),
    ]


@pytest.mark.parametrize(("k", "expected"), [(1, 100), (10, 100), (11, 110), (100, 1000)])
def test_each_list_brings_ten_times_what_is_wanted_and_at_least_a_hundred(
    k: int, expected: int
) -> None:
    assert depth(k) == expected


@pytest.mark.parametrize(
    "weights",
    [
        *((0.0, 0.0), (-1.0, 2.0), (1.0,), 0.5, (1.0, float("nan")), ("a", 1.0), (None, 1.0)),
        *((1e308, 1e308), (1e308, 5e-324), (5e-324, 0.0), (1.0, float("inf")), (10**400, 1)),
    ],
)
def test_weights_that_are_no_weights_are_refused(weights: Any) -> None:
    with pytest.raises(ValueError, match="weights are"):
        Fusion("convex", weights)


def test_scores_are_finite_and_in_order_up_to_the_ends_of_what_weights_may_be() -> None:
    near, worded = [("a", 0.9), ("b", 0.8), ("c", 0.1)], [("d", 7.0), ("e", 3.0), ("f", 1.0)]
    for method in METHODS:
        for weights in ((1e30, 1e-30), (1e-30, 1e30), (1e-30, 0.0), (1e30, 1e30), (0, 1e-30)):
            found = dict(fused(near, worded, 6, Fusion(method, weights), coherence=1.0))
            assert all(map(math.isfinite, found.values()))
            for names, weight in zip(("ab", "de"), weights, strict=True):
                assert not weight or found[names[0]] > found[names[1]] > 0.0, (method, weights)


async def test_an_unknown_fusion_is_refused_where_it_is_named() -> None:
    wrong: Any = "linear"
    store = InMemoryVectorStore(2)

    with pytest.raises(ValueError, match="fusion is one of rrf, convex, adaptive"):
        await store.query_hybrid([1.0, 0.0], "x", fusion=wrong)
    with pytest.raises(ValueError, match="fusion is one of rrf, convex, adaptive"):
        EmbeddingIndex(store, Angles(), fusion=wrong)


class Angles:
    """Embeds each text as the same direction."""

    dimension = 2

    async def embed(self, texts: Any, *, purpose: str = "document") -> Any:
        return [[1.0, 0.0] for _ in texts]


class FusingStore(InMemoryVectorStore):
    """A store whose database fuses, by equal reciprocal ranks or equal shares only."""

    fusions = frozenset({"rrf", "convex"})


class OldStore(InMemoryVectorStore):
    """A store that knows no `fusion`."""

    fusions = frozenset({"rrf"})

    async def query_hybrid(  # type: ignore[override] - as a store of others may have it
        self, vector: Any, text: str, k: int = 5, *, filter: Any = None, namespace: Any = None
    ) -> list[Match]:
        return await super().query_hybrid(vector, text, k, filter=filter, namespace=namespace)


async def test_a_store_that_fuses_by_itself_refuses_what_it_cannot_do() -> None:
    store = FusingStore(2)
    await store.upsert([Record("a", [1.0, 0.0], "apple")])
    weighted = Fusion("convex", (1.0, 2.0))

    assert len(await store.query_hybrid([1.0, 0.0], "apple", fusion="convex")) == 1
    for searched in (store, TenantVectorStore(store, "t")):
        assert declared_fusions(searched) == {"rrf", "convex"}
        with pytest.raises(UnsupportedFusion, match="with 'weights': it can with 'convex', 'rrf'"):
            await searched.query_hybrid([1.0, 0.0], "apple", fusion=weighted)
    index = EmbeddingIndex(store, Angles(), hybrid="auto", fusion=weighted)
    with pytest.raises(UnsupportedFusion):
        await index.search("apple")


async def test_a_store_that_takes_no_fusion_is_searched_by_reciprocal_rank() -> None:
    store = OldStore(2)
    await store.upsert([Record("a", [1.0, 0.0], "apple")])
    index = EmbeddingIndex(store, Angles(), hybrid=True)

    for equal in (None, Fusion("rrf", (2.0, 2.0))):
        assert [hit.metric for hit in await index.search("apple", fusion=equal)] == ["rrf"]
    with pytest.raises(UnsupportedFusion, match=r"OldStore cannot fuse .* with 'convex'"):
        await index.search("apple", fusion="convex")
    with pytest.raises(UnsupportedFusion):
        await TenantVectorStore(store, "t").query_hybrid([1.0, 0.0], "x", fusion="convex")


async def test_an_index_fuses_as_it_or_the_search_says() -> None:
    store = InMemoryVectorStore(2)
    await store.upsert([Record("a", [1.0, 0.0], ""), Record("b", [0.0, 1.0], "apple")])
    index = EmbeddingIndex(store, Angles(), hybrid=True, fusion=Fusion("convex", (1.0, 3.0)))

    found = await index.search("apple")
    assert [(hit.id, hit.score, hit.metric) for hit in found] == [
        ("b", 0.75, "convex"),
        ("a", 0.25, "convex"),
    ]
    ((first, *_),) = await index.search_many(["apple"], fusion="rrf")
    assert (first.id, first.metric) == ("b", "rrf")
