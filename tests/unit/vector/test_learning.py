"""A first pass that learns when there are many rows, again when there are more, and is judged."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.testing.aio import run
from lib.vector import InMemoryVectorStore, Metric, Record
from lib.vector.exact import search as exact
from lib.vector.exact.accel import adaptive
from lib.vector.exact.accel.adaptive import LearningPass
from lib.vector.exact.accel.codes import Codes, Products, ProjectedCodes
from lib.vector.exact.accel.heads import Heads
from lib.vector.exact.search import (
    Everything,
    Rows,
    Selection,
    effort,
    nearest,
    row_lengths,
    scales,
)

Matrix = NDArray[np.float32]
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]
DIMENSION = 256
SHARES = [1.0, 0.6, 0.1, 0.001] if os.environ.get("LIB_TEST_LONG") else [0.6, 0.001]


def products(code: NDArray[np.uint8], codes: NDArray[np.uint8]) -> Matrix:
    return (codes.astype(np.int64) @ code[0].astype(np.int64)).astype(np.float32)


class Setting:
    """An installation, and the searches chosen in it where rows lie near a few directions."""

    def __init__(self, *, installed: bool, cached: bool) -> None:
        self.products: Products | None = products if installed else None
        self.cache_bytes = 24 << 20 if cached else 0
        self.plain: type = Codes if installed else Everything
        self.reduced: type = ProjectedCodes if installed and not cached else Heads


SETTINGS = {
    "codes and a cache": Setting(installed=True, cached=True),
    "codes and no cache": Setting(installed=True, cached=False),
    "floats and a cache": Setting(installed=False, cached=True),
    "floats and no cache": Setting(installed=False, cached=False),
}


@pytest.fixture(params=SETTINGS)
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Setting:
    chosen = SETTINGS[request.param]
    monkeypatch.setattr(adaptive, "CACHE_BYTES", chosen.cache_bytes)
    monkeypatch.setattr(adaptive, "_FLOAT", 8.0)  # slow memory: what is far is worth a code
    monkeypatch.setattr(adaptive, "fast_products", lambda: chosen.products)
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 0)
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS_GATHERED", 0)
    return chosen


@pytest.fixture
def at_500(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "_LEARNING_CELLS", 499 * DIMENSION)
    monkeypatch.setattr(adaptive, "_LEARNING_ROWS", 0)


def flat(size: int, away: float = 0.0) -> Matrix:
    """Return rows in a few directions, some of them alike, each so far away from them."""
    noise = np.random.default_rng(5)
    points = noise.standard_normal((size, 12))
    points[::90] = points[0]
    rows = points @ noise.standard_normal((12, DIMENSION))
    return (rows + away * noise.standard_normal(rows.shape)).astype(np.float32)


def everywhere(size: int) -> Matrix:
    return np.random.default_rng(7).standard_normal((size, DIMENSION)).astype(np.float32)


def by(first_pass: LearningPass) -> Any:
    return first_pass._by  # pyright: ignore[reportPrivateUsage] - what it has chosen


def kind(first_pass: LearningPass) -> type:
    return by(first_pass).__class__


def rows_of(vectors: Matrix, metric: Metric, first_pass: LearningPass | None) -> Rows:
    return Rows(
        ids=[f"{row:05}" for row in range(len(vectors))],
        vectors=vectors,
        scales=scales(row_lengths(vectors), metric),
        first_pass=first_pass,
    )


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that will tell from how many rows was learned each time."""
    learned, calls = adaptive.learned, list[int]()

    def noted(vectors: Matrix, *others: Any) -> Any:
        calls.append(len(vectors))
        return learned(vectors, *others)

    monkeypatch.setattr(adaptive, "learned", noted)
    return calls


def whole(size: int) -> Selection:
    return Selection(mask=None, count=size)


def searched(vectors: Matrix, first_pass: LearningPass, metric: Metric = "dot") -> None:
    rows = rows_of(vectors, metric, first_pass)
    nearest(rows, vectors[0], 5, metric=metric, among=whole(len(vectors)))


@pytest.mark.usefixtures("at_500")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("share", SHARES)
def test_it_finds_what_is_found_without_it(metric: Metric, share: float, setting: Setting) -> None:
    vectors, first_pass = flat(2_000), LearningPass.of(metric, DIMENSION)
    fast, plain = rows_of(vectors, metric, first_pass), rows_of(vectors, metric, None)
    among = Selection.of(np.random.default_rng(1).random(2_000) < share)

    for query in (*vectors[:2], np.ones(DIMENSION, np.float32)):
        for k in (1, 500):
            expected = nearest(plain, query, k, metric=metric, among=among)
            assert nearest(fast, query, k, metric=metric, among=among) == expected
    assert kind(first_pass) is setting.reduced or not among.count


@pytest.mark.usefixtures("at_500")
def test_it_learns_once_there_is_enough_and_again_with_four_times_as_much(setting: Setting) -> None:
    vectors, first_pass = flat(4_000), LearningPass.of("dot", DIMENSION)
    chosen: list[object] = []
    for size in (100, 499, 500, 700, 1_999, 2_000, 2_100):
        to_read = size if setting.plain is Codes or size >= 500 else 0
        assert (first_pass.pending(size) > 0) is (to_read > 0)
        searched(vectors[:size], first_pass)
        assert first_pass.pending(size) == 0
        chosen.append(by(first_pass))

    assert list(map(type, chosen)) == [setting.plain] * 2 + [setting.reduced] * 5
    assert len(set(map(id, chosen))) == 3
    expected = 4 * DIMENSION // by(first_pass).width if setting.reduced is Heads else 4
    assert by(first_pass).speedup == expected
    assert 1 < first_pass.speedup <= expected


@pytest.mark.usefixtures("setting", "at_500")
def test_effort_counts_what_has_to_be_learned_and_then_what_is_read() -> None:
    vectors, first_pass = flat(2_000), LearningPass.of("dot", DIMENSION)
    rows = rows_of(vectors, "dot", first_pass)

    assert effort(rows, whole(2_000)) > 1_000_000_000
    searched(vectors, first_pass)
    assert effort(rows, whole(2_000)) == 2_000 * DIMENSION // first_pass.speedup


@pytest.mark.usefixtures("at_500")
@pytest.mark.parametrize("setting", ["codes and a cache", "floats and a cache"], indirect=True)
def test_it_learns_again_as_soon_as_heads_have_outgrown_the_cache(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive, "CACHE_BYTES", 900 * 4 * 32)
    vectors, first_pass = flat(2_500), LearningPass.of("dot", DIMENSION)
    chosen: list[object] = []
    for size in (600, 900, 901, 902, 2_400, 2_500):
        searched(vectors[:size], first_pass)
        chosen.append(by(first_pass))

    assert by(first_pass).width == 32
    assert isinstance(chosen[0], Heads)
    assert chosen[1] is chosen[0]
    outgrown = Heads if setting.products is None else ProjectedCodes
    assert type(chosen[2]) is outgrown
    assert chosen[2] is not chosen[0]
    assert chosen[3] is chosen[2]  # not again with each row
    assert chosen[4] is chosen[2]
    assert chosen[5] is chosen[2]


@pytest.mark.usefixtures("at_500")
def test_where_later_rows_lie_everywhere_they_are_read_as_they_are(setting: Setting) -> None:
    vectors = np.concatenate([flat(600), 10 * everywhere(2_000)])
    first_pass = LearningPass.of("dot", DIMENSION)
    searched(vectors[:600], first_pass)
    assert kind(first_pass) is setting.reduced
    searched(vectors, first_pass)
    assert kind(first_pass) is setting.plain

    never = LearningPass.of("dot", DIMENSION)
    known = by(never)
    for size in (600, 2_400):
        searched(everywhere(size), never)
        assert by(never) is known


@pytest.mark.usefixtures("at_500")
def test_directions_that_leave_too_much_of_the_queries_are_given_up(setting: Setting) -> None:
    vectors, first_pass = flat(2_000, away=0.2), LearningPass.of("cosine", DIMENSION)
    rows, plain = rows_of(vectors, "cosine", first_pass), rows_of(vectors, "cosine", None)

    _, _, axes = np.linalg.svd(vectors[:100], full_matrices=False)
    elsewhere = everywhere(40)
    elsewhere -= elsewhere @ axes[:12].T @ axes[:12]  # nothing of these lies where the rows do

    kinds: list[type] = []
    for query in elsewhere:
        found = nearest(rows, query, 5, metric="cosine", among=whole(2_000))
        assert found == nearest(plain, query, 5, metric="cosine", among=whole(2_000))
        kinds.append(kind(first_pass))
    assert kinds[:31] == [setting.reduced] * 31
    assert kinds[31:] == [setting.plain] * 9

    kept = LearningPass.of("cosine", DIMENSION)
    judged = rows_of(vectors, "cosine", kept)
    for query in vectors[:40]:
        nearest(judged, query, 5, metric="cosine", among=whole(2_000))
    assert kind(kept) is setting.reduced


@pytest.mark.usefixtures("at_500")
def test_what_searches_leave_counts_as_effort_until_others_leave_less(setting: Setting) -> None:
    vectors, first_pass = flat(2_000), LearningPass.of("dot", DIMENSION)
    rows, few = rows_of(vectors, "dot", first_pass), Selection.of(np.arange(2_000) < 500)
    fewer, nothing = Selection.of(np.arange(2_000) < 400), np.zeros(DIMENSION, np.float32)
    usual = DIMENSION // 32 if setting.reduced is Heads else 4

    for among in (whole(2_000), few):
        nearest(rows, vectors[0], 1, metric="dot", among=among)
        assert first_pass.speedup > usual / 2
        nearest(rows, nothing, 1, metric="dot", among=fewer)
        assert first_pass.speedup > usual / 2
        nearest(rows, nothing, 1, metric="dot", among=among)
        assert first_pass.speedup == 1  # of rows that are all alike, all are left
        for _ in range(30):
            nearest(rows, vectors[0], 1, metric="dot", among=among)
        assert first_pass.speedup > usual / 2


@pytest.mark.usefixtures("at_500")
@pytest.mark.parametrize(("rows", "judged"), [(499, True), (498, False)])
def test_searches_among_many_rows_of_more_are_judged(
    rows: int, judged: bool, setting: Setting
) -> None:
    vectors, first_pass = flat(2_400), LearningPass.of("dot", DIMENSION)
    among = Selection.of(np.arange(2_400) < rows)
    assert among.positions is not None
    nothing = np.zeros(DIMENSION, np.float32)
    for _ in range(32):
        nearest(rows_of(vectors, "dot", first_pass), nothing, 1, metric="dot", among=among)
    assert kind(first_pass) is (setting.plain if judged else setting.reduced)


@pytest.mark.usefixtures("at_500")
def test_a_search_with_what_has_been_given_up_meanwhile_is_not_counted(setting: Setting) -> None:
    first_pass, shape = LearningPass.of("dot", DIMENSION), (600, DIMENSION)
    searched(flat(600), first_pass)
    old = by(first_pass)
    first_pass._learn(flat(2_400))  # pyright: ignore[reportPrivateUsage] - by another thread
    known = by(first_pass)
    for _ in range(40):  # of searches that began before
        first_pass._judge(old, shape, 1.0)  # pyright: ignore[reportPrivateUsage] - late
    assert by(first_pass) is known
    for _ in range(32):
        first_pass._judge(known, shape, 1.0)  # pyright: ignore[reportPrivateUsage] - in time
    assert kind(first_pass) is setting.plain


@pytest.mark.usefixtures("at_500")
@pytest.mark.parametrize("metric", METRICS)
def test_what_is_known_moves_with_the_rows(metric: Metric, setting: Setting) -> None:
    vectors, first_pass = flat(2_000), LearningPass.of(metric, DIMENSION)
    rows = rows_of(vectors, metric, first_pass)
    for size in (300, 2_000):  # as they are, then as heads
        searched(vectors[:size], first_pass, metric)
        kept = np.flatnonzero(np.arange(size) % 3)
        moved = first_pass.moved(kept, rows.scales)

        assert kind(moved) is (setting.plain if size == 300 else setting.reduced)
        assert moved.pending(len(kept)) == 0
        left, plain = rows_of(vectors[kept], metric, moved), rows_of(vectors[kept], metric, None)
        for query in vectors[:10]:
            expected = nearest(plain, query, 7, metric=metric, among=whole(len(kept)))
            assert nearest(left, query, 7, metric=metric, among=whole(len(kept))) == expected


@pytest.mark.usefixtures("at_500", "setting")
def test_threads_that_search_at_once_learn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    vectors, first_pass = flat(1_500), LearningPass.of("dot", DIMENSION)
    rows, plain = rows_of(vectors, "dot", first_pass), rows_of(vectors, "dot", None)

    def found(number: int, among: Rows = rows) -> list[tuple[int, float]]:
        return nearest(among, vectors[number], 5, metric="dot", among=whole(1_500))

    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(found, range(60)))
    assert together == [found(number, plain) for number in range(60)]
    assert calls == [1_500]


@pytest.mark.usefixtures("setting")
def test_one_that_has_waited_for_another_to_learn_does_not_learn_again() -> None:
    first_pass = LearningPass("dot", products, Everything("dot"), 500)
    first_pass._learn(flat(600))  # pyright: ignore[reportPrivateUsage] - the first
    known = by(first_pass)
    first_pass._learn(flat(600))  # pyright: ignore[reportPrivateUsage] - the second

    assert by(first_pass) is known


@pytest.mark.parametrize(("dimension", "rows"), [(384, 5_462), (768, 3_072), (1_536, 6_144)])
def test_it_learns_where_there_is_much_to_read_and_more_rows_than_dimensions(
    dimension: int, rows: int
) -> None:
    first_pass = LearningPass.of("dot", dimension)
    first_pass._by = Everything("dot")  # pyright: ignore[reportPrivateUsage] - has nothing to read

    assert first_pass.pending(rows - 1) == 0
    assert first_pass.pending(rows) == rows


@pytest.mark.parametrize("setting", ["codes and a cache"], indirect=True)
@pytest.mark.usefixtures("setting")
def test_codes_are_not_used_where_their_sums_could_overflow() -> None:
    assert kind(LearningPass.of("dot", 33_025)) is Codes
    assert kind(LearningPass.of("dot", 33_026)) is Everything


@pytest.mark.usefixtures("setting")
def test_a_store_learns_as_it_grows_and_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "_LEARNING_CELLS", 100 * DIMENSION)
    monkeypatch.setattr(adaptive, "_LEARNING_ROWS", 0)
    vectors, calls = flat(1_500), counted(monkeypatch)

    async def answers() -> list[object]:
        store, found = InMemoryVectorStore(), list[object]()
        for start in range(0, 1_500, 250):
            batch = [Record(f"{row:05}", vectors[row]) for row in range(start, start + 250)]
            await store.upsert(batch)
            await store.delete([f"{row:05}" for row in range(start, start + 80)])
            found += [await store.query(query, 20) for query in vectors[:4]]
        return found

    fast = run(answers())
    assert len(calls) > 1
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 1 << 40)
    assert fast == run(answers())
