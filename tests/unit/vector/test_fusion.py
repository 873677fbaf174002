"""Reciprocal rank fusion."""

import pytest

from lib.vector.text.fusion import depth, fused_rows, reciprocal_rank


def test_a_score_is_the_sum_of_reciprocal_ranks() -> None:
    assert reciprocal_rank([["a", "b"], ["b", "c"]], 3) == [
        ("b", pytest.approx(1 / 62 + 1 / 61)),
        ("a", pytest.approx(1 / 61)),
        ("c", pytest.approx(1 / 62)),
    ]


def test_equal_scores_stand_in_the_order_of_their_ids() -> None:
    assert [name for name, _ in reciprocal_rank([["b", "x"], ["a", "x"]], 3)] == ["x", "a", "b"]


def test_no_more_than_k_come_back_and_nothing_from_nothing() -> None:
    assert len(reciprocal_rank([["a", "b", "c"]], 2)) == 2
    assert reciprocal_rank([[], []], 5) == []
    assert reciprocal_rank([], 5) == []


def test_rows_are_fused_as_their_ids_are() -> None:
    fused = fused_rows([[2, 0], [0, 1]], 3, ["z", "y", "x"])

    assert fused == [
        (0, pytest.approx(1 / 62 + 1 / 61)),
        (2, pytest.approx(1 / 61)),
        (1, pytest.approx(1 / 62)),
    ]


@pytest.mark.parametrize(("k", "expected"), [(1, 100), (10, 100), (11, 110), (100, 1000)])
def test_each_list_brings_ten_times_what_is_wanted_and_at_least_a_hundred(
    k: int, expected: int
) -> None:
    assert depth(k) == expected
