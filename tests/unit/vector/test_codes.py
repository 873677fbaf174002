"""8-bit codes: how many rows they leave, and that they follow the rows."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.testing.aio import run
from lib.vector import InMemoryVectorStore, Metric, Record
from lib.vector.exact import search as exact
from lib.vector.exact.accel import adaptive
from lib.vector.exact.accel import codes as module
from lib.vector.exact.accel.codes import Codes
from lib.vector.exact.search import Rows, Selection, effort, row_lengths, scales

Matrix = NDArray[np.float32]
Codes8 = NDArray[np.uint8]
WHOLE = Selection(mask=None, count=20_000)


def products(code: Codes8, codes: Codes8) -> Matrix:
    return (codes.astype(np.int64) @ code[0].astype(np.int64)).astype(np.float32)


def clustered(size: int, dimension: int) -> Matrix:
    """Return vectors that have neighbours, as embeddings do."""
    noise = np.random.default_rng(11)
    points = noise.standard_normal((200, 24))[noise.integers(0, 200, size)]
    points += 0.5 * noise.standard_normal((size, 24))
    return (points @ noise.standard_normal((24, dimension))).astype(np.float32)


def rows_of(vectors: Matrix, metric: Metric, codes: Codes) -> Rows:
    return Rows(
        ids=[], vectors=vectors, scales=scales(row_lengths(vectors), metric), first_pass=codes
    )


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stand-in that is slow but right be the optional package, used for thousands of rows."""
    monkeypatch.setattr(adaptive, "fast_products", lambda: products)
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 1 << 18)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_a_few_rows_of_thousands_are_left(metric: Metric) -> None:
    vectors = clustered(20_000, 96)
    rows = rows_of(vectors, metric, Codes(metric, 96, products))

    for query in vectors[:5]:
        unit = query / np.linalg.norm(query) if metric == "cosine" else query
        assert 10 <= len(rows.first_pass.candidates(rows, unit, 10, WHOLE)) < 400  # type: ignore[union-attr] - there


@pytest.mark.parametrize(("dimension", "width"), [(1, 64), (64, 64), (65, 128), (384, 384)])
def test_codes_fill_whole_registers_with_zeros(dimension: int, width: int) -> None:
    vectors, seen = clustered(300, dimension), list[tuple[int, ...]]()

    def watched(code: Codes8, codes: Codes8) -> Matrix:
        seen.extend((code.shape, codes.shape))
        assert not code[:, dimension:].any()
        assert not codes[:, dimension:].any()
        return products(code, codes)

    codes = Codes("dot", dimension, watched)
    found = codes.candidates(rows_of(vectors, "dot", codes), vectors[0], 5, WHOLE)
    kept = np.arange(0, 300, 2)
    moved = codes.moved(kept, row_lengths(vectors).astype(np.float32))
    moved.candidates(rows_of(vectors[kept], "dot", moved), vectors[0], 5, WHOLE)

    assert np.argmax(vectors @ vectors[0]) in found
    assert seen == [(1, width), (300, width), (1, width), (150, width)]


def test_codes_follow_the_rows_and_are_made_once() -> None:
    vectors = clustered(3_000, 16)
    codes = Codes("dot", 16, products)
    whole = rows_of(vectors, "dot", Codes("dot", 16, products))

    for size in (1, 10, 11, 12, 500, 3_000, 200):
        rows = rows_of(vectors[:size], "dot", codes)
        among = Selection(mask=None, count=size)
        fresh = rows_of(vectors[:size], "dot", Codes("dot", 16, products))
        found = codes.candidates(rows, vectors[0], min(5, size), among)
        expected = fresh.first_pass.candidates(fresh, vectors[0], min(5, size), among)  # type: ignore[union-attr] - there
        assert found.tolist() == expected.tolist()
        assert codes.pending(size) == 0
    assert codes.pending(3_100) == 100
    assert effort(whole, Selection(mask=None, count=3_000)) == 3_000 * 16
    large = rows_of(clustered(20_000, 64), "dot", Codes("dot", 64, products))
    assert effort(large, WHOLE) > 1_000_000  # codes have to be made
    large.first_pass.candidates(large, large.vectors[0], 5, WHOLE)  # type: ignore[union-attr] - there
    assert effort(large, WHOLE) == 20_000 * 64 // 4


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_codes_move_with_their_rows(metric: Metric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 16 * 300)
    vectors = clustered(2_000, 16)
    rows = rows_of(vectors, metric, Codes(metric, 16, products))
    known = rows_of(vectors[:1_500], metric, rows.first_pass)  # type: ignore[arg-type] - there
    assert known.first_pass is not None
    known.first_pass.candidates(known, vectors[0], 5, Selection(mask=None, count=1_500))

    kept = np.flatnonzero(np.arange(2_000) % 3 > 0)
    moved = known.first_pass.moved(kept, rows.scales)
    assert moved.pending(len(kept)) == len(kept) - 1_000  # those that had none have none
    left = rows_of(vectors[kept], metric, moved)  # type: ignore[arg-type] - codes
    fresh = rows_of(vectors[kept], metric, Codes(metric, 16, products))
    among = Selection(mask=None, count=len(kept))
    for query in vectors[:20]:
        unit = query / np.linalg.norm(query) if metric == "cosine" else query
        found = moved.candidates(left, unit, 5, among)
        assert found.tolist() == fresh.first_pass.candidates(fresh, unit, 5, among).tolist()  # type: ignore[union-attr] - there
    assert known.first_pass.pending(1_500) == 0


def test_vectors_that_are_nearly_nothing_are_left_out_of_the_codes_and_not_of_the_answer() -> None:
    vectors = np.array([[1e-40, 0], [0, 0], [1e-38, 1e-38], [1, 0]], np.float32)
    rows = rows_of(vectors, "dot", Codes("dot", 2, products))

    found = rows.first_pass.candidates(rows, vectors[2], 4, Selection(mask=None, count=4))  # type: ignore[union-attr] - there
    assert found.tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("installed")
def test_where_the_bound_excludes_too_little_rows_are_scored_as_without_it() -> None:
    async def main() -> None:
        store = InMemoryVectorStore(metric="dot")
        alike = np.ones(64, np.float32)
        await store.upsert([Record(f"{row:05}", alike) for row in range(6_000)])
        found = await store.query(alike, 3)
        assert [match.id for match in found] == ["00000", "00001", "00002"]
        assert [match.score for match in found] == [64.0] * 3

    run(main())


@pytest.mark.usefixtures("installed")
def test_a_store_finds_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = clustered(8_000, 64)
    records = [Record(str(row), vector, "", {"x": row % 3}) for row, vector in enumerate(vectors)]

    async def answers() -> list[object]:
        store = InMemoryVectorStore()
        await store.upsert(records[:6_000])
        found: list[object] = [await store.query(vectors[0], 10)]
        await store.upsert(records[5_000:])
        await store.delete([record.id for record in records[:3_000]])
        for query in vectors[:20]:
            found.append(await store.query(query, 10))
            found.append(await store.query(query, 10, filter={"x": 1}))
        return found

    stood_in = run(answers())
    monkeypatch.setattr(adaptive, "fast_products", lambda: None)
    without = run(answers())
    monkeypatch.undo()
    monkeypatch.setattr(exact, "_FIRST_PASS_CELLS", 1 << 18)
    assert stood_in == without == run(answers())  # and with the driver, if it is installed


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
    for dimension in (1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 384, 1537, 33_025):
        codes = noise.integers(0, 256, (5, dimension)).astype(np.uint8)
        codes[0], codes[1] = 255, 0
        for row in range(5):
            query = np.ascontiguousarray(codes[row : row + 1])
            assert np.array_equal(fast_products(query, codes), products(query, codes))
