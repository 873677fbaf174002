"""Search as it is really used: many tenants, writes in between, a second process, many tasks.

    make bench ARGS="search --mixed"

Tasks of one event loop search for the 10 nearest of one tenant's records, the next tenant each
time, and every twentieth call replaces a record. A second process writes to another namespace (or
table) of the same place meanwhile. Times are CPU of this process from the begin of a call to its
end, so they contain what other tasks do meanwhile, and not what else runs on the machine. "Silent"
is the most CPU that the event loop's thread has used between two rounds, in a run of its own.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector import InMemoryVectorStore, Record, SQLiteVectorStore

Matrix: TypeAlias = NDArray[np.float32]

K, TENANTS, TASKS, WRITES = 10, 1_000, 32, 20
ELSEWHERE = "elsewhere"
PAUSE_S = 0.01  # between two writes of the second process


class Engine(Protocol):
    """One engine, filled; `other` is a program that writes to its place until it is killed."""

    other: str | None

    async def query(self, vector: Matrix, tenant: int) -> list[int]: ...

    async def upsert(self, row: int, vector: Matrix) -> None: ...

    async def close(self) -> None: ...


@dataclass(kw_only=True)
class Measured:
    """Measured ms of CPU for each query and each write, and for all calls together."""

    queries: list[float] = field(default_factory=list[float])
    writes: list[float] = field(default_factory=list[float])
    cpu_s: float = 0.0
    wall_s: float = 0.0
    wrong: int = 0


class Ours:
    """A store of this library."""

    def __init__(self, store: Any, other: str | None) -> None:
        self.store, self.other = store, other

    async def fill(self, matrix: Matrix) -> None:
        for start in range(0, len(matrix), 10_000):
            part = matrix[start : start + 10_000]
            await self.store.upsert([record(start + row, each) for row, each in enumerate(part)])

    async def query(self, vector: Matrix, tenant: int) -> list[int]:
        found = await self.store.query(vector, K, filter={"tenant": tenant})
        return [int(match.id) for match in found]

    async def upsert(self, row: int, vector: Matrix) -> None:
        await self.store.upsert([record(row, vector)])

    async def close(self) -> None:
        await self.store.close()


class Blocking:
    """A peer whose calls block: each runs in one of a few threads."""

    def __init__(
        self,
        query: Callable[[Matrix, int], list[int]],
        upsert: Callable[[int, Matrix], None],
        other: str | None,
        *,
        threads: int,
    ) -> None:
        self._query, self._upsert, self.other = query, upsert, other
        self._pool = ThreadPoolExecutor(threads)

    async def query(self, vector: Matrix, tenant: int) -> list[int]:
        return await self._run(functools.partial(self._query, vector, tenant))

    async def upsert(self, row: int, vector: Matrix) -> None:
        await self._run(functools.partial(self._upsert, row, vector))

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        self._pool.shutdown()


def record(row: int, vector: Matrix) -> Record:
    return Record(str(row), vector, "", {"tenant": row % TENANTS})


async def memory(matrix: Matrix, folder: Path) -> Engine:
    engine = Ours(InMemoryVectorStore(metric="dot"), None)
    await engine.fill(matrix)
    return engine


async def sqlite(matrix: Matrix, folder: Path) -> Engine:
    path, dimension = folder / "vectors.db", matrix.shape[1]
    program = f"""
        from lib.vector import Record, SQLiteVectorStore
        store = SQLiteVectorStore({str(path)!r}, dimension={dimension}, metric="dot")
        async def write(number):
            one = Record(str(number % 1000), [1.0] * {dimension})
            await store.upsert([one], namespace={ELSEWHERE!r})
    """
    store = SQLiteVectorStore(path, dimension=dimension, metric="dot", cache_bytes=1 << 40)
    engine = Ours(store, program)
    await engine.fill(matrix)
    return engine


async def numpy(matrix: Matrix, folder: Path) -> Engine:
    """The least that an exact search of one tenant does, in threads."""
    vectors, tenants = matrix.copy(), np.arange(len(matrix)) % TENANTS

    def query(vector: Matrix, tenant: int) -> list[int]:
        rows = np.flatnonzero(tenants == tenant)
        scores = vectors[rows] @ vector
        return rows[np.argsort(-scores)[:K]].tolist()

    def upsert(row: int, vector: Matrix) -> None:
        vectors[row] = vector

    return Blocking(query, upsert, None, threads=2)


async def numpy_all(matrix: Matrix, folder: Path) -> Engine:
    """The same where nothing tells the rows of a tenant: all are scored, in threads."""
    vectors, tenants = matrix.copy(), np.arange(len(matrix)) % TENANTS

    def query(vector: Matrix, tenant: int) -> list[int]:
        scores = vectors @ vector
        scores[tenants != tenant] = -np.inf
        best = np.argpartition(scores, len(scores) - K)[len(scores) - K :]
        return best[np.argsort(-scores[best])].tolist()

    def upsert(row: int, vector: Matrix) -> None:
        vectors[row] = vector

    return Blocking(query, upsert, None, threads=2)


OURS: dict[str, Callable[[Matrix, Path], Awaitable[Engine]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "numpy": numpy,
    "numpy, all rows": numpy_all,
}

PEERS = ("sqlite-vec", "sqlite-vec, partitions", "lancedb", "chroma")

_FOREVER = """
import asyncio, itertools, textwrap
exec(textwrap.dedent({program!r}))
async def main():
    for number in itertools.count():
        await write(number)
        if number == 0:
            print("writing", flush=True)
        await asyncio.sleep({pause})
asyncio.run(main())
"""


@contextmanager
def second_process(program: str | None) -> Any:
    """Let another process write meanwhile."""
    if program is None:
        yield
        return
    command = [sys.executable, "-c", _FOREVER.format(program=program, pause=PAUSE_S)]
    here = Path(__file__).parent  # programs of peers import from it
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=here) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n", "the second process has failed"
        try:
            yield
        finally:
            process.kill()


class Workload:
    """Calls in a fixed order, shared by tasks; what the records are at any moment."""

    def __init__(self, matrix: Matrix, queries: Matrix) -> None:
        self._matrix, self._queries = matrix.copy(), queries
        self._noise = np.random.default_rng(11)
        self.measured = Measured()
        self._next = self._end = 0

    async def run(self, engine: Engine, calls: int) -> Measured:
        self.measured, self._end = Measured(), self._next + calls
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(self._task(engine) for _ in range(TASKS)))
        self.measured.wall_s = time.perf_counter() - began
        self.measured.cpu_s = time.process_time() - cpu
        await self._check(engine)
        return self.measured

    async def _task(self, engine: Engine) -> None:
        while self._next < self._end:
            number, self._next = self._next, self._next + 1
            began = time.process_time()
            if number % WRITES == WRITES - 1:
                row = int(self._noise.integers(len(self._matrix)))
                self._matrix[row] = self._queries[number % len(self._queries)]
                await engine.upsert(row, self._matrix[row])
                times = self.measured.writes
            else:
                vector = self._queries[number % len(self._queries)]
                await engine.query(vector, number % TENANTS)
                times = self.measured.queries
            times.append(1000 * (time.process_time() - began))

    async def _check(self, engine: Engine) -> None:
        for tenant in range(0, TENANTS, 50):
            vector = self._queries[tenant % len(self._queries)].astype(np.float64)
            rows = np.arange(tenant, len(self._matrix), TENANTS)
            scores = self._matrix[rows].astype(np.float64) @ vector
            right = set(rows[np.argsort(-scores)[:K]].tolist())
            found = await engine.query(vector.astype(np.float32), tenant)
            self.measured.wrong += right != set(found)


async def silence(engine: Engine, work: Workload, calls: int) -> float:
    """Return the most ms of CPU that the loop's thread has used between two rounds.

    What was made before is left out of garbage collections, as `lib-server serve` does: one of the
    whole process takes some 12 ms.
    """
    gc.collect()
    gc.freeze()
    loop, longest, last = asyncio.get_running_loop(), 0.0, time.thread_time()
    running = asyncio.ensure_future(work.run(engine, calls))

    def round_ends() -> None:
        nonlocal longest, last
        now = time.thread_time()
        longest, last = max(longest, now - last), now
        if not running.done():
            loop.call_soon(round_ends)

    loop.call_soon(round_ends)
    await running
    return 1000 * longest


async def filled(name: str, matrix: Matrix, folder: Path) -> Engine:
    if name in OURS:
        return await OURS[name](matrix, folder)
    peers: Any = import_module("peers.search.mixed")
    return Blocking(*peers.PEERS[name](matrix, folder), threads=1 if "sqlite" in name else 2)


async def compare(
    names: list[str], matrix: Matrix, queries: Matrix, calls: int, folder: Path
) -> None:
    """Measure the engines, one after the other; those of peers answer fewer calls."""
    print(f"{len(matrix)} x {matrix.shape[1]}, {TENANTS} tenants, {TASKS} tasks, {calls} calls")
    print(
        f"{'':24}{'p50 ms':>9}{'p99':>9}{'writes':>9}{'p99':>9}{'CPU/call':>10}{'wrong':>7}", end=""
    )
    print(f"{'silent':>9}")
    for name in names:
        engine, rounds = await filled(name, matrix, folder), calls // (1 if name in OURS else 20)
        work = Workload(matrix, queries)
        with second_process(engine.other):
            await work.run(engine, max(TENANTS, rounds // 2) if name in OURS else TASKS)  # warms up
            measured = await work.run(engine, rounds)
            silent = await silence(engine, work, rounds // 2)
        await engine.close()
        queried, written = (
            np.percentile(times, [50, 99]) for times in (measured.queries, measured.writes)
        )
        print(
            f"{name:24}{queried[0]:9.2f}{queried[1]:9.2f}{written[0]:9.2f}{written[1]:9.2f}"
            f"{1000 * measured.cpu_s / rounds:10.3f}{measured.wrong:7}{silent:9.2f}",
            flush=True,
        )
