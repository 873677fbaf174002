"""Libraries that search arrays: what they cannot filter by is given to them ready made."""

from __future__ import annotations

import faiss
import hnswlib
import numpy as np
from peers.search.data import CASES, Data, Search, Searches
from usearch.index import MetricKind
from usearch.index import search as usearch_search

LINKS, EFFORT_TO_BUILD, EFFORT = 16, 100, 100
_faiss_exact, _faiss_approximate = faiss.SearchParameters, faiss.SearchParametersHNSW


def numpy_best(data: Data) -> Searches:
    """The least that an exact search in numpy does, over the allowed rows if they are few."""

    def search(case: str) -> Search:
        mask, matrix = data.mask(case), data.matrix
        rows = None if mask is None else np.flatnonzero(mask)
        few = rows is not None and len(rows) <= len(matrix) // 10

        def found(query: np.ndarray) -> list[int]:
            scores = matrix[rows] @ query if few else matrix @ query
            if rows is not None and not few:
                scores = scores[rows]
            best = np.argpartition(scores, len(scores) - data.k)[len(scores) - data.k :]
            best = best[np.argsort(-scores[best])]
            return (best if rows is None else rows[best]).tolist()

        return found

    return {case: search(case) for case in CASES}


def faiss_flat(data: Data) -> Searches:
    """IndexFlatIP; its selectors are made beforehand and cost the search nothing."""
    return _faiss(faiss.IndexFlatIP(data.matrix.shape[1]), data, _faiss_exact)


def faiss_hnsw(data: Data) -> Searches:
    """IndexHNSWFlat; a selector keeps results back, the graph is walked as without it."""
    index = faiss.IndexHNSWFlat(data.matrix.shape[1], 2 * LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = EFFORT_TO_BUILD
    return _faiss(index, data, lambda **options: _faiss_approximate(efSearch=EFFORT, **options))


def _faiss(index: faiss.Index, data: Data, parameters: type) -> Searches:
    index.add(data.matrix)

    def search(case: str) -> Search:
        mask = data.mask(case)
        if mask is None:
            search_parameters = parameters()
        else:
            selector = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
            search_parameters = parameters(sel=selector)
        return lambda query: index.search(query[None], data.k, params=search_parameters)[1][
            0
        ].tolist()

    return {case: search(case) for case in CASES}


def usearch_exact(data: Data) -> Searches:
    """The exact search over an array; it takes no condition in Python."""

    def found(query: np.ndarray) -> list[int]:
        return usearch_search(data.matrix, query, data.k, MetricKind.IP, exact=True).keys.tolist()

    return {"all": found}


def hnswlib_index(data: Data) -> Searches:
    """An HNSW index; filters are Python functions, called for the labels that are met."""
    index = hnswlib.Index("ip", data.matrix.shape[1])
    index.init_index(len(data.matrix), ef_construction=EFFORT_TO_BUILD, M=LINKS)
    index.add_items(data.matrix)
    index.set_ef(EFFORT)
    columns = {field: column.tolist() for field, column in data.columns().items()}

    def search(wanted: tuple[str, int] | None) -> Search:
        if wanted is None:
            return lambda query: index.knn_query(query, data.k, num_threads=1)[0][0].tolist()
        column, value = columns[wanted[0]], wanted[1]

        def found(query: np.ndarray) -> list[int]:
            passes = lambda row: column[row] == value  # noqa: E731 - the form it asks for
            try:
                return index.knn_query(query, data.k, num_threads=1, filter=passes)[0][0].tolist()
            except RuntimeError:  # it met fewer than k that pass
                return []

        return found

    return {case: search(wanted) for case, wanted in CASES.items()}
