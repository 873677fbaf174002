"""Stores that search their file as if each namespace were large, and a look at the codes there."""

import asyncio
import sqlite3
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.vector import Metric, SQLiteVectorStore
from lib.vector.exact.bounds import View
from lib.vector.exact.codes import Coding, Prepared, slow_products

Wide = NDArray[np.float64]


class ColdStore(SQLiteVectorStore):
    """Takes each namespace that holds anything for large."""

    _least_searched_bytes = 0

    async def rest(self) -> None:
        """Wait until nothing is done in the background."""
        background: Any = vars(self)["_background"]
        jobs: dict[object, Future[None]] = background._jobs
        for job in list(jobs.values()):
            await asyncio.wrap_future(job)


@contextmanager
def raw(path: Path) -> Generator[sqlite3.Connection]:
    """Open a file as other programs do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def parts(path: Path, metric: Metric = "cosine", table: str = "lib_vectors") -> list[range]:
    """Return the rows of each part, and check that none promises less than they are worth."""
    with raw(path) as connection:
        found = connection.execute(
            f"SELECT namespace, first, last, size, share, centre, codes FROM {table}_codes"
            " ORDER BY first"
        ).fetchall()
        for namespace, first, last, size, share, centre, codes in found:
            rows = connection.execute(
                f"SELECT vector FROM {table}"
                " WHERE namespace = ? AND rid BETWEEN ? AND ? ORDER BY rid",
                (namespace, first, last),
            ).fetchall()
            assert len(rows) == size
            coding = Coding(metric=metric, products=slow_products, least_rows=0)
            coded = Prepared.loaded(coding, np.frombuffer(centre, "<f4"), share, [codes])
            vectors = np.array([np.frombuffer(vector, "<f4") for (vector,) in rows], np.float64)
            query = vectors[size // 2] + 1.0
            view = View(query.astype(np.float32), metric, coded.centre)
            assert (coded.worths(view, slice(0, size)) >= worths(vectors, query, metric)).all()
    return [range(first, last + 1) for _, first, last, *_ in found]


def worths(vectors: Wide, query: Wide, metric: Metric) -> Wide:
    """Return what rows are worth, see `lib.vector.exact.bounds`, less what rounding may do."""
    query = query.astype(np.float32).astype(np.float64)
    if metric == "euclidean":
        return -0.5 * ((vectors - query) ** 2).sum(axis=1) * (1 + 1e-12)
    products = vectors @ query
    if metric == "dot":
        return products - 1e-12 * np.abs(vectors) @ np.abs(query)
    return products / np.sqrt((vectors**2).sum(axis=1) * (query @ query)) - 1e-12
