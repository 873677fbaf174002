"""Heads and tails: never below a score, and learned where rows allow it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.vector import Metric
from lib.vector.exact.accel.basis import STRETCH, Basis, learned
from lib.vector.exact.search import row_lengths

Matrix = NDArray[np.float32]
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]
WORTH = 300.0  # what reading the codes of 256 numbers costs is 384


def coded(width: int) -> float:
    return 128.0 + width


def of_rank(rank: int, size: int, dimension: int, noise: float = 0.0) -> Matrix:
    """Return rows that lie near a few directions."""
    drawn = np.random.default_rng(3)
    rows = drawn.standard_normal((size, rank)) @ drawn.standard_normal((rank, dimension))
    return (rows + noise * drawn.standard_normal((size, dimension))).astype(np.float32)


@pytest.mark.parametrize("scale", [2.0**-61, 1e-12, 1.0, 1e12, 2.0**56])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_head_and_tail_are_never_below_the_product_but_for_what_is_allowed(
    width: int, scale: float
) -> None:
    noise = np.random.default_rng(width)
    directions, _ = np.linalg.qr(noise.standard_normal((64, width)))
    basis = Basis.of(directions)
    vectors = (scale * noise.standard_normal((300, 64))).astype(np.float32)
    vectors[7], vectors[8] = 0.0, vectors[9] * np.float32(1e-3)
    lengths = row_lengths(vectors)
    taken = basis.rows(vectors, lengths.astype(np.float32)).astype(np.float64)

    assert taken.shape == (300, width + 1)
    assert (np.linalg.norm(taken, axis=1) <= STRETCH * lengths).all()
    for query in vectors[:20]:
        exact = query.astype(np.float64)
        above = taken @ basis.query(query).astype(np.float64)
        allowed = basis.slack * lengths * np.linalg.norm(exact)
        assert (above + allowed >= vectors.astype(np.float64) @ exact).all()


@pytest.mark.parametrize("metric", METRICS)
def test_few_directions_are_learned_of_rows_that_have_few(metric: Metric) -> None:
    vectors = of_rank(20, 6_000, 256, noise=0.01)
    basis = learned(vectors, metric, coded, WORTH)

    assert basis is not None
    assert basis.width == 32
    assert basis.skew < 1e-5
    assert learned(vectors, metric, coded, 32.0 + 127.0) is None  # what it costs at least is more


def test_more_directions_are_learned_of_rows_that_have_more_and_where_numbers_cost_less() -> None:
    widths: list[int] = []
    for rank, price in ((20, 0.1), (100, 0.1), (100, 30.0)):
        vectors = of_rank(rank, 6_000, 256, noise=0.3)
        basis = learned(vectors, "cosine", lambda width, price=price: price * width, 9_000.0)
        assert basis is not None
        widths.append(basis.width)

    assert widths[0] < widths[2] < widths[1]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "vectors",
    [
        of_rank(256, 6_000, 256),  # they lie everywhere
        of_rank(20, 6_000, 61),  # too short to be worth it
        of_rank(20, 300, 1_537),  # so long that learning would take seconds
        of_rank(20, 10, 256),  # too few
        np.zeros((6_000, 256), np.float32),
    ],
    ids=["everywhere", "short", "long", "few", "nothing"],
)
def test_none_are_learned_where_they_would_not_help(vectors: Matrix, metric: Metric) -> None:
    assert learned(vectors, metric, coded, WORTH) is None


def test_what_is_learned_does_not_depend_on_the_day() -> None:
    vectors = of_rank(20, 6_000, 256, noise=0.01)
    first = learned(vectors, "dot", coded, WORTH)
    second = learned(vectors.copy(), "dot", coded, WORTH)

    assert first is not None
    assert second is not None
    assert np.array_equal(first.directions, second.directions)
