"""Exact search among vectors on a disk, beside brute force that reads the same file.

    make bench ARGS="search_disk --minilm FOLDER/minilm.npz --folder DIRECTORY_ON_A_DISK"
    make bench ARGS="search_disk --minilm FOLDER/minilm.npz --records 1000000 5000000"

Data: `real` and `isotropic` of `benchmarks/search_vectors.py`: the MiniLM embeddings of `--minilm`
again and again, each time with isotropic noise of a quarter of its length; unit vectors in all
directions. They are upserted into an SQLite file in `--folder`, which a `SQLiteVectorStore` with
`scratch_dir` then opens; its first query with a filter copies them into a scratch file. The folder
needs room for 4 KB per record of 384 numbers, and is empty again at the end.

Brute force multiplies each block of the same scratch file by the query (BLAS), announces the next
block to the system, and scores the best rows by the definition. `cold` drops the file from the page
cache before each query. Every answer is compared: ids, order and scores.

Times are medians in ms of the whole call of `query`, the last ratios those of means; `disk MB` is
what the process made the disk read (Linux alone counts it), `rows` the mean share of vectors that
were read in full. `anonymous` is memory that is not page cache, now and at its peak, less that
before the store was opened.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from search import K, unit
from search_vectors import NOISE

from lib.vector import Record, SQLiteVectorStore
from lib.vector.exact.disk import MappedRows
from lib.vector.exact.search import Scoring

DIMENSION = 384
BATCH = 10_000
BLOCK = 8_192  # rows that brute force reads at once
MARGIN = 1e-4  # more than products in 32 bits are off


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 0


def disk_bytes() -> int:
    for line in Path("/proc/self/io").read_text(encoding="utf-8").splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


class Peak:
    """The most anonymous memory that the process has had since `start`."""

    def __init__(self) -> None:
        self.bytes, self._stop = 0, threading.Event()

    @contextmanager
    def watched(self) -> Generator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.bytes = max(self.bytes, anonymous_bytes())


def data(kind: str, minilm: str, queries: int) -> tuple[Callable[[int, int], Any], Any]:
    """Return what makes rows from one number to another, and queries."""
    if kind == "isotropic":
        noise = np.random.default_rng(5)
        return (
            lambda start, end: unit(
                np.random.default_rng([5, start]).standard_normal((end - start, DIMENSION))
            ),
            unit(noise.standard_normal((queries, DIMENSION))),
        )
    with np.load(minilm) as arrays:
        documents = unit(arrays["docs_int8"].astype(np.float64) * arrays["docs_scale"])
        query_vectors = unit(arrays["queries_f16"].astype(np.float64))

    def tiled(start: int, end: int) -> Any:
        rows = np.arange(start, end)
        away = np.random.default_rng([6, start]).standard_normal((end - start, DIMENSION))
        away *= NOISE / np.sqrt(DIMENSION)
        away[rows < len(documents)] = 0.0
        return unit(documents[rows % len(documents)] + away)

    return tiled, query_vectors[:queries]


class Brute:
    """Brute force over the scratch file of a store, with a mapping of its own."""

    def __init__(self, store: Any) -> None:
        database: Any = vars(store)["_database"]
        namespace = vars(database)["_cache"].get("")
        rows = vars(vars(namespace)["_partition"])["_rows"]
        self.file: Any = vars(vars(rows)["_records"])["_file"]
        self.snapshot: Any = namespace.snapshot

    def query(self, query: Any) -> list[tuple[str, float]]:
        """Return ids and scores of the nearest, cosine."""
        ours = self.snapshot.rows.mapped.records
        mapping = mmap.mmap(self.file.fileno(), ours.nbytes, access=mmap.ACCESS_READ)
        mapping.madvise(mmap.MADV_SEQUENTIAL)
        records = np.frombuffer(mapping, ours.dtype, len(ours))
        step = BLOCK * ours.dtype.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
        keys = np.empty(len(records), np.float32)
        for start in range(0, len(records), BLOCK):
            ahead = min(start // BLOCK * step + step, ours.nbytes // mmap.PAGESIZE * mmap.PAGESIZE)
            mapping.madvise(mmap.MADV_WILLNEED, ahead, min(step, ours.nbytes - ahead))
            end = min(start + BLOCK, len(records))
            np.matmul(records["vector"][start:end], query, out=keys[start:end])
        alive = self.snapshot.living.mask
        if alive is not None:
            keys[~alive] = -np.inf
        kth = np.partition(keys, len(keys) - K)[len(keys) - K]
        few = np.flatnonzero(keys >= kth - MARGIN)
        scoring = Scoring(self.snapshot.rows, query, "cosine")
        costs = -scoring.scores(np.ascontiguousarray(records[few]["vector"]))
        ids = self.snapshot.rows.ids
        found = zip(costs.tolist(), few.tolist(), strict=True)
        ranked = sorted((cost, ids[row]) for cost, row in found)
        return [(name, -cost) for cost, name in ranked[:K]]

    def forget(self) -> None:
        """Drop the file from the page cache."""
        os.fsync(self.file.fileno())
        mapping = self.snapshot.rows.mapped.mapping
        mapping.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def timed(work: Awaitable[Any]) -> tuple[Any, Any]:
    """Return what some work returns, and its CPU time, wall time and bytes from the disk."""
    before, wall, spent = disk_bytes(), time.perf_counter(), time.process_time()
    result = await work
    took = time.process_time() - spent, time.perf_counter() - wall
    return result, (1e3 * took[0], 1e3 * took[1], (disk_bytes() - before) / 1e6)


class Case:
    """One case: the times of store and brute force, the rows that were read, and wrong answers."""

    def __init__(self, store: Any, name: str, rows: int, make: Any) -> None:
        self._store, self._name, self._rows, self._make = store, name, rows, make
        self._ours: list[Any] = []
        self._brute: list[Any] = []
        self._read = self._wrong = 0

    async def query(self, number: int, query: Any) -> None:
        if self._name == "after a write":
            row, first = number * 7, self._rows + BATCH * number
            vector = self._make(first, first + 1)[0]
            await self._store.upsert([Record(str(row), vector, "", {"part": row % 100})])
        only = {"part": number % 100} if self._name == "1 % filter" else None
        if self._name == "cold":
            Brute(self._store).forget()
        read = MappedRows.read

        def counted(mapped: MappedRows, places: Any) -> Any:
            self._read += len(places)
            return read(mapped, places)

        with patch.object(MappedRows, "read", counted):
            found, spent = await timed(self._store.query(query, K, filter=only))
        self._ours.append(spent)
        if only is None:
            await self._compare(query, [(match.id, match.score) for match in found])

    async def _compare(self, query: Any, found: Any) -> None:
        brute = Brute(self._store)
        if self._name == "cold":
            brute.forget()
        right, spent = await timed(asyncio.to_thread(brute.query, query))
        self._brute.append(spent)
        self._wrong += found != right

    def line(self) -> str:
        cpu, wall, _ = np.median(self._ours, axis=0)
        line = f"{self._name:14} lib {cpu:9.1f}{wall:9.1f}{np.mean(self._ours, axis=0)[2]:9.1f}"
        line += f"   rows {100 * self._read / len(self._ours) / self._rows:7.3f} %"
        if self._brute:
            theirs = np.median(self._brute, axis=0)
            line += f"   brute {theirs[0]:9.1f}{theirs[1]:9.1f}"
            line += f"{np.mean(self._brute, axis=0)[2]:9.1f}   ratio {theirs[0] / cpu:6.1f}"
            line += f"{theirs[1] / wall:6.1f}   wrong {self._wrong}"
            ours, theirs = np.mean(self._ours, axis=0), np.mean(self._brute, axis=0)
            line += f"   ratio of means {theirs[0] / ours[0]:6.1f}{theirs[1] / ours[1]:6.1f}"
        return line


async def fill(path: Path, rows: int, make: Callable[[int, int], Any]) -> None:
    async with SQLiteVectorStore(path, dimension=DIMENSION) as store:
        for first in range(0, rows, BATCH):
            vectors = make(first, min(first + BATCH, rows))
            await store.upsert(
                [
                    Record(str(first + at), vector, "", {"part": (first + at) % 100})
                    for at, vector in enumerate(vectors)
                ]
            )


async def measure(arguments: argparse.Namespace, kind: str, rows: int, path: Path) -> None:
    make, query_vectors = data(kind, arguments.minilm, arguments.queries)
    _, (_, filled, _) = await timed(fill(path, rows, make))
    before, peak = anonymous_bytes(), Peak()
    with peak.watched():
        async with SQLiteVectorStore(path, dimension=DIMENSION, scratch_dir=path.parent) as store:
            # queries without a filter search the codes in the file until that has cost as much
            first_query = store.query(query_vectors[0], K, filter={"part": 0})
            _, (cpu, wall, _) = await timed(first_query)
            now = anonymous_bytes() - before
            print(
                f"\n{kind}, {rows} x {DIMENSION}: filled in {filled / 1e3:.0f} s; read in "
                f"{cpu / 1e3:.1f} s CPU, {wall / 1e3:.1f} s; anonymous MB {now / 1e6:.0f}, "
                f"{now / rows:.0f} bytes a row\n"
                f"{'median ms':18}{'CPU':>9}{'wall':>9}{'disk MB':>9}",
                flush=True,
            )
            for case in ("warm", "cold", "1 % filter", "after a write"):
                measured = Case(store, case, rows, make)
                for number, query in enumerate(query_vectors):
                    await measured.query(number, query)
                print(measured.line(), flush=True)
    print(f"anonymous MB at the peak {(peak.bytes - before) / 1e6:.0f}", flush=True)


def main() -> None:
    """Measure each kind and size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--data", nargs="+", default=["real"], help="real, isotropic")
    parser.add_argument("--minilm", default=os.environ.get("LIB_BENCH_MINILM"))
    parser.add_argument("--folder", default=".")
    arguments = parser.parse_args()
    for kind in arguments.data:
        for rows in arguments.records:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                asyncio.run(measure(arguments, kind, rows, Path(folder, "vectors.db")))


if __name__ == "__main__":
    main()
