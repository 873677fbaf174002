"""BM25 over the terms that FTS5 keeps, with the statistics of one namespace.

FTS5's own `bm25()` counts the whole table: other namespaces would change the order in this one,
and tell what they hold. So FTS5 gives the occurrences of each term, and the formula that every
store shares does the rest. The query is never parsed: FTS5 indexes it as it would a document, and
its terms are read back, so no text can be an operator, and both are cut alike.

FTS5 has one list of occurrences per term, for all namespaces, and it is read to the end: some 0.1
microseconds for each. So a query's time, not its answer, tells how common its words are elsewhere;
where that matters, a tenant takes a table or a file of its own.

Source: https://www.sqlite.org/fts5.html, section 8 (fts5vocab) and section 9.5 (docsize).
"""

from __future__ import annotations

import json
import sqlite3

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.search import Selection
from lib.vector.stores.sqlite.cache import CachedNamespace
from lib.vector.text import bm25
from lib.vector.text.analysis import STOP_WORDS
from lib.vector.text.bm25 import Posting, Texts

_EVERYWHERE = "SELECT doc FROM temp.stored_terms WHERE term = ?"
_HERE = """
    SELECT doc FROM temp.stored_terms WHERE term = ? AND doc IN (SELECT value FROM json_each(?))
"""
_AT_ONCE = 500
_OTHERS = 4  # occurrences per own text; with fewer, leaving those of others out does not pay


def terms(connection: sqlite3.Connection, text: str) -> dict[str, int]:
    """Return the terms that FTS5 makes of a text, and how often each stands in it."""
    plain = text.encode(errors="replace").decode()  # SQLite takes no lone surrogates
    connection.execute("INSERT INTO temp.query_text(rowid, text) VALUES (1, ?)", (plain,))
    counted = connection.execute("SELECT term, count(*) FROM temp.query_terms GROUP BY term")
    found = dict[str, int](counted)
    connection.execute("INSERT INTO temp.query_text(query_text) VALUES ('delete-all')")
    return found


def stop_terms(connection: sqlite3.Connection) -> frozenset[str]:
    """Return what FTS5 makes of the stop words: they would match nearly every text."""
    return frozenset(terms(connection, " ".join(STOP_WORDS)))


def ranked(
    connection: sqlite3.Connection,
    namespace: CachedNamespace,
    counts: dict[str, int],
    among: Selection,
    limit: int,
) -> list[tuple[int, float]]:
    """Return the rows of a namespace that are most relevant to the terms, best first."""
    snapshot, living = namespace.snapshot, namespace.snapshot.living
    lengths = np.array(snapshot.contents.lengths)
    texts = Texts(
        ids=snapshot.rows.ids,
        lengths=lengths,
        living=living.count,
        total_length=int(lengths.sum(where=True if living.mask is None else living.mask)),
    )
    postings = filter(None, (_posting(connection, namespace, *term) for term in counts.items()))
    return bm25.ranked(postings, texts, limit, allowed=among.mask)


def size(stored: bytes | None) -> int:
    """Return how many terms a text has, from what FTS5 notes: a number, seven bits to a byte."""
    value = 0
    for byte in stored or b"":
        value = value << 7 | byte & 0x7F
    return value


def _posting(
    connection: sqlite3.Connection, namespace: CachedNamespace, term: str, weight: int
) -> Posting | None:
    occurrences = _occurrences(connection, namespace, term)
    if not len(occurrences):
        return None
    rows, counts = np.unique(occurrences, return_counts=True)
    return Posting(rows=rows, counts=counts, frequency=len(rows), weight=weight)


def _occurrences(
    connection: sqlite3.Connection, namespace: CachedNamespace, term: str
) -> NDArray[np.intp]:
    """Return the row of each occurrence of a term in a namespace.

    Once most are those of others, SQLite leaves these out, which takes a third of the time.
    """
    cursor, found = connection.execute(_EVERYWHERE, (term,)), [np.empty(0, np.intp)]
    most = max(_AT_ONCE, _OTHERS * namespace.snapshot.count)
    while batch := cursor.fetchmany(most):
        found.append(namespace.rows(_rids(batch))[0])
        if len(batch) == most and 2 * len(found[-1]) < most:
            here = json.dumps(namespace.snapshot.contents.rids.tolist())
            return namespace.rows(_rids(connection.execute(_HERE, (term, here)).fetchall()))[0]
    return np.concatenate(found)


def _rids(found: list[tuple[int]]) -> NDArray[np.int64]:
    return np.array(found, np.int64).reshape(-1)
