"""The rows of one namespace in memory, written by one while others read.

Rows are only ever appended. What is replaced or deleted is marked with the number of the write
that did so, never overwritten, so a reader with a `Snapshot` goes on reading what it showed: rows
that were there and that no write up to then had marked. Once a quarter is marked, the living rows
move together: into new arrays, under new numbers, while old snapshots keep the old ones. So a
write takes as long as what it writes, however much there is, but for those that move the rows:
seldom enough to add a constant to each row written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.codes import Codes, Coding, grown
from lib.vector.exact.search import Rows, Selection, scales
from lib.vector.records import Metric

_DEAD_SHARE = 0.25
_SMALLEST = 64
_KEPT_SELECTIONS = 16
_ALIVE = np.iinfo(np.int64).max

T_contra = TypeVar("T_contra", contravariant=True)


class Contents(Protocol[T_contra]):
    """The data that a store keeps beside the vectors; rows of one number belong together."""

    def extend(self, items: Sequence[T_contra]) -> None:
        """Append the items of the rows that follow."""
        ...

    def bury(self, rows: Sequence[int]) -> None:
        """Learn that rows are dead."""
        ...

    def moved(self, kept: NDArray[np.intp]) -> Self:
        """Return the contents of these rows alone, in their order; change nothing here."""
        ...


C = TypeVar("C", bound=Contents[Any])


@dataclass(frozen=True, kw_only=True)
class Snapshot(Generic[C]):
    """The content of a namespace at one moment.

    Attributes:
        rows: the vectors, with their ids.
        contents: what stands beside them; may have learned of later rows and deaths.
        count: how many rows count.
        version: how many writes there had been.
        deaths: which write has marked each row; may go on changing, but only for later ones.
        selections: what the last filters have let through, by whatever tells the filters apart.
    """

    rows: Rows
    contents: C
    count: int
    version: int
    deaths: NDArray[np.int64]
    selections: dict[str, Selection] = field(default_factory=dict[str, Selection])

    @cached_property
    def living(self) -> Selection:
        """The rows that count."""
        if self.count == len(self.deaths):
            return Selection(mask=None, count=self.count)
        return Selection.of(self.deaths > self.version)

    def remember(self, key: str, selection: Selection) -> Selection:
        """Keep a selection among the last ones, and return it."""
        while len(self.selections) >= _KEPT_SELECTIONS:
            self.selections.pop(next(iter(self.selections)), None)
        self.selections[key] = selection
        return selection


class Partition(Generic[C]):
    """One namespace, with one writer at a time.

    Attributes:
        snapshot: what it holds now; replaced by every write, after the fact.
    """

    def __init__(
        self, metric: Metric, dimension: int, contents: C, coding: Coding | None = None
    ) -> None:
        """Start empty.

        Args:
            metric: how the rows are searched.
            dimension: the length of each.
            contents: what stands beside them; empty, too.
            coding: what makes searching fast; None takes what is fastest.
        """
        self._metric: Metric = metric
        self._vectors = np.empty((0, dimension), np.float32)
        self._scales = np.empty(0, np.float32)
        self._deaths = np.empty(0, np.int64)
        self._version = 0
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self._codes = Codes(coding or Coding.of(metric, dimension))
        self.snapshot: Snapshot[C] = self._taken(contents)

    def row(self, name: str) -> int | None:
        """Return the living row of an id, as the latest snapshot numbers it."""
        return self._row_of.get(name)

    def moving(self, rows: int) -> int:
        """Return how many floats a write of so many rows may move, beside those it writes."""
        size = len(self._ids)
        moves = size + rows > len(self._vectors) or self.compacting(rows)
        return size * self._vectors.shape[1] if moves else 0

    def compacting(self, rows: int) -> bool:
        """Return True if a write of so many rows may move the contents, too, however large."""
        size = len(self._ids)
        return _too_many(size - len(self._row_of) + rows, size)

    def upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        lengths: NDArray[np.float64],
        items: Sequence[Any],
    ) -> None:
        """Append rows, one for each id; the row that an id had is dead from here on."""
        start, end = len(self._ids), len(self._ids) + len(ids)
        self._reserve(end)
        self._vectors[start:end] = vectors
        self._scales[start:end] = scales(lengths, self._metric)
        self._deaths[start:end] = _ALIVE
        self._ids.extend(ids)
        self.snapshot.contents.extend(items)
        replaced = [row for row in map(self._row_of.get, ids) if row is not None]
        self._row_of.update(zip(ids, range(start, end), strict=True))
        self._publish(replaced)

    def delete(self, rows: Iterable[int]) -> None:
        """Mark living rows as dead."""
        gone = list(rows)
        for row in gone:
            del self._row_of[self._ids[row]]
        self._publish(gone)

    def reserve(self, rows: int) -> None:
        """Make room for so many rows more, which then come in parts."""
        self._reserve(len(self._ids) + rows)

    def _reserve(self, size: int) -> None:
        if size <= len(self._vectors):
            return
        capacity = max(_SMALLEST, 2 * size)
        columns = self._vectors, self._scales, self._deaths
        # all or none: where memory ends in between, the next write finds them of one length
        self._vectors, self._scales, self._deaths = [grown(one, capacity) for one in columns]

    def _publish(self, dead: list[int]) -> None:
        self._version += 1
        self._deaths[dead] = self._version
        contents = self.snapshot.contents
        contents.bury(dead)
        if _too_many(len(self._ids) - len(self._row_of), len(self._ids)):
            with suppress(MemoryError):  # the next write tries again
                contents = self._move(contents)
        self.snapshot = self._taken(contents)

    def _move(self, contents: C) -> C:
        """Leave the dead rows out; change nothing if memory ends meanwhile."""
        kept = np.flatnonzero(self._deaths[: len(self._ids)] == _ALIVE)
        ids = [self._ids[row] for row in kept.tolist()]
        row_of = {name: row for row, name in enumerate(ids)}
        columns = self._vectors[kept], self._scales[kept], self._deaths[kept]
        codes, moved = self._codes.moved(kept), contents.moved(kept)
        self._vectors, self._scales, self._deaths = columns
        self._ids, self._row_of, self._codes = ids, row_of, codes
        return moved

    def _taken(self, contents: C) -> Snapshot[C]:
        size = len(self._ids)
        rows = Rows(
            ids=self._ids,
            vectors=self._vectors[:size],
            scales=self._scales[:size],
            codes=self._codes,
        )
        return Snapshot(
            rows=rows,
            contents=contents,
            count=len(self._row_of),
            version=self._version,
            deaths=self._deaths[:size],
        )


def _too_many(dead: int, size: int) -> bool:
    return dead > max(_SMALLEST, _DEAD_SHARE * size)
