"""BM25 that is always up to date: texts come and go one by one, and no score is precomputed."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

K1 = 1.2
B = 0.75

_MAX_COUNT = 65_535  # a count takes 16 bits

_WORTH_A_LOOK = 2_000  # rows of a term, above which it pays to ask whether all are needed
_SLACK = 1e-6  # far above what adding up in another order and rounding to 32 bits can change

Mask: TypeAlias = NDArray[np.bool_]
_Integers: TypeAlias = NDArray[np.integer[Any]]
_Totals: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """The occurrences of one term of a query.

    Attributes:
        rows: the texts that have it, ascending.
        counts: how often each of them has it.
        frequency: in how many living texts it occurs, at least 1.
        weight: how often the query has it.
    """

    rows: _Integers
    counts: _Integers
    frequency: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The statistics that scores depend on.

    Attributes:
        ids: of every row; equal scores stand in their order.
        lengths: how many terms each row has, repeated ones counted.
        living: how many texts there are.
        total_length: the sum of their lengths.
    """

    ids: Sequence[str]
    lengths: _Integers
    living: int
    total_length: int

    def bound(self, posting: Posting) -> float:
        """Return what the term adds to any score at most; a rare term adds more."""
        odds = (self.living - posting.frequency + 0.5) / (posting.frequency + 0.5)
        return posting.weight * log1p(odds)

    def gains(self, posting: Posting, places: Any = slice(None)) -> NDArray[np.float64]:
        """Return what the term adds to the score of the posting's rows, or of some of them."""
        counts, lengths = posting.counts[places], self.lengths[posting.rows[places]]
        per_term = K1 * B * self.living / self.total_length
        return self.bound(posting) * counts / (counts + (K1 * (1.0 - B) + per_term * lengths))


def ranked(
    postings: Iterable[Posting],
    texts: Texts,
    limit: int,
    *,
    allowed: Mask | None = None,
    totals: _Totals | None = None,
) -> list[tuple[int, float]]:
    """Return the rows with the highest scores and these, best first, ties by id.

    Only rows with a term of the query are found. Scores are rounded to 32 bits, so that the same
    gains added in another order are the same.

    Rare terms go first. Once the terms that are left could not lift a new row among the best, they
    are looked up for the rows at hand only, which costs little.

    Args:
        postings: one per term of the query.
        texts: the statistics.
        limit: how many rows at most.
        allowed: which rows may be found; None stands for all.
        totals: zeros, one for each row, to work on; they are zeros again afterwards.

    Source: S. Robertson, H. Zaragoza, The probabilistic relevance framework: BM25 and beyond,
    2009, with the inverse document frequency of Lucene; H. Turtle, J. Flood, Query evaluation:
    strategies and optimizations, 1995 (MaxScore).
    """
    waiting = sorted(postings, key=texts.bound)
    found = _Found(np.zeros(len(texts.lengths)) if totals is None else totals)
    try:
        while waiting and not _settled(waiting, found, texts, limit):
            found.add(waiting.pop(), texts, allowed)
        rows = _promising(found, texts, waiting, limit) if waiting else found.rows()
        for posting in reversed(waiting):
            _look_up(rows, posting, texts, found.totals)
        return _best(rows, found.totals[rows].astype(np.float32), limit, texts.ids)
    finally:
        found.totals[found.rows()] = 0.0


class _Found:
    """The rows that have a term, each once, and what their scores are so far."""

    def __init__(self, totals: _Totals) -> None:
        self.totals = totals
        self._parts: list[_Integers] = []

    def rows(self) -> _Integers:
        if len(self._parts) != 1:
            self._parts = [np.concatenate([np.empty(0, np.uint32), *self._parts])]
        return self._parts[0]

    def add(self, posting: Posting, texts: Texts, allowed: Mask | None) -> None:
        places = slice(None) if allowed is None else np.flatnonzero(allowed[posting.rows])
        rows = posting.rows[places]
        before = self.totals[rows]
        gains = texts.gains(posting, places)
        self._parts.append(rows[before == 0.0] if self._parts else rows)
        self.totals[rows] = before + gains


def _settled(waiting: list[Posting], found: _Found, texts: Texts, limit: int) -> bool:
    """Return True if no row that has only the terms that are left can be among the best."""
    if len(waiting[-1].rows) < _WORTH_A_LOOK:
        return False
    return _left(waiting, texts) < _least(found.totals[found.rows()], limit)


def _promising(found: _Found, texts: Texts, waiting: list[Posting], limit: int) -> _Integers:
    """Return the rows that can still be among the best, ascending."""
    rows = found.rows()
    partial = found.totals[rows]
    least = (1.0 - _SLACK) * _least(partial, limit) - _left(waiting, texts)
    return np.sort(rows[partial >= least])


def _left(waiting: list[Posting], texts: Texts) -> float:
    """Return more than the terms that are left can add to any score."""
    return (1.0 + _SLACK) * sum(map(texts.bound, waiting))


def _least(totals: NDArray[Any], limit: int) -> float:
    """Return the limit-th highest of the scores, 0 if there are fewer."""
    cut = len(totals) - limit
    return float(np.partition(totals, cut)[cut]) if cut >= 0 else 0.0


def _look_up(rows: _Integers, posting: Posting, texts: Texts, totals: _Totals) -> None:
    """Add a term's gains to the totals of these rows alone."""
    places = np.searchsorted(posting.rows, rows)
    places[places == len(posting.rows)] = 0
    places = places[posting.rows[places] == rows]
    totals[posting.rows[places]] += texts.gains(posting, places)


def _best(
    rows: _Integers, scores: NDArray[np.float32], limit: int, ids: Sequence[str]
) -> list[tuple[int, float]]:
    if len(rows) > limit:
        kept = scores >= _least(scores, limit)
        rows, scores = rows[kept], scores[kept]
    scored = zip(rows.tolist(), scores.tolist(), strict=True)
    return sorted(scored, key=lambda one: (-one[1], ids[one[0]]))[:limit]


class BM25:
    """Terms of the texts of one namespace, as rows in the order in which they were added.

    Per term there is a list of rows and counts. A removed text stays in the lists but leaves every
    statistic at once; `compacted` drops it. One caller at a time.
    """

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}
        self._rows: list[array[int]] = []  # per term
        self._counts: list[array[int]] = []
        self._frequency = array("I")
        self._lengths = array("I")  # per text
        self._terms = array("I")  # the distinct terms of all texts, one text after the other
        self._ends = array("Q", [0])  # where the terms of each text end
        self._texts = 0
        self._total_length = 0
        self._totals = np.zeros(0)  # zeros between queries

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, tokens: Sequence[str]) -> None:
        """Append a text as the next row."""
        row = len(self._lengths)
        for term, count in Counter(tokens).items():
            number = self._number(term)
            self._rows[number].append(row)
            self._counts[number].append(min(count, _MAX_COUNT))
            self._frequency[number] += 1
            self._terms.append(number)
        self._ends.append(len(self._terms))
        self._lengths.append(len(tokens))
        self._total_length += len(tokens)
        self._texts += 1

    def remove(self, row: int) -> None:
        """Take a text out; its row is not given to another one."""
        for number in self._terms[self._ends[row] : self._ends[row + 1]]:
            self._frequency[number] -= 1
        self._total_length -= self._lengths[row]
        self._texts -= 1

    def ranked(
        self, tokens: Iterable[str], limit: int, ids: Sequence[str], *, allowed: Mask | None = None
    ) -> list[tuple[int, float]]:
        """Return the best rows for a query of these terms with their scores, ties by id.

        Args:
            tokens: the terms of the query; repeated ones count as often.
            limit: how many rows at most.
            ids: of every row.
            allowed: which rows may be found; None stands for all, removed ones included.
        """
        if len(self._totals) < len(self):
            self._totals = np.zeros(len(self) + len(self) // 2)
        texts = Texts(
            ids=ids,
            lengths=np.frombuffer(self._lengths, np.uint32),
            living=self._texts,
            total_length=self._total_length,
        )
        return ranked(self._postings(tokens), texts, limit, allowed=allowed, totals=self._totals)

    def compacted(self, kept: NDArray[np.intp]) -> BM25:
        """Return an index of the kept rows alone, renumbered in their order; none is removed."""
        place = np.full(len(self), -1)
        place[kept] = np.arange(len(kept))
        index = BM25()
        renumbered = np.zeros(len(self._rows), np.uint32)
        for term, old in self._number_of.items():
            rows = place[np.array(self._rows[old])]
            alive = rows >= 0
            if alive.any():
                number = renumbered[old] = index._number(term)
                index._rows[number] = _packed("I", rows[alive])
                index._counts[number] = _packed("H", np.array(self._counts[old])[alive])
                index._frequency[number] = len(index._rows[number])
        sizes = np.diff(np.array(self._ends, np.int64))
        owners = np.repeat(place, sizes)
        index._terms = _packed("I", renumbered[np.array(self._terms)[owners >= 0]])
        index._ends = _packed("Q", np.concatenate([[0], np.cumsum(sizes[kept])]))
        index._lengths = _packed("I", np.array(self._lengths)[kept])
        index._texts = len(kept)
        index._total_length = sum(index._lengths)
        return index

    def _number(self, term: str) -> int:
        number = self._number_of.setdefault(term, len(self._rows))
        if number == len(self._rows):
            self._rows.append(array("I"))
            self._counts.append(array("H"))
            self._frequency.append(0)
        return number

    def _postings(self, tokens: Iterable[str]) -> Iterator[Posting]:
        for term, weight in sorted(Counter(tokens).items()):
            number = self._number_of.get(term)
            if number is not None and self._frequency[number]:
                yield Posting(
                    rows=np.frombuffer(self._rows[number], np.uint32),
                    counts=np.frombuffer(self._counts[number], np.uint16),
                    frequency=self._frequency[number],
                    weight=weight,
                )


def _packed(code: Literal["H", "I", "Q"], values: _Integers) -> array[int]:
    return array(code, values.astype(code).tobytes())
