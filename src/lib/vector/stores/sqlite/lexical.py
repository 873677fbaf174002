"""BM25 over the terms that FTS5 keeps, with the statistics of one namespace.

FTS5's own `bm25()` counts the whole table: other namespaces would change the order in this one,
and tell what they hold. So FTS5 gives the occurrences of each term, and the formula that every
store shares does the rest. The query is never parsed: FTS5 indexes it as it would a document, and
its terms are read back, so no text can be an operator, and both are cut alike.

Source: https://www.sqlite.org/fts5.html, section 8 (fts5vocab) and section 9.5 (docsize).
"""

from __future__ import annotations

import sqlite3

import numpy as np

from lib.vector import bm25
from lib.vector.analysis import STOP_WORDS
from lib.vector.bm25 import Posting, Texts
from lib.vector.exact import Selection
from lib.vector.stores.sqlite.cache import CachedNamespace


def terms(connection: sqlite3.Connection, text: str) -> dict[str, int]:
    """Return the terms that FTS5 makes of a text, and how often each stands in it."""
    plain = text.encode(errors="replace").decode()  # SQLite takes no lone surrogates
    connection.execute("INSERT INTO temp.asked(rowid, text) VALUES (1, ?)", (plain,))
    counted = connection.execute("SELECT term, count(*) FROM temp.asked_terms GROUP BY term")
    found = dict[str, int](counted)
    connection.execute("INSERT INTO temp.asked(asked) VALUES ('delete-all')")
    return found


def stop_terms(connection: sqlite3.Connection) -> frozenset[str]:
    """Return what FTS5 makes of the stop words: they would match nearly every text."""
    return frozenset(terms(connection, " ".join(STOP_WORDS)))


def ranked(
    connection: sqlite3.Connection,
    namespace: CachedNamespace,
    asked: dict[str, int],
    among: Selection,
    limit: int,
) -> list[int]:
    """Return the rows of a namespace that are most relevant to the terms, best first."""
    snapshot, living = namespace.snapshot, namespace.snapshot.living
    lengths = np.array(snapshot.contents.lengths)
    texts = Texts(
        ids=snapshot.rows.ids,
        lengths=lengths,
        living=living.count,
        total_length=int(lengths.sum(where=True if living.mask is None else living.mask)),
    )
    postings = filter(None, (_posting(connection, namespace, *term) for term in asked.items()))
    found = bm25.ranked(postings, texts, limit, allowed=among.mask)
    return [row for row, _ in found]


def size(stored: bytes | None) -> int:
    """Return how many terms a text has, from what FTS5 notes: a number, seven bits to a byte."""
    value = 0
    for byte in stored or b"":
        value = value << 7 | byte & 0x7F
    return value


def _posting(
    connection: sqlite3.Connection, namespace: CachedNamespace, term: str, weight: int
) -> Posting | None:
    counted = connection.execute(
        "SELECT doc, count(*) FROM temp.stored_terms WHERE term = ? GROUP BY doc", (term,)
    )
    pairs = np.array(counted.fetchall(), np.int64).reshape(-1, 2)
    rows, there = namespace.rows(pairs[:, 0])
    if not len(rows):
        return None
    order = np.argsort(rows)
    return Posting(
        rows=rows[order], counts=pairs[there, 1][order], frequency=len(rows), weight=weight
    )
