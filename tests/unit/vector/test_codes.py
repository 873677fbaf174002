"""Prepared rows: how many a search leaves, that they follow the rows, and what they cost."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.vector import Metric
from lib.vector.exact import codes as module
from lib.vector.exact.bounds import View
from lib.vector.exact.codes import Codes, Coding, Prepared
from lib.vector.exact.search import Rows, Selection, effort, nearest, row_lengths, scales

Matrix = NDArray[np.float32]
Codes8 = NDArray[np.uint8]
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]


def products(code: Codes8, codes: Codes8) -> Matrix:
    return (codes.astype(np.int64) @ code[0].astype(np.int64)).astype(np.float32)


def codes_of(metric: Metric, *, least_rows: int = 1, coded: bool = True) -> Codes:
    driver = products if coded else None
    return Codes(Coding(metric=metric, products=driver, least_rows=least_rows))


def everywhere(size: int, dimension: int) -> Matrix:
    return np.random.default_rng(11).standard_normal((size, dimension)).astype(np.float32)


def rows_of(vectors: Matrix, metric: Metric, codes: Codes) -> Rows:
    ids = [f"{row:05}" for row in range(len(vectors))]
    return Rows(ids=ids, vectors=vectors, scales=scales(row_lengths(vectors), metric), codes=codes)


def searched(vectors: Matrix, codes: Codes, metric: Metric = "dot") -> list[tuple[int, float]]:
    rows = rows_of(vectors, metric, codes)
    return nearest(rows, vectors[0], 5, metric=metric, among=whole(len(vectors)))


def whole(size: int) -> Selection:
    return Selection(mask=None, count=size)


def prepared(vectors: Matrix, metric: Metric, *, coded: bool = True) -> Prepared:
    """Return all of these rows, prepared."""
    codes, lengths = codes_of(metric, coded=coded), scales(row_lengths(vectors), metric)
    while codes.pending(len(vectors)):
        codes.ready(vectors, lengths)
    ready = codes.ready(vectors, lengths)
    assert ready is not None
    return ready


def with_one_long(vectors: Matrix) -> Matrix:
    vectors[17] *= 10_000
    return vectors


DATA = {
    "isotropic": everywhere(20_000, 96),
    "with an offset": everywhere(20_000, 96) + np.float32(100),
    "one long row": with_one_long(everywhere(20_000, 96)),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("metric", METRICS)
def test_codes_leave_a_few_rows_of_thousands(metric: Metric, data: str) -> None:
    vectors = DATA[data]
    ready, query = prepared(vectors, metric), vectors[3]

    rows = rows_of(vectors, metric, codes_of(metric, least_rows=1 << 30))
    found = nearest(rows, query, 10, metric=metric, among=whole(len(vectors)))
    view = View(query, metric, ready.centre)
    worths = ready.worths(view, slice(0, len(vectors)))
    left = np.flatnonzero(worths >= view.least(found[-1][1]))

    assert {row for row, _ in found} <= set(left.tolist())
    assert len(left) < 250


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_rows_that_share_an_offset_are_distinguished_without_codes(metric: Metric) -> None:
    vectors = DATA["with an offset"]
    ready, lengths = prepared(vectors, metric, coded=False), scales(row_lengths(vectors), metric)
    view = View(vectors[3], metric, ready.centre)
    dots = vectors @ view.vector.astype(np.float32)
    worths = view.of_floats(dots, lengths, ready.halves(slice(0, len(vectors))))

    rows = rows_of(vectors, metric, codes_of(metric, least_rows=1 << 30))
    found = nearest(rows, vectors[3], 10, metric=metric, among=whole(len(vectors)))
    left = np.flatnonzero(worths >= view.least(found[-1][1]))
    assert {row for row, _ in found} <= set(left.tolist())
    assert len(left) < 100


def test_threads_that_share_a_scan_read_each_row_once() -> None:
    vectors, sizes = everywhere(1_000, 64), list[int]()

    def watched(code: Codes8, codes: Codes8) -> Matrix:
        sizes.append(len(codes))
        return products(code, codes)

    codes = Codes(Coding(metric="dot", products=watched, least_rows=1, shared_bytes=1))
    for _ in range(9):
        searched(vectors, codes)
    sizes.clear()
    found = searched(vectors, codes)

    assert sum(sizes) == 1_000
    assert len(sizes) > 1
    assert found == searched(vectors, codes_of("dot", coded=False))


@pytest.mark.parametrize(("dimension", "width"), [(1, 64), (64, 64), (65, 128), (384, 384)])
def test_codes_fill_whole_registers_with_zeros(dimension: int, width: int) -> None:
    vectors, seen = everywhere(300, dimension), list[tuple[int, ...]]()

    def watched(code: Codes8, codes: Codes8) -> Matrix:
        seen.extend((code.shape, codes.shape))
        assert not code[:, dimension:].any()
        assert not codes[:, dimension:].any()
        assert codes.ctypes.data % 64 == 0
        return products(code, codes)

    codes = Codes(Coding(metric="dot", products=watched, least_rows=1))
    for _ in range(9):
        searched(vectors, codes)
    moved = codes.moved(np.arange(0, 300, 2))
    searched(vectors[::2].copy(), moved)

    assert seen[-4:] == [(1, width), (300, width), (1, width), (150, width)]


def test_a_search_prepares_an_eighth_of_the_rows_until_all_are() -> None:
    vectors, codes = everywhere(8_000, 16), codes_of("dot")
    pending: list[int] = []
    while codes.pending(8_000):
        pending.append(codes.pending(8_000))
        searched(vectors, codes)
    assert pending == [1_001] * 7 + [993]
    assert codes.coded(8_000) == 8_000
    assert codes.coded(500) == 500
    assert [codes.pending(size) for size in (8_000, 8_010, 31_999, 32_000)] == [0, 10, 4_000, 4_001]


def test_another_centre_is_taken_with_four_times_as_many_rows_and_used_once_it_has_got_as_far() -> (
    None
):
    vectors = everywhere(4_000, 16)
    vectors[1_000:] += 1_000
    codes, lengths = codes_of("euclidean"), row_lengths(vectors).astype(np.float32)
    while codes.pending(1_000):
        codes.ready(vectors[:1_000], lengths[:1_000])
    first = codes.ready(vectors[:1_000], lengths[:1_000])
    assert first is not None
    assert codes.ready(vectors[:3_999], lengths[:3_999]) is first

    seen = [codes.ready(vectors, lengths) for _ in range(9)]
    assert seen[0] is first  # with what it has
    assert seen[-1] is not first
    assert seen[-1] is not None
    assert seen[-1].size == 4_000
    assert np.abs(seen[-1].centre - 1_000).max() < 1
    assert np.abs(first.centre).max() < 1


def test_codes_of_few_rows_are_not_read_and_fewer_rows_are_not_prepared() -> None:
    vectors, codes = everywhere(1_000, 16), codes_of("dot", least_rows=800)
    lengths = row_lengths(vectors).astype(np.float32)
    assert codes.ready(vectors[:99], lengths[:99]) is None
    assert codes.pending(99) == codes.coded(1_000) == 0
    assert codes.ready(vectors[:100], lengths[:100]) is not None
    assert [codes.pays(count) for count in (799, 800)] == [False, True]
    assert [codes.pays(count, collected=True) for count in (159, 160)] == [False, True]
    assert not codes_of("cosine", coded=False).pays(800)


def test_effort_counts_what_is_prepared_and_then_what_is_read() -> None:
    vectors, codes = everywhere(8_000, 16), codes_of("dot")
    rows, some = rows_of(vectors, "dot", codes), Selection.of(np.arange(8_000) < 800)
    assert effort(rows, whole(8_000)) == (8_000 + 8 * 1_001) * 16
    while codes.pending(8_000):
        searched(vectors, codes)
    assert effort(rows, whole(8_000)) == 8_000 * 16 // 4
    assert effort(rows, some) == 2 * 800 * 16 // 4
    few = Selection.of(np.arange(8_000) < 40)  # which are scored without a first pass
    assert effort(rows, few) == 10 * 40 * 16


@pytest.mark.parametrize("metric", METRICS)
def test_what_is_prepared_moves_with_the_rows(metric: Metric) -> None:
    vectors = everywhere(2_000, 16)
    codes, plain = codes_of(metric), codes_of(metric, least_rows=1 << 30)
    lengths = scales(row_lengths(vectors), metric)
    for _ in range(4):
        codes.ready(vectors, lengths)
    kept = np.flatnonzero(np.arange(2_000) % 3)
    moved = codes.moved(kept)

    assert codes.coded(2_000) == 1_004
    assert moved.coded(2_000) == np.count_nonzero(kept < 1_004)
    for query in vectors[:20]:
        found = [
            nearest(
                rows_of(vectors[kept], metric, by), query, 5, metric=metric, among=whole(len(kept))
            )
            for by in (moved, plain)
        ]
        assert found[0] == found[1]


def test_threads_that_search_at_once_prepare_each_row_once() -> None:
    vectors, codes = everywhere(6_000, 32), codes_of("dot")
    plain = codes_of("dot", least_rows=1 << 30)
    expected = searched(vectors, plain)
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(searched, [vectors] * 60, [codes] * 60))
    assert found == [expected] * 60
    assert codes.coded(6_000) == 6_000


def test_codes_are_not_used_where_their_sums_could_overflow() -> None:
    assert Coding.of("cosine", 16_384).products is module.fast_products()
    assert Coding.of("cosine", 16_385).products is None
    assert Coding.of("dot", 16_385).least_rows == sys.maxsize  # there is nothing to prepare


def test_codes_are_used_where_their_package_is_installed_and_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast_products = module.fast_products.__wrapped__
    error = 0

    class StandIn:
        @staticmethod
        def cdist(code: Codes8, codes: Codes8, _: str, *, out_dtype: str) -> object:
            assert out_dtype == "float32"
            return products(code, codes)[np.newaxis] + np.float32(error)

    monkeypatch.setitem(sys.modules, "simsimd", None)
    assert fast_products() is None
    monkeypatch.setitem(sys.modules, "simsimd", StandIn)
    found = fast_products()
    assert found is not None
    assert found(np.array([[1, 2]], np.uint8), np.array([[3, 4]], np.uint8)).tolist() == [11]
    error = 1
    assert fast_products() is None


def test_the_real_package_multiplies_codes_right_up_to_the_longest() -> None:
    fast_products = module.fast_products()
    if fast_products is None:
        pytest.skip("simsimd is not installed")
    noise = np.random.default_rng(1)
    for dimension in (1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 384, 1537, 16_384):
        codes = noise.integers(0, 256, (5, dimension)).astype(np.uint8)
        codes[0], codes[1] = 255, 0
        for row in range(5):
            query = np.ascontiguousarray(codes[row : row + 1])
            assert np.array_equal(fast_products(query, codes), products(query, codes))


def test_the_bound_holds_for_a_query_next_to_nothing() -> None:
    noise = np.random.default_rng(0)
    for _ in range(200):
        query = (noise.integers(-20_000, 20_000, 17) * 2.0**-149).astype(np.float32)
        alike = 1 + noise.standard_normal((300, 17)) * 2e-7
        vectors = (noise.standard_normal(17) * alike * 1e16).astype(np.float32)
        view, lengths = View(query, "dot", None), scales(row_lengths(vectors), "dot")

        bound = view.of_floats(vectors @ query, lengths, None)

        assert (bound >= vectors.astype(np.float64) @ query.astype(np.float64)).all()
