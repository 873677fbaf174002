"""Searching fast finds what searching plainly finds, in the same order, with the same scores."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from lib.vector import Metric
from lib.vector.exact.bounds import reached
from lib.vector.exact.codes import Codes, Coding, fast_products
from lib.vector.exact.search import Rows, Selection, nearest, row_lengths, scales
from lib.vector.validate import MIN_LENGTH

Matrix = NDArray[np.float32]


def plainly(
    vectors: Matrix, query: Matrix, k: int, metric: Metric, *, rows: list[int], ids: list[str]
) -> list[tuple[int, float]]:
    """Return the k nearest of the rows, one row at a time."""
    wide, target = vectors.astype(np.float64), query.astype(np.float64)
    scores: dict[int, float] = {}
    for row in rows:
        if metric == "euclidean":
            score = np.sqrt(((wide[row] - target) ** 2).sum())
        else:
            score = (wide[row] * target).sum()
        if metric == "cosine":
            score /= np.sqrt((wide[row] * wide[row]).sum() * (target * target).sum())
        scores[row] = float(np.float32(score))
    sign = 1 if metric == "euclidean" else -1
    return [(row, scores[row]) for row in sorted(rows, key=lambda r: (sign * scores[r], ids[r]))][
        :k
    ]


def searched(
    vectors: Matrix, ids: list[str], metric: Metric, *, by: str, shared_bytes: int = 1 << 20
) -> Rows:
    """Return rows that are prepared from the first search on; as they are, of "floats"."""
    driver = {"codes": products, "driver": fast_products()}.get(by)
    if by == "driver" and driver is None:
        pytest.skip("simsimd is not installed")
    coding = Coding(metric=metric, products=driver, least_rows=1, shared_bytes=shared_bytes)
    codes = None if by == "floats" else Codes(coding)
    lengths = row_lengths(vectors)
    return Rows(ids=ids, vectors=vectors, scales=scales(lengths, metric), codes=codes)


def products(code: NDArray[np.uint8], codes: NDArray[np.uint8]) -> Matrix:
    return (codes.astype(np.int64) @ code[0].astype(np.int64)).astype(np.float32)


def allowing(mask: NDArray[np.bool_] | None, size: int) -> Selection:
    return Selection(mask=None, count=size) if mask is None else Selection.of(mask)


FIRST_PASSES = ["floats", "centred floats", "codes", "driver"]

# Few values, so that many scores are equal or nearly so; and values of all sizes.
few = st.sampled_from([0.0, 1.0, -1.0, 1.0 + 2**-23, 1.0 - 2**-24, 3.0, 0.1])
many = st.floats(-1e9, 1e9, width=32) | st.floats(-1, 1, width=32)
offset = st.floats(1e6, 1e6 + 2, width=32)
extreme = st.sampled_from(
    [0.0, 1.0, 2.0**-149, -(2.0**-147), 2.0**-126, 2.0**-99, 2.0**60, -(2.0**59)]
)


@pytest.mark.parametrize("by", FIRST_PASSES)
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@given(data=st.data())
def test_a_search_misses_no_row_of_the_exact_answer(
    metric: Metric, by: str, data: st.DataObject
) -> None:
    draw: Any = data.draw
    size, dimension = draw(st.integers(1, 40)), draw(st.integers(1, 9))
    elements = draw(st.sampled_from([few, many, offset, extreme]))
    vectors = draw(arrays.arrays(np.float32, (size + 1, dimension), elements=elements))
    if metric == "cosine":
        vectors[row_lengths(vectors) < MIN_LENGTH] = 1.0
    vectors, query = np.ascontiguousarray(vectors[:-1]), vectors[-1]
    allowed = draw(st.none() | arrays.arrays(np.bool_, size))
    ids = draw(st.permutations([f"{number:02}" for number in range(size)]))
    k, at_once = draw(st.integers(1, 12)), draw(st.sampled_from([0, 20]))

    rows = searched(
        vectors, ids, metric, by=by, shared_bytes=draw(st.sampled_from([1, 300, 1 << 20]))
    )
    among = allowing(allowed, size)
    found = [
        nearest(rows, query, k, metric=metric, among=among, at_once=at_once) for _ in range(10)
    ]

    passing = list(range(size)) if allowed is None else np.flatnonzero(allowed).tolist()
    assert found == [plainly(vectors, query, k, metric, rows=passing, ids=ids)] * 10


@pytest.mark.parametrize("by", FIRST_PASSES)
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_the_answer_is_exact_for_thousands_of_rows_with_near_duplicates(
    metric: Metric, share: float, by: str
) -> None:
    noise = np.random.default_rng(3)
    centres = noise.standard_normal((40, 64))
    vectors = centres[noise.integers(0, 40, 6000)]
    vectors += noise.choice([0.0, 1e-7, 1e-5, 0.1], (6000, 1)) * noise.standard_normal((6000, 64))
    vectors = (vectors * noise.choice([1.0, 1e-6, 1e6], (6000, 1))).astype(np.float32)
    ids = [str(number) for number in noise.permutation(6000)]
    rows = searched(vectors, ids, metric, by=by)
    allowed = None if share == 1.0 else noise.random(6000) < share
    passing = list(range(6000)) if allowed is None else np.flatnonzero(allowed).tolist()

    for query in vectors[:6]:
        found = nearest(rows, query, 50, metric=metric, among=allowing(allowed, 6000))
        assert found == plainly(vectors, query, 50, metric, rows=passing, ids=ids)


@pytest.mark.parametrize("by", ["centred floats", "codes"])
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_the_answer_is_exact_across_blocks_of_any_scale(metric: Metric, by: str) -> None:
    noise = np.random.default_rng(5)
    vectors = noise.standard_normal((3000, 24)).astype(np.float32)
    vectors *= 10.0 ** noise.integers(-12, 8, (3000, 1))
    vectors[::50] *= np.float32(1e9)
    vectors[7::100] = vectors[0]
    ids = [str(number) for number in noise.permutation(3000)]
    rows = searched(vectors, ids, metric, by=by, shared_bytes=64 * 700)

    for k, share in [(1, 1.0), (10, 1.0), (10, 0.5), (700, 0.9), (2999, 1.0), (5, 0.01)]:
        allowed = noise.random(3000) < share
        passing = np.flatnonzero(allowed).tolist()
        for query in vectors[noise.integers(0, 3000, 4)]:
            found = nearest(rows, query, k, metric=metric, among=allowing(allowed, 3000))
            assert found == plainly(vectors, query, k, metric, rows=passing, ids=ids)


def test_the_position_of_a_row_does_not_change_its_score() -> None:
    noise = np.random.default_rng(4)
    vector = noise.standard_normal(384).astype(np.float32)
    vectors = noise.standard_normal((5000, 384)).astype(np.float32)
    vectors[::7] = vector
    ids = [f"{number:04}" for number in range(5000)]
    rows = searched(vectors, ids, "cosine", by="floats")

    query = noise.standard_normal(384).astype(np.float32)
    found = nearest(rows, query, 5000, metric="cosine", among=allowing(None, 5000))

    same = [(row, score) for row, score in found if row % 7 == 0]
    assert len({score for _, score in same}) == 1
    assert [row for row, _ in same] == list(range(0, 5000, 7))


@given(
    arrays.arrays(np.float32, st.integers(1, 3000), elements=st.floats(-9, 9, width=32), fill=few),
    st.integers(1, 300),
    st.floats(0, 1),
)
def test_at_least_k_values_reach_what_is_returned(worths: Matrix, k: int, share: float) -> None:
    worths[np.random.default_rng(len(worths)).random(len(worths)) < share] = -np.inf
    k = min(k, int((worths > -np.inf).sum()))
    if k:
        least = reached(worths, k)
        assert -np.inf < least <= np.sort(worths)[-k]
