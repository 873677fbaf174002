"""Searches a namespace in the file, and keeps nothing of it in memory.

What a row is worth at most is read from its codes, which are a quarter of its vector and lie many
in one piece; some tens of rows that may be among the nearest are then scored by the definition.
Rows without codes are looked at one by one. All that takes some transactions, so that other calls
have their turns; a write to the namespace in between ends the search without an answer.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lib._util.json import compact
from lib.vector.exact.bounds import reached
from lib.vector.exact.scan import Scan
from lib.vector.exact.search import Rows, Scoring
from lib.vector.records import Match
from lib.vector.stores.sqlite.cache import Listing, QueryPlan
from lib.vector.stores.sqlite.codes import Bounds, StoredCodes
from lib.vector.stores.sqlite.rows import TableRows

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
_CODED_CELLS: Final = 8 << 20  # of codes in one transaction
_SPARE: Final = 16  # rows beyond the k-th that are scored first
_MOST_SEEDS: Final = 256  # and of those that seem to be worth the same

Rids = NDArray[np.int64]


class FileSearch:
    """One search; its methods belong into transactions, all of which see the same rows.

    Attributes:
        listing: the rows.
        loose: how many of them have no codes.
        may_learn: True if they are so many that they may get some.
        found: the nearest records, best first, once it has ended.
    """

    def __init__(
        self, plan: QueryPlan, listing: Listing, rows: TableRows, codes: StoredCodes
    ) -> None:
        """Start with all rows of a namespace."""
        self.listing: Listing = listing
        self.loose: int = 0
        self.may_learn: bool = False
        self.found: list[Match] | None = None
        self._plan, self._rows, self._codes = plan, rows, codes
        metric, dimension = rows.table.metric, rows.table.dimension
        self._sign = 1.0 if metric == "euclidean" else -1.0
        self._k = min(plan.k, len(listing.rids))
        nothing = np.empty((0, dimension), np.float32)
        scoring = Scoring(Rows(ids=[], vectors=nothing, scales=nothing[:, 0]), plan.vector, metric)
        self._scan = Scan(scoring, plan.vector, self._k)
        self._parts_at_once = max(1, _CODED_CELLS // (codes.part_rows * dimension))
        self._steps = self._looked_at() if len(listing.rids) else iter(())

    def go_on(self) -> None:
        """Look at some rows, or end."""
        with np.errstate(all="ignore"):  # see `exact.search.nearest`
            if next(self._steps, None) is None:
                self.found = self._matches()

    def _matches(self) -> list[Match]:
        rids, costs = self._scan.best()
        cost_of = dict(zip(rids.tolist(), costs.tolist(), strict=True))
        named = self._rows.select(_NAMES, compact(list(cost_of)))
        ranked = sorted((cost_of[rid], name, rid) for rid, name in named)[: self._k]
        found = self._rows.select(_FOUND, compact([rid for _, _, rid in ranked]))
        record_of = {rid: self._rows.record(row) for rid, *row in found}
        made = list[Match]()
        for cost, _, rid in ranked:
            record = record_of[rid]
            vector = list(record.vector) if self._plan.include_vectors else None
            made.append(Match(record.id, self._sign * cost, record.text, record.meta, vector))
        return made

    def _looked_at(self) -> Generator[bool]:
        """Look at all rows; yields where a transaction may end."""
        plan, rids = self._plan, self.listing.rids
        bounds = [Bounds(rids[:0], np.empty(0, np.float32))]
        parts = sorted(self._codes.parts(plan.namespace, rids).items())
        for start in range(0, len(parts), self._parts_at_once):
            some = parts[start : start + self._parts_at_once]
            bounds.append(self._codes.bounds(plan.vector, plan.namespace, rids, some))
            yield True
        found = Bounds(*map(np.concatenate, zip(*bounds, strict=True)))
        coded = np.zeros(len(rids), np.bool_)
        coded[np.searchsorted(rids, found.rids)] = True
        loose, best = rids[~coded], self._seeds(found.worths)
        self.loose, self.may_learn = len(loose), self._codes.wants(len(loose))
        self._read_rows(np.sort(found.rids[best]))
        for start in range(0, len(loose), _ROWS_AT_ONCE):
            self._read_rows(loose[start : start + _ROWS_AT_ONCE])
            yield True
        found.worths[best] = -np.inf
        yield from self._score(found)

    def _seeds(self, worths: NDArray[np.float32]) -> NDArray[np.intp]:
        """Return some rows that seem to be worth most."""
        if not len(worths):
            return np.empty(0, np.intp)
        least = reached(worths, min(self._k + _SPARE, len(worths)))
        return (worths >= least).nonzero()[0][: 4 * self._k + _MOST_SEEDS]

    def _score(self, found: Bounds) -> Generator[bool]:
        """Look at the rows that can be among the nearest, those that may be worth most first."""
        left = (found.worths >= self._scan.least).nonzero()[0]
        left = left[np.argsort(-found.worths[left], kind="stable")]
        for start in range(0, len(left), _ROWS_TOGETHER):
            some = left[start : start + _ROWS_TOGETHER]
            some = some[found.worths[some] >= self._scan.least]
            if not len(some):
                break
            self._read_rows(np.sort(found.rids[some]))
            yield True

    def _read_rows(self, rids: Rids) -> None:
        for start in range(0, len(rids), _ROWS_TOGETHER):
            some = rids[start : start + _ROWS_TOGETHER]
            first, last = int(some[0]), int(some[-1])
            if last - first == len(some) - 1:  # in a row, as where one batch has written them
                rows = self._rows.select(_FOLLOWING, self._plan.namespace, first, last)
            else:
                rows = self._rows.select(_LISTED, self._plan.namespace, compact(some.tolist()))
            vectors = self._rows.matrix([vector for _, vector in rows])
            self._scan.add(np.array([rid for rid, _ in rows], np.intp), vectors)
