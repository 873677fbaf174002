"""Maximal marginal relevance: near the query, and not all alike."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.vector.diversity import marginal_relevance

# Two that are alike beside the query, one aslant, one far off.
ROWS = np.array([[1.0, 0.1, 0.0], [1.0, 0.11, 0.0], [1.0, -0.9, 0.0], [0.0, 0.0, 1.0]], np.float32)
QUERY = np.array([1.0, 0.0, 0.0], np.float32)


@pytest.mark.parametrize(
    ("diversity", "expected"),
    [(0.0, [0, 1, 2, 3]), (0.5, [0, 2, 3, 1]), (1.0, [0, 3, 2, 1])],
)
def test_diversity_weighs_what_rows_have_in_common(diversity: float, expected: list[int]) -> None:
    assert marginal_relevance(QUERY, ROWS, 4, diversity) == expected
    assert marginal_relevance(QUERY, ROWS, 2, diversity) == expected[:2]
    assert marginal_relevance(QUERY, ROWS, 9, diversity) == expected


def test_lengths_of_vectors_do_not_matter_and_zeros_are_like_nothing() -> None:
    longer = ROWS * np.array([[1e-9], [1e9], [5.0], [0.0]], np.float32)

    assert marginal_relevance(QUERY * 7, longer, 4, 0.5) == [0, 2, 3, 1]


def test_equal_rows_stand_in_their_order() -> None:
    assert marginal_relevance(QUERY, np.repeat(ROWS[:1], 4, axis=0), 3, 0.7) == [0, 1, 2]
    noise = np.random.default_rng(4)
    for dimension in range(1, 40):  # sums of the same numbers are rounded by their place in BLAS
        query, row = noise.standard_normal((2, dimension)).astype(np.float32)
        same = np.repeat(row[np.newaxis], 35, axis=0)
        assert marginal_relevance(query, same, 35, 0.3) == list(range(35))


@pytest.mark.parametrize("diversity", [0.0, 0.3, 0.8, 1.0])
def test_rows_are_picked_as_the_definition_says(diversity: float) -> None:
    noise = np.random.default_rng(3)
    rows, query = noise.standard_normal((40, 8)), noise.standard_normal(8)

    expected = by_definition(query, rows, 12, diversity)
    found = marginal_relevance(query.astype(np.float32), rows.astype(np.float32), 12, diversity)
    assert found == expected


def by_definition(
    query: NDArray[np.float64], rows: NDArray[np.float64], k: int, diversity: float
) -> list[int]:
    def cosine(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
        return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))

    chosen: list[int] = []
    while len(chosen) < k:
        chosen.append(
            max(
                (row for row in range(len(rows)) if row not in chosen),
                key=lambda row: (
                    (1 - diversity) * cosine(query, rows[row])
                    - diversity * max((cosine(rows[row], rows[one]) for one in chosen), default=0.0)
                ),
            )
        )
    return chosen
