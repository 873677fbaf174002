"""Searches a namespace in the file, and keeps none of its vectors.

Reading vectors costs a fraction of keeping them, with their ids and what else searches need. So the
first searches of a large namespace only look at them, some rows in each transaction, so that other
calls have their turns. A write to the namespace in between ends the search without an answer.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.scan import Scan
from lib.vector.exact.search import Scoring
from lib.vector.records import Match
from lib.vector.stores.sqlite.cache import NamespaceReader, QueryPlan
from lib.vector.stores.sqlite.packed import Packed
from lib.vector.stores.sqlite.rows import TableRows, as_json

_FOLLOWING: Final = "SELECT rid, vector FROM [table] WHERE +namespace = ? AND rid BETWEEN ? AND ?"
_LISTED: Final = """
    SELECT rid, vector FROM [table]
    WHERE +namespace = ? AND rid IN (SELECT value FROM json_each(?))
"""  # the plus keeps SQLite from reading the index of the namespace
_NAMES: Final = "SELECT rid, id FROM [table] WHERE rid IN (SELECT value FROM json_each(?))"
_FOUND: Final = """
    SELECT rid, id, vector, text, meta FROM [table] WHERE rid IN (SELECT value FROM json_each(?))
"""
_ROWS_AT_ONCE: Final = 4_000
_ROWS_TOGETHER: Final = 500  # so few that their vectors stay in the cache

Rids = NDArray[np.int64]


class FileSearch:
    """One search; its methods belong into transactions, all of which see the same rows.

    Attributes:
        reader: has listed the rows, and has read some of them.
    """

    def __init__(
        self, plan: QueryPlan, reader: NamespaceReader, rows: TableRows, packed: Packed
    ) -> None:
        """Start with what was read."""
        self.reader: NamespaceReader = reader
        self._plan, self._rows, self._packed, self._read = plan, rows, packed, reader.read
        self._sign = 1.0 if rows.table.metric == "euclidean" else -1.0
        read = reader.cached.snapshot
        self._room = np.empty((_ROWS_AT_ONCE, rows.table.dimension), np.float32)
        self._k = min(plan.k, len(reader.rids))
        scoring = Scoring(read.rows, plan.vector, rows.table.metric)
        self._scan = Scan(scoring, plan.vector, self._k)
        with np.errstate(all="ignore"):
            self._scan.add(np.array(read.contents.rids, np.intp), read.rows.vectors)

    def read(self) -> bool:
        """Look at some rows; return True if more follow."""
        reader = self.reader
        rids = reader.rids[self._read : self._read + _ROWS_AT_ONCE]
        with np.errstate(all="ignore"):  # see `exact.search.nearest`
            loose = self._read_parts(rids) if reader.parts and len(rids) else rids
            if len(loose):
                self._read_rows(loose)
        self._read += len(rids)
        return self._read < len(reader.rids)

    def _read_parts(self, rids: Rids) -> Rids:
        """Look at those of some rows that are in parts which end among them; return the others."""
        parts, loose, last = self.reader.parts, np.ones(len(rids), np.bool_), int(rids[-1])
        size = 0
        for begin, vectors in self._packed.vectors(self.reader.namespace, int(rids[0]), last):
            end = begin + len(vectors)
            if parts.get(begin) == end - 1 <= last:
                place = int(np.searchsorted(rids, begin))
                loose[place : place + len(vectors)] = False
                self._room[size : size + len(vectors)] = vectors
                size += len(vectors)
        self._scan.add(rids[~loose], self._room[:size])
        return rids[loose]

    def _read_rows(self, rids: Rids) -> None:
        for start in range(0, len(rids), _ROWS_TOGETHER):
            some = rids[start : start + _ROWS_TOGETHER]
            first, last = int(some[0]), int(some[-1])
            if last - first == len(some) - 1:  # in a row, as where one batch has written them
                rows = self._rows.select(_FOLLOWING, self.reader.namespace, first, last)
            else:
                rows = self._rows.select(_LISTED, self.reader.namespace, as_json(some.tolist()))
            vectors = self._rows.matrix([vector for _, vector in rows])
            self._scan.add(np.array([rid for rid, _ in rows], np.intp), vectors)

    def matches(self) -> list[Match]:
        """Return the nearest records, best first."""
        rids, costs = self._scan.best()
        cost_of = dict(zip(rids.tolist(), costs.tolist(), strict=True))
        named = self._rows.select(_NAMES, as_json(list(cost_of)))
        ranked = sorted((cost_of[rid], name, rid) for rid, name in named)[: self._k]
        found = self._rows.select(_FOUND, as_json([rid for _, _, rid in ranked]))
        record_of = {rid: self._rows.record(row) for rid, *row in found}
        made = list[Match]()
        for cost, _, rid in ranked:
            record = record_of[rid]
            vector = list(record.vector) if self._plan.include_vectors else None
            made.append(Match(record.id, self._sign * cost, record.text, record.meta, vector))
        return made
