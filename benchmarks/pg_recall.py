"""The recall of PostgreSQL's searches against the exact answer, filtered and not.

    .venv/bin/python benchmarks/pg_recall.py [--records 100000] [--dimension 384]

Starts a PostgreSQL with pgvector in a temporary folder. All records lie in one namespace, filters
keep 50, 10, 5 and 1 % of them, another namespace holds 5 % more. Recall@10 is against scores in
64 bits; `short` counts answers of fewer than ten records. The first number of `ms` is the median.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from search import clustered

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lib.vector import PostgresVectorStore, Record
from servers import postgres

K = 10
SHARES = {"half": 2, "tenth": 10, "twentieth": 20, "hundredth": 100}
BATCH = 10_000


async def fill(store: PostgresVectorStore, matrix: NDArray[np.float32]) -> None:
    other = len(matrix) // 20
    for namespace, rows in (("main", range(len(matrix))), ("other", range(other))):
        start = time.perf_counter()
        for first in range(0, len(rows), BATCH):
            await store.upsert(
                [
                    Record(f"{row}", matrix[row], "", {name: row % n for name, n in SHARES.items()})
                    for row in rows[first : first + BATCH]
                ],
                namespace=namespace,
            )
        spent = time.perf_counter() - start
        print(f"{len(rows)} records into {namespace!r}: {len(rows) / spent:,.0f} records/s")


async def measure(
    store: PostgresVectorStore, matrix: NDArray[np.float32], queries: NDArray[np.float32]
) -> None:
    row = np.arange(len(matrix))
    cases: dict[str, tuple[dict[str, Any] | None, str, NDArray[np.bool_]]] = {
        "everything": (None, "main", row >= 0),
        **{
            f"{100 // n} % by filter": ({name: n - 1}, "main", row % n == n - 1)
            for name, n in SHARES.items()
        },
        "5 % by namespace": (None, "other", row < len(matrix) // 20),
        "no filter can be indexed": ({"half": {"$gt": 0}}, "main", row % 2 == 1),
    }
    print(f"{'':26}{'recall@10':>10}{'short':>7}{'ms':>9}{'p99':>9}")
    for name, (filter, namespace, mask) in cases.items():
        found, times, short = 0, list[float](), 0
        for query in queries:
            scores = np.where(mask, matrix.astype(np.float64) @ query, -np.inf)
            wanted = {f"{best}" for best in np.argpartition(-scores, K)[:K]}
            start = time.perf_counter()
            matches = await store.query(query, K, filter=filter, namespace=namespace)
            times.append(1000 * (time.perf_counter() - start))
            found += len(wanted & {match.id for match in matches})
            short += len(matches) < K
        recall = found / (K * len(queries))
        p50, p99 = np.percentile(times, [50, 99])
        print(f"{name:26}{recall:10.4f}{short:7}{p50:9.2f}{p99:9.2f}")


async def main(arguments: argparse.Namespace, dsn: str) -> None:
    matrix, queries = clustered(arguments.records, arguments.dimension, arguments.queries)
    settings: dict[str, Any] = {"dimension": arguments.dimension, "table": "recall"}
    exact = PostgresVectorStore(dsn, hnsw=False, **settings)
    await fill(exact, matrix)
    print("\nexact (hnsw=False)")
    await measure(exact, matrix, queries[:20])
    await exact.close()
    start = time.perf_counter()
    indexed = PostgresVectorStore(dsn, **settings)
    await indexed.setup()
    print(f"\nwith an HNSW index, built in {time.perf_counter() - start:.0f} s")
    await measure(indexed, matrix, queries)
    start = time.perf_counter()
    await indexed.upsert([Record(f"new {row}", matrix[row]) for row in range(1000)])
    print(f"\n1000 more: {1000 / (time.perf_counter() - start):,.0f} records/s")
    await indexed.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=100)
    url = postgres.url() + "&options=-c%20maintenance_work_mem%3D1GB"
    asyncio.run(main(parser.parse_args(), url))
