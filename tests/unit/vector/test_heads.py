"""Heads in 32 bits: never below a score, whatever the lengths; they follow their rows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.vector import Metric
from lib.vector.exact import search as exact
from lib.vector.exact.accel import heads
from lib.vector.exact.accel.basis import Basis
from lib.vector.exact.accel.heads import Heads
from lib.vector.exact.search import Rows, Selection, nearest, row_lengths, scales

Matrix = NDArray[np.float32]
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]
DIMENSION = 64
NOISE = np.random.default_rng(2)
DIRECTIONS, _ = np.linalg.qr(NOISE.standard_normal((DIMENSION, 12)))
BASIS = Basis.of(DIRECTIONS)


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 0)
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS_GATHERED", 0)


def near(size: int, away: float = 0.0) -> Matrix:
    """Return rows of length 1 in the directions of the basis, or so far away from them."""
    noise = np.random.default_rng(size)
    rows = noise.standard_normal((size, 12)) @ DIRECTIONS.T
    rows += away * noise.standard_normal(rows.shape)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def rows_of(vectors: Matrix, metric: Metric, first_pass: Heads | None) -> Rows:
    return Rows(
        ids=[f"{row:05}" for row in range(len(vectors))],
        vectors=vectors,
        scales=scales(row_lengths(vectors), metric),
        first_pass=first_pass,
    )


def whole(vectors: Matrix) -> Selection:
    return Selection(mask=None, count=len(vectors))


@pytest.mark.parametrize("metric", METRICS)
def test_a_few_rows_of_thousands_are_left(metric: Metric) -> None:
    vectors = near(20_000, away=0.01)
    first_pass = Heads(metric, BASIS)
    rows = rows_of(vectors, metric, first_pass)

    assert first_pass.width == 13
    assert first_pass.pending(20_000) == 20_000
    for query in vectors[:5]:
        assert 10 <= len(first_pass.candidates(rows, query, 10, whole(vectors))) < 400
    assert first_pass.pending(20_000) == 0


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("row_scale", [2.0**-149, 2.0**-101, 2.0**-99, 1.0, 2.0**61])
@pytest.mark.parametrize("query_scale", [2.0**-148, 2.0**-140, 2.0**-110, 1.0, 2.0**61])
def test_they_find_what_is_found_without_them_however_long_vectors_are(
    metric: Metric, row_scale: float, query_scale: float
) -> None:
    if metric == "cosine" and min(row_scale, query_scale) < 2.0**-62:
        row_scale, query_scale = max(row_scale, 2.0**-61), max(query_scale, 2.0**-61)
    for away in (0.0, 0.1):
        vectors, queries = near(300, away) * np.float32(row_scale), near(300, away)[:12]
        vectors[5] = vectors[6]
        if metric != "cosine":
            vectors[7] = 0.0
        for query in queries * np.float32(4.0 * query_scale if query_scale < 1.0 else query_scale):
            plain, fast = rows_of(vectors, metric, None), Heads(metric, BASIS)
            expected = nearest(plain, query, 5, metric=metric, among=whole(vectors))
            rows = rows_of(vectors, metric, fast)
            assert nearest(rows, query, 5, metric=metric, among=whole(vectors)) == expected


@pytest.mark.parametrize("metric", METRICS)
def test_lengths_of_all_sizes_and_equal_keys_leave_no_one_out(metric: Metric) -> None:
    noise = np.random.default_rng(8)
    vectors = near(1_000, away=0.05) * (10.0 ** noise.integers(-18, 18, (1_000, 1)))
    vectors = vectors.astype(np.float32)
    vectors[::3] = vectors[0]
    plain, fast = rows_of(vectors, metric, None), rows_of(vectors, metric, Heads(metric, BASIS))

    for share in (1.0, 0.6, 0.1, 0.002):
        allowed = noise.random(1_000) < share
        allowed[0] = True
        among = Selection.of(allowed)
        for query in (vectors[0], vectors[1], vectors[500], -vectors[2]):
            for k in (1, 7, 400, 1_000, 5_000):
                expected = nearest(plain, query, k, metric=metric, among=among)
                assert nearest(fast, query, k, metric=metric, among=among) == expected


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_the_query_may_be_nothing(metric: Metric) -> None:
    vectors, nothing = near(300), np.zeros(DIMENSION, np.float32)
    plain, fast = rows_of(vectors, metric, None), rows_of(vectors, metric, Heads(metric, BASIS))

    expected = nearest(plain, nothing, 9, metric=metric, among=whole(vectors))
    assert nearest(fast, nothing, 9, metric=metric, among=whole(vectors)) == expected


@pytest.mark.parametrize("metric", METRICS)
def test_heads_move_with_their_rows(metric: Metric) -> None:
    vectors = near(2_000, away=0.05)
    first_pass = Heads(metric, BASIS)
    rows, known = rows_of(vectors, metric, None), rows_of(vectors[:1_500], metric, first_pass)
    first_pass.candidates(known, vectors[0], 5, whole(vectors[:1_500]))

    kept = np.flatnonzero(np.arange(2_000) % 3 > 0)
    moved = first_pass.moved(kept, rows.scales)
    assert moved.pending(len(kept)) == len(kept) - 1_000  # those that had none have none
    assert first_pass.pending(1_500) == 0
    left, plain = rows_of(vectors[kept], metric, moved), rows_of(vectors[kept], metric, None)
    for query in vectors[:20]:
        expected = nearest(plain, query, 7, metric=metric, among=whole(left.vectors))
        assert nearest(left, query, 7, metric=metric, among=whole(left.vectors)) == expected


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_a_row_that_was_far_longer_than_all_others_is_forgotten_with_it(metric: Metric) -> None:
    vectors = near(3_000)
    vectors[1_000] *= np.float32(1e9)
    first_pass = Heads(metric, BASIS)
    rows = rows_of(vectors, metric, first_pass)
    assert len(first_pass.candidates(rows, vectors[0], 10, whole(vectors))) > 2_000

    kept = np.flatnonzero(np.arange(3_000) != 1_000)
    moved = first_pass.moved(kept, rows.scales)
    left = rows_of(vectors[kept], metric, moved)
    assert len(moved.candidates(left, vectors[0], 10, whole(left.vectors))) < 100


@pytest.mark.parametrize("metric", METRICS)
def test_threads_that_search_while_rows_are_added_find_each_the_rows_they_know(
    metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_PROJECTED_CELLS", 7 * DIMENSION)
    vectors = near(3_000, away=0.05)
    vectors *= np.linspace(1.0, 50.0, 3_000, dtype=np.float32)[:, np.newaxis]
    shared = Heads(metric, BASIS)
    sizes: list[int] = np.random.default_rng(4).permutation(np.arange(20, 3_000, 60)).tolist()

    def found(size: int, first_pass: Heads | None = shared) -> list[tuple[int, float]]:
        some = vectors[:size]
        rows = rows_of(some, metric, first_pass)
        return nearest(rows, vectors[size % 7], 5, metric=metric, among=whole(some))

    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(found, sizes))
    assert together == [found(size, None) for size in sizes]
    assert shared.pending(2_960) == 0


def copied(first_pass: Heads) -> int:
    """Return how many heads it keeps a second time."""
    chosen = first_pass._copied  # pyright: ignore[reportPrivateUsage] - what it keeps is tested
    return 0 if chosen is None else len(chosen.heads)


def half(vectors: Matrix, first: int = 0) -> Selection:
    return Selection.of(np.arange(len(vectors)) % 2 == first)


def test_the_heads_of_a_repeated_selection_are_kept_side_by_side() -> None:
    vectors = near(2_000, away=0.05)
    first_pass = Heads("dot", BASIS)
    fast, plain = rows_of(vectors, "dot", first_pass), rows_of(vectors, "dot", None)
    even, odd, few = half(vectors), half(vectors, 1), Selection.of(np.arange(2_000) < 300)

    kept: list[int] = []
    for among in (even, even, odd, few, few, whole(vectors), few, even, whole(vectors), even):
        for query in vectors[:9]:
            expected = nearest(plain, query, 7, metric="dot", among=among)
            found = nearest(fast, query, 7, metric="dot", among=among)
            assert found == expected
            if among is even:
                break
        kept.append(copied(first_pass))
    assert kept == [0, 1_000, 1_000, 300, 300, 300, 300, 300, 300, 1_000]


def test_a_rare_selection_is_not_copied() -> None:
    vectors = near(2_000)
    first_pass = Heads("dot", BASIS)
    rows, even, odd = rows_of(vectors, "dot", first_pass), half(vectors), half(vectors, 1)
    for among in (even, odd, whole(vectors), even, odd, even):
        nearest(rows, vectors[0], 7, metric="dot", among=among)
    assert copied(first_pass) == 0


@pytest.mark.parametrize("too_much", ["for the cache", "to save anything"])
def test_what_would_save_little_is_not_copied(
    too_much: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = near(2_000)
    first_pass = Heads("dot", BASIS)
    rows, among = rows_of(vectors, "dot", first_pass), half(vectors)
    if too_much == "for the cache":
        monkeypatch.setattr(heads, "CACHE_BYTES", 1_000 * first_pass.width * 4 - 1)
    else:
        among = Selection.of(np.arange(2_000) % 5 > 0)
    for _ in range(3):
        nearest(rows, vectors[0], 7, metric="dot", among=among)
    assert copied(first_pass) == 0


def test_a_copy_does_not_outlive_the_rows_that_were_there() -> None:
    vectors = near(2_000)
    first_pass = Heads("dot", BASIS)
    among = half(vectors[:1_500])
    for _ in range(2):
        rows = rows_of(vectors[:1_500], "dot", first_pass)
        nearest(rows, vectors[0], 7, metric="dot", among=among)
    assert copied(first_pass) == 750
    nearest(rows_of(vectors, "dot", first_pass), vectors[0], 7, metric="dot", among=whole(vectors))
    assert copied(first_pass) == 0


@pytest.mark.parametrize("size", [1, 29, 630, 631, 5_000])
@pytest.mark.parametrize("bytes_at_once", [0, 1 << 30])
def test_products_are_the_same_by_one_thread_and_by_many(
    size: int, bytes_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_ONE_THREAD_BYTES", bytes_at_once)
    vectors = near(size, away=0.05)
    rows, plain = rows_of(vectors, "dot", Heads("dot", BASIS)), rows_of(vectors, "dot", None)
    some = Selection.of(np.arange(size) % 5 == 0)

    for among in (whole(vectors), some, some):
        expected = nearest(plain, vectors[0], 7, metric="dot", among=among)
        assert nearest(rows, vectors[0], 7, metric="dot", among=among) == expected


def test_heads_that_the_cache_holds_are_read_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = near(1_000)
    first_pass = Heads("dot", BASIS)
    first_pass.candidates(rows_of(vectors, "dot", first_pass), vectors[0], 7, whole(vectors))

    monkeypatch.setattr(heads, "_ONE_THREAD_BYTES", 1_000 * 4 * first_pass.width)
    assert first_pass.speedup == 4 * DIMENSION // 13
    monkeypatch.setattr(heads, "_ONE_THREAD_BYTES", 1_000 * 4 * first_pass.width - 1)
    assert first_pass.speedup == DIMENSION // 13
