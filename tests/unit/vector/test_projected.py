"""Codes of heads: learned when there are many rows, again when there are many more, and judged."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.testing.aio import run
from lib.vector import InMemoryVectorStore, Metric, Record, exact, projected
from lib.vector.codes import Codes
from lib.vector.exact import Rows, Selection, nearest, row_lengths, scales
from lib.vector.projected import LearningCodes, ProjectedCodes

Matrix = NDArray[np.float32]
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]
DIMENSION = 256


def products(code: NDArray[np.uint8], codes: NDArray[np.uint8]) -> Matrix:
    return (codes.astype(np.int64) @ code[0].astype(np.int64)).astype(np.float32)


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 0)
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS_GATHERED", 0)


def flat(size: int, away: float = 0.0) -> Matrix:
    """Return rows in a few directions, some of them alike, each so far away from them."""
    noise = np.random.default_rng(5)
    points = noise.standard_normal((size, 12))
    points[::90] = points[0]
    rows = points @ noise.standard_normal((12, DIMENSION))
    return (rows + away * noise.standard_normal(rows.shape)).astype(np.float32)


def learning(metric: Metric, at: int = 500) -> LearningCodes:
    return LearningCodes(metric, Codes(metric, DIMENSION, products), products, at)


def kind(codes: LearningCodes) -> type[Codes]:
    return type(codes._codes)  # pyright: ignore[reportPrivateUsage] - which of the two


def rows_of(vectors: Matrix, metric: Metric, codes: LearningCodes | None) -> Rows:
    return Rows(
        ids=[f"{row:05}" for row in range(len(vectors))],
        vectors=vectors,
        scales=scales(row_lengths(vectors), metric),
        first_pass=codes,
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("share", [1.0, 0.6, 0.1, 0.001])
def test_they_find_what_is_found_without_them(metric: Metric, share: float) -> None:
    vectors, codes = flat(2_000), learning(metric)
    with_codes, without = rows_of(vectors, metric, codes), rows_of(vectors, metric, None)
    mask = np.random.default_rng(1).random(len(vectors)) < share
    among = Selection.of(mask) if share < 1 else Selection(mask=None, count=len(vectors))

    for query in (*vectors[:5], np.ones(DIMENSION, np.float32)):
        for k in (1, 10, 500):
            expected = nearest(without, query, k, metric=metric, among=among)
            assert nearest(with_codes, query, k, metric=metric, among=among) == expected
    assert kind(codes) is ProjectedCodes or not among.count


def test_few_rows_of_thousands_are_left() -> None:
    vectors, codes = flat(3_000), learning("cosine")
    rows = rows_of(vectors, "cosine", codes)
    among = Selection(mask=None, count=3_000)
    unit = vectors[1] / np.linalg.norm(vectors[1])

    assert 10 <= len(codes.candidates(rows, unit, 10, among)) < 60


def test_a_basis_is_learned_once_there_is_enough_and_again_with_four_times_as_much() -> None:
    vectors, codes = flat(4_000), learning("dot", at=500)
    kinds: list[type[Codes]] = []
    bases: set[int] = set()
    for size in (100, 499, 500, 700, 1_999, 2_000, 2_100):
        rows = rows_of(vectors[:size], "dot", codes)
        assert codes.pending(size) > 0
        nearest(rows, vectors[0], 5, metric="dot", among=Selection(mask=None, count=size))
        assert codes.pending(size) == 0
        kinds.append(kind(codes))
        bases.add(id(codes._codes))  # pyright: ignore[reportPrivateUsage] - which it is

    assert kinds == [Codes, Codes, *[ProjectedCodes] * 5]
    assert len(bases) == 3


def test_where_later_rows_lie_everywhere_they_are_coded_as_they_are() -> None:
    noise = np.random.default_rng(7).standard_normal((5_000, DIMENSION)).astype(np.float32)
    vectors, codes = np.concatenate([flat(600), noise]), learning("dot", at=500)
    for size in (600, 5_600):
        rows = rows_of(vectors[:size], "dot", codes)
        nearest(rows, vectors[0], 5, metric="dot", among=Selection(mask=None, count=size))

    assert kind(codes) is Codes

    never = learning("dot", at=500)
    for size in (600, 2_400):
        rows = rows_of(noise[:size], "dot", never)
        nearest(rows, vectors[0], 5, metric="dot", among=Selection(mask=None, count=size))
        assert kind(never) is Codes


def test_a_basis_that_leaves_too_much_of_the_asked_for_is_given_up() -> None:
    vectors, codes = flat(2_000, away=0.2), learning("cosine")
    rows, plain = rows_of(vectors, "cosine", codes), rows_of(vectors, "cosine", None)
    among = Selection(mask=None, count=2_000)
    elsewhere = np.random.default_rng(9).standard_normal((80, DIMENSION)).astype(np.float32)

    kinds: list[type[Codes]] = []
    for query in elsewhere:  # nothing of these lies where the rows do
        found = nearest(rows, query, 5, metric="cosine", among=among)
        assert found == nearest(plain, query, 5, metric="cosine", among=among)
        kinds.append(kind(codes))
    assert kinds[0] is ProjectedCodes
    assert kinds[-1] is Codes

    kept, usual = learning("cosine"), rows_of(vectors, "cosine", None)
    judged = Rows(ids=usual.ids, vectors=vectors, scales=usual.scales, first_pass=kept)
    for query in vectors[:80]:
        nearest(judged, query, 5, metric="cosine", among=among)
    assert kind(kept) is ProjectedCodes


@pytest.mark.parametrize("metric", METRICS)
def test_codes_move_with_their_rows(metric: Metric) -> None:
    vectors, codes = flat(2_000), learning(metric)
    rows = rows_of(vectors, metric, codes)
    nearest(rows, vectors[0], 5, metric=metric, among=Selection(mask=None, count=2_000))
    kept = np.flatnonzero(np.arange(2_000) % 3)
    moved = codes.moved(kept, rows.scales)

    assert kind(moved) is ProjectedCodes
    assert moved.pending(len(kept)) == 0
    left, plain = rows_of(vectors[kept], metric, moved), rows_of(vectors[kept], metric, None)
    among = Selection(mask=None, count=len(kept))
    for query in vectors[:10]:
        expected = nearest(plain, query, 7, metric=metric, among=among)
        assert nearest(left, query, 7, metric=metric, among=among) == expected


def test_two_that_search_at_once_learn_once() -> None:
    codes = learning("dot")
    codes._learn(flat(600))  # pyright: ignore[reportPrivateUsage] - the first
    known = codes._codes  # pyright: ignore[reportPrivateUsage] - which it is
    codes._learn(flat(600))  # pyright: ignore[reportPrivateUsage] - the second, which has waited

    assert codes._codes is known  # pyright: ignore[reportPrivateUsage] - which it is


@pytest.mark.parametrize("installed", [True, False])
def test_a_store_learns_as_it_grows_and_answers_alike(
    monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    monkeypatch.setattr(projected, "_LEARNING_CELLS", 300 * DIMENSION)
    monkeypatch.setattr(projected, "fast_products", lambda: products if installed else None)
    monkeypatch.setattr("lib.vector.codes.fast_products", lambda: products if installed else None)
    vectors = flat(1_500)

    async def answers() -> list[object]:
        store, found = InMemoryVectorStore(), list[object]()
        for start in range(0, 1_500, 250):
            batch = [Record(f"{row:05}", vectors[row]) for row in range(start, start + 250)]
            await store.upsert(batch)
            await store.delete([f"{row:05}" for row in range(start, start + 80)])
            found += [await store.query(query, 20) for query in vectors[:4]]
        return found

    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 0 if installed else 1 << 40)
    with_codes = run(answers())
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 1 << 40)
    assert with_codes == run(answers())
