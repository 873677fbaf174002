"""The peers of `benchmarks/bm25.py`, with k1 = 1.2 and b = 0.75 where they can be set."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import bm25s
import numpy as np
import rank_bm25
import tantivy

K = 10
Documents = list[list[str]]


class RankBM25:
    def __init__(self, documents: Documents) -> None:
        self._index = rank_bm25.BM25Okapi(documents, k1=1.2, b=0.75)

    def query(self, terms: list[str]) -> list[int]:
        scores = self._index.get_scores(terms)
        best = np.argpartition(scores, len(scores) - K)[len(scores) - K :]
        return [int(row) for row in best if scores[row] > 0]


class BM25S:
    def __init__(self, documents: Documents) -> None:
        self._index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        self._index.index(documents, show_progress=False)

    def query(self, terms: list[str]) -> list[int]:
        terms_in_index = [term for term in terms if term in self._index.vocab_dict]
        if not terms_in_index:
            return []
        found, scores = self._index.retrieve(
            [terms_in_index], k=K, show_progress=False, n_threads=0
        )
        return [int(row) for row, score in zip(found[0], scores[0], strict=True) if score > 0]


class Tantivy:
    def __init__(self, documents: Documents) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field("row", stored=True, indexed=True)
        builder.add_text_field("body", tokenizer_name="whitespace")
        self._schema = builder.build()
        self._index = tantivy.Index(self._schema)
        self._writer = self._index.writer(heap_size=512_000_000, num_threads=1)
        self._size = 0
        for terms in documents:
            self._put(terms)
        self._commit()

    def query(self, terms: list[str]) -> list[int]:
        searcher = self._index.searcher()
        wanted = tantivy.Query.boolean_query(
            [
                (tantivy.Occur.Should, tantivy.Query.term_query(self._schema, "body", term))
                for term in terms
            ]
        )
        hits = searcher.search(wanted, K, count=False).hits
        return [searcher.doc(address)["row"][0] for _, address in hits]

    def add(self, terms: list[str]) -> None:
        self._put(terms)
        self._commit()

    def delete(self, row: int) -> None:
        self._writer.delete_documents("row", row)
        self._commit()

    def _put(self, terms: list[str]) -> None:
        document = tantivy.Document()
        document.add_unsigned("row", self._size)
        document.add_text("body", " ".join(terms))
        self._writer.add_document(document)
        self._size += 1

    def _commit(self) -> None:
        self._writer.commit()
        self._index.reload()


class FTS5:
    def __init__(self, documents: Documents) -> None:
        self._base = sqlite3.connect(":memory:")
        self._base.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize='ascii')")
        rows = ((row + 1, " ".join(terms)) for row, terms in enumerate(documents))
        self._base.executemany("INSERT INTO t(rowid, body) VALUES (?, ?)", rows)
        self._base.commit()

    def query(self, terms: list[str]) -> list[int]:
        wanted = " OR ".join(f'"{term}"' for term in terms)
        found = self._base.execute(
            f"SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT {K}", (wanted,)
        )
        return [row - 1 for (row,) in found]

    def add(self, terms: list[str]) -> None:
        self._base.execute("INSERT INTO t(body) VALUES (?)", (" ".join(terms),))
        self._base.commit()

    def delete(self, row: int) -> None:
        self._base.execute("DELETE FROM t WHERE rowid = ?", (row + 1,))
        self._base.commit()


ENGINES: dict[str, Callable[[Documents], Any]] = {
    "tantivy": Tantivy,
    "bm25s": BM25S,
    "rank_bm25": RankBM25,
    "FTS5": FTS5,
}
