"""Codes of heads: they leave few rows, find what is found without them, and move with the rows."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.vector import Metric
from lib.vector.exact import search as exact
from lib.vector.exact.accel import codes
from lib.vector.exact.accel.basis import Basis
from lib.vector.exact.accel.codes import ProjectedCodes
from lib.vector.exact.search import Rows, Selection, nearest, row_lengths, scales

Matrix = NDArray[np.float32]
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]
DIMENSION = 64
DIRECTIONS, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((DIMENSION, 12)))
BASIS = Basis.of(DIRECTIONS)


def products(code: NDArray[np.uint8], codes: NDArray[np.uint8]) -> Matrix:
    return (codes.astype(np.int64) @ code[0].astype(np.int64)).astype(np.float32)


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 0)
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS_GATHERED", 0)
    monkeypatch.setattr(codes, "_BLOCK_BYTES", 13 * 700)


def near(size: int, away: float = 0.02) -> Matrix:
    """Return rows near the directions of the basis, some of them alike."""
    noise = np.random.default_rng(5)
    points = noise.standard_normal((size, 12))
    points[::90] = points[0]
    rows = points @ DIRECTIONS.T
    return (rows + away * noise.standard_normal(rows.shape)).astype(np.float32)


def rows_of(vectors: Matrix, metric: Metric, first_pass: ProjectedCodes | None) -> Rows:
    return Rows(
        ids=[f"{row:05}" for row in range(len(vectors))],
        vectors=vectors,
        scales=scales(row_lengths(vectors), metric),
        first_pass=first_pass,
    )


def test_few_rows_of_thousands_are_left() -> None:
    vectors, first_pass = near(3_000), ProjectedCodes("cosine", products, BASIS)
    rows = rows_of(vectors, "cosine", first_pass)
    unit = vectors[1] / np.linalg.norm(vectors[1])

    assert first_pass.width == 13
    assert 10 <= len(first_pass.candidates(rows, unit, 10, Selection(mask=None, count=3_000))) < 100


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("share", [1.0, 0.6, 0.1, 0.001])
def test_they_find_what_is_found_without_them(metric: Metric, share: float) -> None:
    vectors = near(2_000)
    fast = rows_of(vectors, metric, ProjectedCodes(metric, products, BASIS))
    plain = rows_of(vectors, metric, None)
    allowed = np.random.default_rng(1).random(2_000) < share
    allowed[:700] &= share > 0.7  # so that a whole block may have none

    for query in (*vectors[:5], np.ones(DIMENSION, np.float32), np.float32(1e-44) * vectors[0]):
        if metric == "cosine" and np.abs(query).max() < 1e-40:
            continue
        for k in (1, 10, 500):
            among = Selection.of(allowed)
            expected = nearest(plain, query, k, metric=metric, among=among)
            assert nearest(fast, query, k, metric=metric, among=among) == expected


@pytest.mark.parametrize("metric", METRICS)
def test_codes_move_with_their_rows(metric: Metric) -> None:
    vectors, first_pass = near(2_000), ProjectedCodes(metric, products, BASIS)
    rows = rows_of(vectors, metric, first_pass)
    first_pass.candidates(rows, vectors[0], 5, Selection(mask=None, count=2_000))
    kept = np.flatnonzero(np.arange(2_000) % 3)
    moved = first_pass.moved(kept, rows.scales)

    assert type(moved) is ProjectedCodes
    assert moved.pending(len(kept)) == 0
    left, plain = rows_of(vectors[kept], metric, moved), rows_of(vectors[kept], metric, None)
    among = Selection(mask=None, count=len(kept))
    for query in vectors[:10]:
        expected = nearest(plain, query, 7, metric=metric, among=among)
        assert nearest(left, query, 7, metric=metric, among=among) == expected
