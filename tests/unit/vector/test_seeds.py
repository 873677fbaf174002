"""The threshold of at least k keys never exceeds the k-th highest, whatever the mask."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.vector.exact.accel.threshold import (
    LOWEST,
    excluding,
    highest,
    kth_highest,
    left,
    reached,
    reaching,
    scored,
    seeds,
)
from lib.vector.exact.search import Rows, row_lengths, scales
from lib.vector.records import Metric

Keys = NDArray[np.float32]
Mask = NDArray[np.bool_]
SIZES = [1, 40, 1_000, 16_384, 40_000]


def keys_of(size: int, kind: str) -> Keys:
    noise = np.random.default_rng(size)
    if kind == "alike":
        return np.full(size, 7.0, np.float32)
    keys = noise.standard_normal(size)
    if kind == "sorted":
        keys.sort()
    if kind == "between":
        keys[np.arange(size) // 128 % 8 == 0] -= 100.0  # those that are looked at first
    return keys.astype(np.float32)


def mask_of(size: int, share: float) -> Mask | None:
    if share == 1.0:
        return None
    mask = np.random.default_rng(1).random(size) < share
    mask[size // 2] = True
    return mask


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["any", "alike", "sorted", "between"])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.001])
@pytest.mark.parametrize("k", [1, 10, 700])
def test_at_least_k_are_found_and_left_holds_all_that_reach_a_bound(
    size: int, kind: str, share: float, k: int
) -> None:
    keys, allowed = keys_of(size, kind), mask_of(size, share)
    passing = np.arange(size) if allowed is None else allowed.nonzero()[0]
    k = min(k, len(passing))
    best = np.sort(keys[passing])[-k]

    assert reached(keys, allowed, k) <= best
    assert kth_highest(excluding(keys, allowed), k) <= best
    found, least = sown = seeds(keys, allowed, k)
    assert len(set(found.tolist())) == len(found) >= k
    assert set(found.tolist()) <= set(passing.tolist())
    assert (keys[found] >= least).all()
    for bound in (float(best), float(best) - 0.5, least, math.inf, -math.inf):
        expected = passing[keys[passing] >= bound]
        assert left(keys, allowed, bound, sown, k).tolist() == expected.tolist()


def test_few_more_than_k_of_very_many_are_found_and_looked_at() -> None:
    keys = keys_of(100_000, "any")
    for allowed in (None, mask_of(100_000, 0.5)):
        found, _ = seeds(keys, allowed, 10)
        assert 10 <= len(found) < 150
    found, least = seeds(np.zeros(100_000, np.float32), None, 10)
    assert len(found) == 296
    assert least == 0.0


def test_where_fewer_than_k_may_be_found_nothing_is_known() -> None:
    keys, none = keys_of(40_000, "any"), np.zeros(40_000, np.bool_)
    assert reached(keys, none, 1) == -math.inf
    few = none.copy()
    few[[3, 130, 139]] = True
    assert reached(keys, few, 4) == -math.inf
    assert seeds(keys, few, 4)[0].tolist() == [3, 130, 139]
    assert left(keys, few, -math.inf, seeds(keys, few, 4), 4).tolist() == [3, 130, 139]
    assert kth_highest(keys[:5], 6) == -math.inf


def test_no_key_of_a_row_that_may_be_found_is_as_low_as_one_that_may_not() -> None:
    largest = np.float32(1.21 * 2.0**124)  # heads are at most a tenth longer than vectors
    keys = np.array([largest, -largest - np.float32(2.0**123)] * 2, np.float32)
    lowered = excluding(keys, np.array([True, True, False, False]))

    assert np.isfinite(lowered).all()
    assert (lowered > LOWEST).tolist() == [True, True, False, False]
    assert reaching(keys, np.array([False, True, False, True]), -math.inf).tolist() == [1, 3]


def test_the_highest_come_with_the_least_of_them_first() -> None:
    assert highest(np.array([3.0, 9.0, 1.0, 7.0]), 2)[0] == 7.0
    assert sorted(highest(np.array([3.0, 9.0]), 3)) == [3.0, 9.0]


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_rows_are_scored_as_they_are(metric: Metric) -> None:
    vectors = np.array([[3, 4], [1, 0], [0, 2]], np.float32)
    rows = Rows(ids=[], vectors=vectors, scales=scales(row_lengths(vectors), metric))
    found = scored(rows, np.array([2.0, 1.0]), np.array([2, 0]), metric)

    expected = {"cosine": [1.0, 2.0], "dot": [2.0, 10.0], "euclidean": [0.0, -2.5]}
    assert np.allclose(found, expected[metric])
