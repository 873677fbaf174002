"""Search against brute force on the data that would break it, while records come and go.

By default each kind of data is searched under each metric in a few dimensions, and prepared in half
of the ways in one of them, in the other half in the next; `LIB_TEST_LONG=1` takes all dimensions,
every way in each, and more rounds.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.vector.stores.sqlite_codes_kit import ColdStore

from lib.vector import InMemoryVectorStore, Metric, Record, SQLiteVectorStore, VectorStore
from lib.vector.exact.bounds import View
from lib.vector.exact.clusters import ClusterQuery
from lib.vector.exact.codes import Coding, Prepared, fast_products, slow_products
from lib.vector.exact.partition import Partition, Snapshot
from lib.vector.exact.scan import Scan
from lib.vector.exact.scratch import Scratch
from lib.vector.exact.search import Rows, Scoring, Selection, nearest, row_lengths, scales
from lib.vector.exact.sketch import Basis, Query, Sketch, numpy_products
from lib.vector.validate import MAX_LENGTH, MIN_LENGTH

LONG = bool(os.environ.get("LIB_TEST_LONG"))
DIMENSIONS = [1, 2, 3, 17, 64, 65, 384, 1_536] if LONG else [1, 3, 65, 384]
ROUNDS = 12 if LONG else 3
METRICS: list[Metric] = ["cosine", "dot", "euclidean"]

Matrix = NDArray[np.float32]
Mask = NDArray[np.bool_]
Noise = np.random.Generator
Kind = Callable[[Noise, int, int], Any]


def normal(noise: Noise, n: int, d: int) -> Any:
    return noise.standard_normal((n, d))


def near_few(noise: Noise, n: int, d: int) -> Any:
    return normal(noise, n, min(d, 4)) @ normal(noise, min(d, 4), d)


def in_clusters(noise: Noise, n: int, d: int, spread: float = 0.1) -> Any:
    return normal(noise, 5, d)[noise.integers(0, 5, n)] + spread * normal(noise, n, d)


def with_one_long(noise: Noise, n: int, d: int) -> Any:
    vectors = normal(noise, n, d)
    vectors[noise.integers(n)] *= 1e7
    return vectors


def drifting(noise: Noise, n: int, d: int) -> Any:
    return normal(noise, n, d) + np.linspace(0, 1_000, n)[:, np.newaxis]


def one_hot(noise: Noise, n: int, d: int) -> Any:
    return np.eye(d)[noise.integers(0, d, n)] * noise.choice([1.0, -1.0, 2.0], (n, 1))


def between_steps(noise: Noise, n: int, d: int) -> Any:
    """Return rows whose numbers lie in the middle between two codes."""
    vectors = (noise.integers(-126, 126, (n, d)) + 0.5) / 127
    vectors[:, 0] = 1.0
    return vectors


def neighbours_of_one(noise: Noise, n: int, d: int) -> Any:
    """Return rows that differ from one another in the last bits of a few numbers."""
    return normal(noise, 1, d).astype(np.float32) * (1 + noise.integers(-2, 3, (n, d)) * 2.0**-23)


def some_nothing(noise: Noise, n: int, d: int) -> Any:
    return normal(noise, n, d) * (noise.random((n, 1)) < 0.5)


KINDS: dict[str, Kind] = {
    "everywhere": normal,
    "near a few directions": near_few,
    "in clusters": in_clusters,
    "in tight clusters": lambda noise, n, d: in_clusters(noise, n, d, 1e-6),
    "a common offset of 100 spreads": lambda noise, n, d: 100 + normal(noise, n, d),
    "a common offset of a million spreads": lambda noise, n, d: 1e6 + normal(noise, n, d),
    "two clusters far apart": lambda noise, n, d: (
        normal(noise, n, d) + 1e4 * noise.choice([-1, 1], (n, 1))
    ),
    "one long row": with_one_long,
    "lengths of all sizes": lambda noise, n, d: (
        normal(noise, n, d) * 10.0 ** noise.integers(-12, 12, (n, 1))
    ),
    "numbers of all sizes": lambda noise, n, d: (
        normal(noise, n, d) * 10.0 ** noise.integers(-12, 12, (n, d))
    ),
    "tails": lambda noise, n, d: noise.standard_cauchy((n, d)),
    "drifting with the row": drifting,
    "all alike": lambda noise, n, d: np.ones((n, 1)) * normal(noise, 1, d),
    "many equal rows": lambda noise, n, d: normal(noise, 4, d)[noise.integers(0, 4, n)],
    "a few values": lambda noise, n, d: noise.choice([0.0, 1.0, -1.0], (n, d)),
    "signs": lambda noise, n, d: noise.choice([1.0, -1.0], (n, d)),
    "one number each": one_hot,
    "mostly zeros": lambda noise, n, d: normal(noise, n, d) * (noise.random((n, d)) < 0.02),
    "some nothing": some_nothing,
    "between the steps of codes": between_steps,
    "neighbours in the last bits": neighbours_of_one,
    "next to nothing": lambda noise, n, d: normal(noise, n, d) * 1e-42,
    "as long as may be": lambda noise, n, d: normal(noise, n, d) * 2.0**61 / np.sqrt(d),
}


def stored_as(vectors: Any, metric: Metric) -> Matrix:
    """Return vectors that a store takes under this metric."""
    narrow = np.ascontiguousarray(vectors, np.float32)
    lengths = row_lengths(narrow)
    least = MIN_LENGTH if metric == "cosine" else 0.0
    narrow[(lengths < least) | (lengths > MAX_LENGTH)] = 1.0
    return narrow


def products(code: NDArray[np.uint8], codes: NDArray[np.uint8]) -> Matrix:
    return (codes.astype(np.float64) @ code[0].astype(np.float64)).astype(np.float32)


def codings(metric: Metric) -> dict[str, Coding]:
    """Return the ways to prepare rows, each from the first row on, or from some hundreds."""
    driver = fast_products() or products
    return {
        "as they are": Coding(metric=metric, products=None, least_rows=1 << 40),
        "centred": Coding(metric=metric, products=None, least_rows=1),
        "codes": Coding(metric=metric, products=products, least_rows=1, shared_bytes=9_000),
        "codes of the driver": Coding(metric=metric, products=driver, least_rows=150),
    }


def partitions(
    metric: Metric, dimension: int, folder: Path
) -> dict[str, Callable[[], "Partition[Nothing]"]]:
    """Return what makes empty partitions, in memory and on a disk."""
    made: dict[str, Callable[[], Partition[Nothing]]] = {
        way: partial(Partition, metric, dimension, Nothing(), coding)
        for way, coding in codings(metric).items()
    }
    for way, least_bytes, least_rows in (
        ("on a disk", 0, 1),
        ("on a disk once there are many", 4 * 150 * dimension, 150),
    ):
        scratch = Scratch(folder=str(folder), least_bytes=least_bytes, least_rows=least_rows)
        made[way] = partial(Partition, metric, dimension, Nothing(), scratch=scratch)
    return made


def by_definition(
    vectors: Matrix, ids: Sequence[str], allowed: Mask, query: Matrix, *, k: int, metric: Metric
) -> list[tuple[str, float]]:
    """Return the ids and scores of the nearest rows, every row scored in 64 bits."""
    rows = np.flatnonzero(allowed)
    scores = scored(vectors[rows].astype(np.float64), query, metric)
    return best(scores, [ids[row] for row in rows.tolist()], k, metric)


def scored(wide: NDArray[np.float64], query: Matrix, metric: Metric) -> Matrix:
    """Return the scores of rows."""
    target = query.astype(np.float64)
    if metric == "euclidean":
        return np.sqrt(((wide - target) ** 2).sum(axis=1)).astype(np.float32)
    scores = (wide * target).sum(axis=1)
    if metric == "cosine":
        scores = scores / np.sqrt((wide * wide).sum(axis=1) * (target * target).sum())
    return scores.astype(np.float32)


def best(scores: Matrix, ids: Sequence[str], k: int, metric: Metric) -> list[tuple[str, float]]:
    """Return the ids and scores of the nearest of rows that have been scored."""
    sign = 1 if metric == "euclidean" else -1
    ranked = sorted((sign * score, name) for score, name in zip(scores.tolist(), ids, strict=True))
    return [(name, sign * cost) for cost, name in ranked[:k]]


class Nothing:
    """Contents of a partition of which only the vectors count."""

    def extend(self, items: Sequence[None]) -> None:
        """Keep nothing."""

    def bury(self, rows: Sequence[int]) -> None:
        """Keep nothing."""

    def moved(self, kept: NDArray[np.intp]) -> "Nothing":
        return self


def wrong(snapshot: Snapshot[Nothing], noise: Noise, query: Matrix, metric: Metric) -> str | None:
    """Return what is wrong with a search under a random filter; None if nothing is."""
    rows, size = snapshot.rows, len(snapshot.rows.vectors)
    living = snapshot.living.mask
    allowed = noise.random(size) < noise.choice([1.1, 0.6, 0.2, 0.02])
    allowed = allowed if living is None else allowed & living
    k = int(noise.choice([1, 3, 10, 60, 1_000]))
    found = nearest(rows, query, k, metric=metric, among=Selection.of(allowed))
    expected = by_definition(rows.vectors, rows.ids, allowed, query, k=k, metric=metric)
    if [(rows.ids[row], score) for row, score in found] == expected:
        return None
    return f"{k} of {int(allowed.sum())} of {size}"


def queries(noise: Noise, vectors: Matrix, metric: Metric) -> Matrix:
    """Return a row, one near to it, one far away, one anywhere, the centre, and next to nothing."""
    first, second = (vectors[noise.integers(len(vectors))].astype(np.float64) for _ in range(2))
    away, little = normal(noise, 2, vectors.shape[1])
    middle = vectors.astype(np.float64).mean(axis=0)
    some: list[Any] = [first, second * (1 + 0.01 * little), -3 * first, away, middle]
    if metric != "cosine":
        some += [0 * away, 2.0**-138 * away]
    return stored_as(np.array(some), metric)


def written(partition: Partition[Nothing], noise: Noise, vectors: Matrix, names: int) -> None:
    """Upsert some of the vectors under some of the names."""
    some = noise.permutation(len(vectors))[: int(noise.integers(1, len(vectors) + 1))]
    ids = [f"{number:04}" for number in noise.permutation(max(names, len(some)))[: len(some)]]
    partition.upsert(ids, vectors[some], row_lengths(vectors[some]), [None] * len(some))


def forgotten(partition: Partition[Nothing], noise: Noise) -> None:
    """Delete a part of the living rows."""
    snapshot = partition.snapshot
    mask = snapshot.living.mask
    living = np.arange(snapshot.count) if mask is None else np.flatnonzero(mask)
    gone = living[noise.random(len(living)) < noise.choice([0.02, 0.3])]
    partition.delete(gone.tolist()[: max(0, snapshot.count - 1)])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_no_answer_differs_from_brute_force(dimension: int, metric: Metric, tmp_path: Path) -> None:
    failures: list[str] = []
    for number, (kind, made) in enumerate(KINDS.items()):
        ways = partitions(metric, dimension, tmp_path)
        for way_number, (way, partition_made) in enumerate(ways.items()):
            if not LONG and (number + way_number + DIMENSIONS.index(dimension)) % 2:
                continue
            noise = np.random.default_rng([number, dimension])
            partition = partition_made()
            for turn in range(ROUNDS):
                vectors = stored_as(made(noise, 200, dimension), metric)
                written(partition, noise, vectors, 300)
                targets = queries(noise, vectors, metric)
                kept = partition.snapshot
                forgotten(partition, noise)
                for snapshot in (partition.snapshot, kept):
                    for query in targets:
                        fault = wrong(snapshot, noise, query, metric)
                        if fault is not None:
                            failures.append(f"{kind}, {way}, turn {turn}: {fault}")
    assert not failures


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_no_sketch_promises_less_than_its_row_is_worth(dimension: int, metric: Metric) -> None:
    failures: list[str] = []
    for number, (kind, made) in enumerate(KINDS.items()):
        noise = np.random.default_rng([number, dimension])
        vectors = stored_as(made(noise, 300, dimension), metric)
        sketch = Sketch(Basis(metric, vectors[:150]), 150)
        sketch.extend(sketch.sketched(vectors))
        with np.errstate(all="ignore"):
            for target in queries(noise, vectors, metric):
                query = Query(sketch.basis, target)
                exact = worths_in_extended_precision(vectors, target, metric)
                all_rows = np.arange(300)
                promised = [
                    sketch.coarse(query, 300),
                    sketch.coarse_of(query, all_rows),
                    sketch.fine_of(query, all_rows),
                ]
                if not (np.array(promised) >= exact).all():
                    failures.append(kind)
    assert not failures


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_no_cluster_excludes_a_row_by_what_that_row_is_worth(
    dimension: int, metric: Metric
) -> None:
    """Tests rows that the clusters were not chosen from as well."""
    failures: list[str] = []
    for number, (kind, made) in enumerate(KINDS.items()):
        noise = np.random.default_rng([number, dimension])
        vectors = stored_as(made(noise, 300, dimension), metric)
        sketch = Sketch(Basis(metric, vectors[:150]), 150)
        sketch.extend(sketch.sketched(vectors))
        with np.errstate(all="ignore"):
            for target in queries(noise, vectors, metric):
                query = ClusterQuery(sketch.basis.clusters, target)
                exact = worths_in_extended_precision(vectors, target, metric).tolist()
                rows = np.arange(300)
                some = rows[noise.random(300) < 0.1]
                for row in some.tolist():
                    left = sketch.near(query, exact[row], None, 300)
                    left_of_some = sketch.near(query, exact[row], some, 300)
                    if row not in left or row not in left_of_some:
                        failures.append(kind)
    assert not failures


def test_clusters_leave_out_what_lies_far_from_the_query() -> None:
    vectors = in_clusters(np.random.default_rng(3), 4_000, 64).astype(np.float32)
    sketch = Sketch(Basis("cosine", vectors), 4_000)
    sketch.extend(sketch.sketched(vectors))
    query = ClusterQuery(sketch.basis.clusters, vectors[7])

    left = sketch.near(query, 0.95, None, 4_000)
    promising = sketch.promising(query, None, 4_000, 100)

    assert 7 in left
    assert len(left) < 1_500
    assert 100 <= len(promising) < 1_500
    assert {*promising} <= {*left}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_no_saved_code_promises_less_than_its_row_is_worth(dimension: int, metric: Metric) -> None:
    failures: list[str] = []
    for number, (kind, made) in enumerate(KINDS.items()):
        noise = np.random.default_rng([number, dimension])
        vectors = stored_as(made(noise, 300, dimension), metric)
        lengths = scales(row_lengths(vectors), metric)
        for driver in (slow_products, products):
            coding = Coding(metric=metric, products=driver, least_rows=0)
            with np.errstate(all="ignore"):
                first = Prepared.of(coding, vectors[:150], lengths[:150])
                first.append(vectors[:150], lengths[:150], 150)
                second = Prepared(coding, first.centre.astype(np.float32), first.share)
                second.append(vectors[150:], lengths[150:], 200)
                saved = [first.saved(), second.saved()]
                centre = first.centre.astype(np.float32)
                coded = Prepared.loaded(coding, centre, first.share, saved)
                for target in queries(noise, vectors, metric):
                    exact = worths_in_extended_precision(vectors, target, metric)
                    view = View(target, metric, coded.centre)
                    if not (coded.worths(view, slice(0, 300)) >= exact).all():
                        failures.append(kind)
    assert not failures


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
async def test_first_queries_of_a_file_answer_as_brute_force_does(
    dimension: int, metric: Metric, tmp_path: Path
) -> None:
    failures: list[str] = []
    path, noise = tmp_path / "vectors.db", np.random.default_rng(dimension)
    data = {kind: stored_as(made(noise, 400, dimension), metric) for kind, made in KINDS.items()}
    names = [f"{row:03}" for row in noise.permutation(400)]
    gone = set(names[10:380:97])
    async with SQLiteVectorStore(path, dimension=dimension, metric=metric) as store:
        for kind, vectors in data.items():  # 300 rows with codes, 90 too few for them
            for start, end in ((0, 300), (300, 340), (340, 390), (390, 400)):
                some = zip(names[start:end], vectors[start:end], strict=True)
                await store.upsert([Record(*each) for each in some], namespace=kind)
            await store.delete(sorted(gone), namespace=kind)
    living = np.array([name not in gone for name in names])
    for kind, vectors in data.items():
        async with ColdStore(path, dimension=dimension, metric=metric) as cold:
            for query in queries(noise, vectors, metric):
                k = int(noise.choice([1, 10, 60, 1_000]))
                found = await cold.query(query, k, namespace=kind)
                expected = by_definition(vectors, names, living, query, k=k, metric=metric)
                if [(match.id, match.score) for match in found] != expected:
                    failures.append(f"{kind}: {k}")
            await cold.rest()
    assert not failures


@pytest.mark.parametrize("dimension", [150, 400])
def test_sketches_of_many_rows_promise_no_less_than_those_of_each_row(dimension: int) -> None:
    noise = np.random.default_rng(3)
    vectors = in_clusters(noise, 140_000, dimension).astype(np.float32)
    sketch = Sketch(Basis("dot", vectors[:2_000]), 2_000)
    sketch.extend(sketch.sketched(vectors))
    query, rows = Query(sketch.basis, vectors[7]), np.arange(0, len(vectors), 7)
    exact = worths_in_extended_precision(vectors[rows], vectors[7], "dot")
    coarse = sketch.coarse(query, len(vectors))

    assert (coarse[rows] >= exact).all()
    assert (coarse[rows] == sketch.coarse_of(query, rows)).all()
    assert (sketch.fine_of(query, rows) >= exact).all()


@pytest.mark.parametrize("width", [64, 1_024, 1_408])
def test_sums_of_products_of_bytes_are_rounded_once(width: int) -> None:
    codes = np.full((2, width), -128, np.int8)
    codes[1] = np.random.default_rng(4).integers(-128, 128, width)
    code = np.full((1, width), 127, np.int8)
    code[0, ::7] = 1

    exact = codes.astype(np.int64) @ code[0].astype(np.int64)

    assert (numpy_products(code, codes) == exact.astype(np.float32)).all()
    unsigned = codes.view(np.uint8)
    assert (slow_products(unsigned[:1], unsigned) == products(unsigned[:1], unsigned)).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_32_bits_promise_no_less_than_a_row_is_worth(dimension: int, metric: Metric) -> None:
    failures: list[str] = []
    for number, (kind, made) in enumerate(KINDS.items()):
        noise = np.random.default_rng([number, dimension])
        vectors = stored_as(made(noise, 300, dimension), metric)
        with np.errstate(all="ignore"):
            for target in queries(noise, vectors, metric):
                exact = worths_in_extended_precision(vectors, target, metric)
                if not (View(target, metric).of_rows(vectors) >= exact).all():
                    failures.append(kind)
    assert not failures


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_rows_that_are_shown_once_are_ranked_as_brute_force_does(
    dimension: int, metric: Metric
) -> None:
    failures: list[str] = []
    for number, (kind, made) in enumerate(KINDS.items()):
        noise = np.random.default_rng([number, dimension])
        vectors = stored_as(made(noise, 700, dimension), metric)
        ids = [f"{row:04}" for row in noise.permutation(len(vectors))]
        rows = Rows(ids=ids, vectors=vectors, scales=np.empty(0, np.float32))
        for query in queries(noise, vectors, metric):
            k = int(noise.choice([1, 10, 60, 1_000]))
            scoring = Scoring(rows, query, metric)
            scan = Scan(scoring, query, min(k, len(ids)))
            order = noise.permutation(len(ids))
            with np.errstate(all="ignore"):
                for part in np.split(order, np.sort(noise.integers(0, len(ids), 9))):
                    scan.add(part, vectors[part])
            found = scoring.ranked(*scan.best(), k)
            everything = np.ones(len(ids), np.bool_)
            expected = by_definition(vectors, ids, everything, query, k=k, metric=metric)
            if [(ids[row], score) for row, score in found] != expected:
                failures.append(f"{kind}: {k}")
    assert not failures


def worths_in_extended_precision(vectors: Matrix, query: Matrix, metric: Metric) -> Matrix:
    """Return the worths of rows, see `lib.vector.exact.bounds`, rounded down to 32 bits."""
    wide, target = vectors.astype(np.longdouble), query.astype(np.longdouble)
    if metric == "euclidean":
        worths = -((wide - target) ** 2).sum(axis=1) / 2
    else:
        worths = (wide * target).sum(axis=1)
    if metric == "cosine":
        worths = worths / np.sqrt((wide * wide).sum(axis=1) * (target * target).sum())
    return np.nextafter(worths.astype(np.float32), np.float32(-np.inf))


@pytest.mark.parametrize("metric", METRICS)
def test_readers_find_the_rows_of_their_snapshot_while_one_writes(
    metric: Metric, tmp_path: Path
) -> None:
    def read(partition: Partition[Nothing], seed: int, vectors: Matrix) -> list[str | None]:
        noise, faults = np.random.default_rng(seed), list[str | None]()
        for _ in range(ROUNDS):
            for query in queries(noise, vectors, metric):
                faults.append(wrong(partition.snapshot, noise, query, metric))
        return faults

    for way, partition_made in partitions(metric, 48, tmp_path).items():
        noise = np.random.default_rng(1)
        vectors = stored_as(100 + in_clusters(noise, 900, 48), metric)
        partition = partition_made()
        written(partition, noise, vectors[:300], 1_000)
        with ThreadPoolExecutor(3) as threads:
            readers = [threads.submit(read, partition, seed, vectors) for seed in range(3)]
            while not all(reader.done() for reader in readers):
                first = int(noise.integers(0, 880))
                written(partition, noise, vectors[first : first + 20], 1_500)
                forgotten(partition, noise)
            faults = [fault for reader in readers for fault in reader.result()]
        assert not any(faults), way


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("place", ["memory", "file", "disk"])
async def test_stores_answer_as_brute_force_does(
    place: str, metric: Metric, tmp_path: Path
) -> None:
    """Tests the stores with as many rows as they prepare by default."""
    dimension, size = 1_536, 2_400 if place == "disk" else 900
    for kind in KINDS if LONG else ("everywhere", "a common offset of 100 spreads", "one long row"):
        noise = np.random.default_rng(2)
        vectors = stored_as(KINDS[kind](noise, size, dimension), metric)
        path = tmp_path / f"{kind}.db"
        store: VectorStore = (
            InMemoryVectorStore(metric=metric)
            if place == "memory"
            else SQLiteVectorStore(
                path,
                dimension=dimension,
                metric=metric,
                cache_bytes=0 if place == "disk" else 1 << 30,
                scratch_dir=tmp_path if place == "disk" else None,
            )
        )
        async with store:
            names = [f"{row:04}" for row in range(size)]
            metas = [{"part": int(row % 3)} for row in range(size)]
            await store.upsert(
                [
                    Record(name, vector, "", meta)
                    for name, vector, meta in zip(names, vectors, metas, strict=True)
                ]
            )
            gone = names[5:90:7]
            await store.delete(gone)
            living = np.array([name not in gone for name in names])
            wide = vectors.astype(np.float64)
            for turn in range(3):
                for query in queries(noise, vectors, metric):
                    scores = scored(wide, query, metric)
                    for part in (None, 1):
                        rows = np.flatnonzero(
                            living & (part is None or np.arange(size) % 3 == part)
                        )
                        only = None if part is None else {"part": part}
                        found = await store.query(query, 7, filter=only)
                        expected = best(scores[rows], [names[row] for row in rows], 7, metric)
                        assert [(match.id, match.score) for match in found] == expected, (
                            kind,
                            turn,
                        )
                row = int(noise.integers(100, size))
                vectors[row] = stored_as(KINDS[kind](noise, 9, dimension)[:1], metric)[0]
                wide[row] = vectors[row]
                await store.upsert([Record(names[row], vectors[row], "", metas[row])])
