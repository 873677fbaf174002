"""The contract of a vector store: the nearest records, in their order."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest

from lib.errors import DimensionMismatch, InvalidVector, StoreClosed
from lib.testing.vector_store.kit import METRICS, StoreTests, Using, case, ids, points
from lib.vector import Match, Metric, Record, VectorStore
from lib.vector.contract import capabilities
from lib.vector.filter.refusals import declared_refusals

SCORES: dict[Metric, dict[str, float]] = {
    "cosine": {"near": 1.0, "aslant": 1 / math.sqrt(2), "across": 0.0, "away": -1.0},
    "dot": {"aslant": 12.0, "near": 6.0, "across": 0.0, "away": -4.0},
    "euclidean": {"near": 1.0, "across": math.sqrt(13), "away": 4.0, "aslant": math.sqrt(52)},
}
ABOUT = 1e-5
METHODS = ("setup", "upsert", "query", "get", "delete", "count", "namespaces", "close")


class SearchContract(StoreTests):
    """Querying without words."""

    @pytest.mark.parametrize("metric", METRICS)
    def test_scores_and_their_order_are_those_of_the_metric(
        self, using: Using, metric: Metric
    ) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(
                [
                    Record("near", [3.0, 0.0]),
                    Record("aslant", [6.0, 6.0]),
                    Record("across", [0.0, 3.0]),
                    Record("away", [-2.0, 0.0]),
                ]
            )

            found = await store.query([2.0, 0.0], 4)
            assert ids(found) == list(SCORES[metric])
            assert [match.score for match in found] == pytest.approx(
                list(SCORES[metric].values()), abs=ABOUT
            )
            assert all(match.vector is None for match in found)
            assert (store.metric, store.dimension) == (metric, 2)
            assert store.higher_is_better == (metric != "euclidean")

        using(body, metric=metric)

    @pytest.mark.parametrize("metric", METRICS)
    def test_equal_scores_stand_in_the_order_of_their_ids(
        self, using: Using, metric: Metric
    ) -> None:
        async def body(store: VectorStore) -> None:
            names = ["b", "a", "ab", "Z", "é", "10", "9", "\U0001f600", "\uffff"]
            await store.upsert(points(*names))
            await store.upsert([Record("best" if metric != "dot" else "~", [1.0, 0.0])])
            await store.delete(["best", "~"])

            for k in (1, 3, 9, 20):
                assert ids(await store.query([1.0, 0.5], k)) == sorted(names)[:k]

        using(body, metric=metric)

    @pytest.mark.parametrize("metric", METRICS)
    def test_what_is_found_is_what_counting_it_out_finds(
        self, using: Using, metric: Metric
    ) -> None:
        async def body(store: VectorStore) -> None:
            fields = (None, "even", "rare") if using.kind.takes_equality(store) else (None,)
            noise = np.random.default_rng(5)
            vectors = noise.standard_normal((400, 16)).astype(np.float32)
            await store.upsert(
                [
                    Record(str(row), vector, "", {"even": row % 2 == 0, "rare": row % 50 == 0})
                    for row, vector in enumerate(vectors)
                ]
            )

            for query in noise.standard_normal((10, 16)).astype(np.float32):
                scores = counted_out(vectors, query, metric)
                for field in fields:
                    filter = None if field is None else {field: True}
                    found = await store.query(query, 10, filter=filter)
                    rows = {None: 1, "even": 2, "rare": 50}[field]
                    wanted = sorted(
                        range(0, 400, rows),
                        key=lambda row: scores[row],
                        reverse=store.higher_is_better,
                    )
                    assert len(found) == min(10, 400 // rows)
                    agree(found, wanted, scores)

        using(body, dimension=16, metric=metric)

    def test_the_filter_comes_before_the_search(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points(*(f"decoy{number}" for number in range(500)), x=1))
            await store.upsert(
                [Record(f"far{number}", [-1.0, number], "", {"x": 2}) for number in range(1, 8)]
            )

            if using.kind.takes_equality(store):
                assert len(await store.query([1.0, 0.0], 7, filter={"x": 2})) == 7

        using(body)

    @pytest.mark.parametrize("metric", METRICS)
    def test_what_is_worse_than_the_threshold_is_left_out(
        self, using: Using, metric: Metric
    ) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(
                [
                    Record("near", [3.0, 0.0]),
                    Record("aslant", [6.0, 6.0]),
                    Record("across", [0.0, 3.0]),
                    Record("away", [-2.0, 0.0]),
                ]
            )
            found = await store.query([2.0, 0.0], 4)

            for best, match in enumerate(found, start=1):
                wanted = found[:best]
                kept = await store.query([2.0, 0.0], 4, score_threshold=match.score)
                assert kept == wanted
                fewer = await store.query([2.0, 0.0], 2, score_threshold=match.score)
                assert fewer == wanted[:2]
            none = -1.0 if metric == "euclidean" else 1000.0
            assert await store.query([2.0, 0.0], 4, score_threshold=none) == []
            for wrong in (math.nan, "0.5", True, [1.0]):
                with case(wrong), pytest.raises(ValueError, match="score_threshold"):
                    await store.query([2.0, 0.0], 4, score_threshold=cast(Any, wrong))

        using(body, metric=metric)

    @pytest.mark.parametrize("metric", METRICS)
    def test_many_queries_find_what_each_of_them_finds(self, using: Using, metric: Metric) -> None:
        async def body(store: Any) -> None:
            if not using.kind.can(store, "batch"):
                return
            noise = np.random.default_rng(7)
            vectors = noise.integers(-3, 4, (300, 4)).astype(np.float32) + np.float32(0.5)
            await store.upsert(
                [Record(f"{row:03}", one, "", {"x": row % 3}) for row, one in enumerate(vectors)]
            )
            await store.upsert(points_of(4), namespace="other")
            queries = [*vectors[:12], [1.0, 0.0, 0.0, 0.0]]
            filters = (None, {"x": 1}) if using.kind.takes_equality(store) else (None,)
            for filter in filters:
                for k, some in ((1, queries[-4:]), (7, queries), (400, queries[-4:])):
                    wanted = [await store.query(query, k, filter=filter) for query in some]
                    assert await store.query_many(some, k, filter=filter) == wanted
            (one,) = await store.query_many([queries[0]], 3, include_vectors=True)
            assert one == await store.query(queries[0], 3, include_vectors=True)
            best = one[0].score
            (near,) = await store.query_many(np.stack(queries[:1]), 3, score_threshold=best)
            assert near == await store.query(queries[0], 3, score_threshold=best)

            assert await store.query_many([]) == []
            assert await store.query_many(queries[:2], namespace="none") == [[], []]
            assert await store.query_many(queries[:2], filter={"x": {"$in": []}}) == [[], []]
            for wrong in ([queries[0], [1.0]], queries[0]):
                with pytest.raises((DimensionMismatch, InvalidVector)):
                    await store.query_many(wrong)
            with pytest.raises(ValueError, match="k is"):
                await store.query_many(queries, 0)
            await store.close()
            with pytest.raises(StoreClosed):
                await store.query_many(queries)

        using(body, dimension=4, metric=metric)

    def test_an_empty_namespace_has_no_neighbours(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            assert await store.query([1.0, 0.0]) == []
            await store.upsert(points("a"), namespace="other")
            assert await store.query([1.0, 0.0]) == []
            if using.kind.takes_equality(store):
                assert await store.query([1.0, 0.0], filter={"x": 1}) == []

        using(body)

    def test_five_are_returned_unless_another_number_is_requested(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points(*"abcdefgh"))

            assert ids(await store.query([1.0, 0.0])) == list("abcde")
            assert ids(await store.query([1.0, 0.0], 100)) == list("abcdefgh")

        using(body)

    @pytest.mark.parametrize("metric", METRICS)
    def test_small_and_large_vectors_keep_their_order(self, using: Using, metric: Metric) -> None:
        async def body(store: VectorStore) -> None:
            scales = [1e-18, 1e-9, 1.0, 1e9, 1e18]
            await store.upsert(
                [Record(f"{scale:g}", [scale, scale / 2]) for scale in scales]
                + [Record("aslant", [1.0, 1.0])]
            )

            found = await store.query([1e-18, 0.0], 6)
            assert len(found) == 6
            assert all(math.isfinite(match.score) for match in found)
            if metric == "cosine":
                assert found[-1].id == "aslant"
            if metric == "dot":
                assert ids(found[:2]) == ["1e+18", "1e+09"]
            if metric == "euclidean":
                assert ids(found)[-2:] == ["1e+09", "1e+18"]

        using(body, metric=metric)

    def test_it_has_the_methods_of_what_it_declares(self, using: Using) -> None:
        async def body(store: Any) -> None:
            missing = {name for name in METHODS if not callable(getattr(store, name, None))}
            assert missing == set()
            declared: Any = getattr(store, "capabilities", ())
            assert frozenset(declared) <= capabilities(store)
            assert using.kind.hybrid in (None, "hybrid" in capabilities(store))
            declared_refusals(store)  # raises for an unknown word

        using(body)


def points_of(dimension: int) -> list[Record]:
    """Return one record of so many dimensions."""
    return [Record("a", [1.0] * dimension)]


def counted_out(vectors: Any, query: Any, metric: Metric) -> list[float]:
    """Return the score of every vector, computed in 64 bits."""
    wide, wanted = vectors.astype(np.float64), query.astype(np.float64)
    if metric == "euclidean":
        return np.linalg.norm(wide - wanted, axis=1).tolist()
    lengths = np.linalg.norm(wide, axis=1) * np.linalg.norm(wanted)
    return ((wide @ wanted) / (lengths if metric == "cosine" else 1.0)).tolist()


def agree(found: list[Match], wanted: list[int], scores: list[float]) -> None:
    """Compare what was found with rows, best first, whose ids are their numbers."""
    best = [scores[row] for row in wanted[: len(found)]]
    assert [match.score for match in found] == pytest.approx(best, abs=1e-4)
    assert [scores[int(match.id)] for match in found] == pytest.approx(best, abs=1e-6)
