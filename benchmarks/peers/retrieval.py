"""The peer of `benchmarks/retrieval.py`: bm25s as its documentation recommends it for English."""

from __future__ import annotations

import bm25s
import Stemmer

DEPTH = 100


def bm25s_found(texts: list[str], ids: list[str], queries: dict[str, str]) -> dict[str, list[str]]:
    """Return the best documents of each query."""
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    words = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    index.index(words, show_progress=False)
    tokenized = bm25s.tokenize(
        list(queries.values()), stopwords="en", stemmer=stemmer, show_progress=False
    )
    found, scores = index.retrieve(tokenized, k=min(DEPTH, len(texts)), show_progress=False)
    return {
        name: [ids[row] for row, score in zip(rows, gains, strict=True) if score > 0]
        for name, rows, gains in zip(queries, found, scores, strict=True)
    }
