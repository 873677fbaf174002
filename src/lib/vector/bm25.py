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

_Integers: TypeAlias = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """Where one term of a query occurs.

    Attributes:
        rows: the texts that have it, no row twice.
        counts: how often each of them has it.
        frequency: in how many living texts it occurs, at least 1.
        weight: how often the query has it.
    """

    rows: _Integers
    counts: _Integers
    frequency: int
    weight: int


def scores(
    postings: Iterable[Posting], lengths: _Integers, *, texts: int, total_length: int
) -> NDArray[np.float32]:
    """Return the BM25 score of every row; zero for those without a term of the query.

    Scores are rounded to 32 bits, so that the same gains added in another order are the same.

    Args:
        postings: one per term of the query.
        lengths: how many terms each row has, repeated ones counted.
        texts: how many living texts there are.
        total_length: the sum of their lengths.

    Source: S. Robertson, H. Zaragoza, The probabilistic relevance framework: BM25 and beyond,
    2009, with the inverse document frequency of Lucene, which is never negative.
    """
    rows: list[_Integers] = [np.empty(0, np.intp)]
    gains = [np.empty(0)]
    for posting in postings:
        idf = log1p((texts - posting.frequency + 0.5) / (posting.frequency + 0.5))
        counts = posting.counts.astype(np.float64)
        relative = lengths[posting.rows] * (texts / total_length)
        rows.append(posting.rows)
        gains.append(posting.weight * idf * counts / (counts + K1 * (1.0 - B + B * relative)))
    totals = np.bincount(np.concatenate(rows), np.concatenate(gains), len(lengths))
    return totals.astype(np.float32)


def best(totals: NDArray[np.float32], limit: int, ids: Sequence[str]) -> list[int]:
    """Return the rows with the highest scores above zero, best first, ties by id."""
    cut = len(totals) - limit
    least = np.partition(totals, cut)[cut] if cut > 0 else 0.0
    rows = np.flatnonzero(totals >= least if least else totals)
    scored = zip(rows.tolist(), totals[rows].tolist(), strict=True)
    return [row for row, _ in sorted(scored, key=lambda one: (-one[1], ids[one[0]]))[:limit]]


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

    def scores(self, tokens: Iterable[str]) -> NDArray[np.float32]:
        """Return the score of every row, removed ones included, for a query of these terms."""
        return scores(
            self._postings(tokens),
            np.array(self._lengths),
            texts=self._texts,
            total_length=self._total_length,
        )

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
                    rows=np.array(self._rows[number]),
                    counts=np.array(self._counts[number]),
                    frequency=self._frequency[number],
                    weight=weight,
                )


def _packed(code: Literal["H", "I", "Q"], values: _Integers) -> array[int]:
    return array(code, values.astype(code).tobytes())
