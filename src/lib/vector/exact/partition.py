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
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib.vector.exact.codes import Codes, Coding, grown
from lib.vector.exact.search import Rows, Selection, scales
from lib.vector.records import Metric

if TYPE_CHECKING:  # loaded by stores that use it alone
    from lib.vector.exact.scratch import Scratch, ScratchRows

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


class _MemoryRows:
    """The vectors and ids of rows, in memory."""

    def __init__(self, metric: Metric, dimension: int, codes: Codes) -> None:
        self._metric: Metric = metric
        self._vectors = np.empty((0, dimension), np.float32)
        self._scales = np.empty(0, np.float32)
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self._codes = codes

    @property
    def size(self) -> int:
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        return self._vectors[: self.size].nbytes

    def newest(self, ids: Sequence[str]) -> list[int | None]:
        return list(map(self._row_of.get, ids))

    def append(
        self, ids: Sequence[str], vectors: NDArray[np.float32], lengths: NDArray[np.float64]
    ) -> None:
        start, end = self.size, self.size + len(ids)
        self._vectors[start:end] = vectors
        self._scales[start:end] = scales(lengths, self._metric)
        self._ids.extend(ids)
        self._row_of.update(zip(ids, range(start, end), strict=True))

    def forget(self, rows: Sequence[int]) -> None:
        for row in rows:
            del self._row_of[self._ids[row]]

    def reserve(self, capacity: int) -> None:
        self._vectors, self._scales = (
            grown(self._vectors, capacity),
            grown(self._scales, capacity),
        )

    def moved(self, kept: NDArray[np.intp]) -> _MemoryRows:
        copy = _MemoryRows(self._metric, self._vectors.shape[1], self._codes.moved(kept))
        copy._vectors, copy._scales = self._vectors[kept], self._scales[kept]
        copy._ids = [self._ids[row] for row in kept.tolist()]
        copy._row_of = {name: row for row, name in enumerate(copy._ids)}
        return copy

    def on_disk(self, scratch: Scratch) -> ScratchRows:
        rows = scratch.rows(self._metric, self._vectors.shape[1])
        rows.append(self._ids, self._vectors[: self.size])
        return rows

    def view(self) -> Rows:
        size = self.size
        return Rows(
            ids=self._ids,
            vectors=self._vectors[:size],
            scales=self._scales[:size],
            codes=self._codes,
        )


class Partition(Generic[C]):
    """One namespace, with one writer at a time.

    Attributes:
        snapshot: what it holds now; replaced by every write, after the fact.
    """

    def __init__(
        self,
        metric: Metric,
        dimension: int,
        contents: C,
        coding: Coding | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        """Start empty.

        Args:
            metric: how the rows are searched.
            dimension: the length of each.
            contents: what stands beside them; empty, too.
            coding: what makes searching fast; None takes what is fastest.
            scratch: where many rows lie instead of in memory; None keeps all in memory.
        """
        codes = Codes(coding or Coding.of(metric, dimension))
        self._rows: _MemoryRows | ScratchRows = _MemoryRows(metric, dimension, codes)
        self._dimension, self._scratch = dimension, scratch
        self._deaths = np.empty(0, np.int64)
        self._version = self._count = 0
        self.snapshot: Snapshot[C] = self._taken(contents)

    @property
    def nbytes(self) -> int:
        """Bytes that its rows take in memory."""
        return self._rows.nbytes

    def row(self, name: str) -> int | None:
        """Return the living row of an id, as the latest snapshot numbers it."""
        living = self._living([name])
        return living[0] if living else None

    def moving(self, rows: int) -> int:
        """Return how many floats a write of so many rows may move, beside those it writes."""
        size = self._rows.size
        moves = size + rows > len(self._deaths) or self.compacting(rows)
        return size * self._dimension if moves else 0

    def compacting(self, rows: int) -> bool:
        """Return True if a write of so many rows may move the contents, too, however large."""
        size = self._rows.size
        return _too_many(size - self._count + rows, size)

    def upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        lengths: NDArray[np.float64],
        items: Sequence[Any],
    ) -> None:
        """Append rows, one for each id; the row that an id had is dead from here on.

        Raises:
            StoreError: they lie on a disk, which is full; the partition is of no more use.
        """
        start, end = self._rows.size, self._rows.size + len(ids)
        self._reserve(end)
        replaced = self._living(ids)
        if isinstance(self._rows, _MemoryRows):
            self._rows.append(ids, vectors, lengths)
        else:
            items = [items[row] for row in self._rows.append(ids, vectors).tolist()]
        self._deaths[start:end] = _ALIVE
        self.snapshot.contents.extend(items)
        self._count += len(ids) - len(replaced)
        self._publish(replaced)

    def delete(self, rows: Iterable[int]) -> None:
        """Mark living rows as dead."""
        gone = list(rows)
        if isinstance(self._rows, _MemoryRows):
            self._rows.forget(gone)
        self._count -= len(gone)
        self._publish(gone)

    def reserve(self, rows: int) -> int:
        """Make room for so many rows more, which then come in parts.

        Returns:
            Of how many of them `learn` would profit; 0 in memory.
        """
        self._reserve(self._rows.size + rows)
        if isinstance(self._rows, _MemoryRows) or self._rows.size:
            return 0
        return self._rows.sample_of(rows)

    def learn(self, sample: NDArray[np.float32], rows: int) -> None:
        """Prepare for rows on a disk.

        Args:
            sample: some of them, from all parts.
            rows: how many will come.
        """
        if not isinstance(self._rows, _MemoryRows):
            self._rows.learn(sample, rows)

    def _living(self, ids: Sequence[str]) -> list[int]:
        """Return the living rows of those ids that have one."""
        found = [row for row in self._rows.newest(ids) if row is not None]
        if isinstance(self._rows, _MemoryRows):
            return found  # it forgets the others
        return [row for row in found if self._deaths[row] == _ALIVE]

    def _reserve(self, size: int) -> None:
        rows, scratch = self._rows, self._scratch
        is_large = scratch is not None and size * self._dimension * 4 > scratch.least_bytes
        if scratch is not None and is_large and isinstance(rows, _MemoryRows):
            self._rows = rows.on_disk(scratch)
        if size <= len(self._deaths):
            return
        capacity = max(_SMALLEST, 2 * size)
        deaths = grown(self._deaths, capacity)
        if isinstance(self._rows, _MemoryRows):
            self._rows.reserve(capacity)
        # all or none: where memory ends in between, the next write finds them of one length
        self._deaths = deaths

    def _publish(self, dead: list[int]) -> None:
        self._version += 1
        self._deaths[dead] = self._version
        contents, size = self.snapshot.contents, self._rows.size
        contents.bury(dead)
        if _too_many(size - self._count, size):
            with suppress(MemoryError):  # the next write tries again
                contents = self._move(contents)
        self.snapshot = self._taken(contents)

    def _move(self, contents: C) -> C:
        """Leave the dead rows out; change nothing if memory ends meanwhile."""
        kept = np.flatnonzero(self._deaths[: self._rows.size] == _ALIVE)
        rows, deaths, moved = self._rows.moved(kept), self._deaths[kept], contents.moved(kept)
        self._rows, self._deaths = rows, deaths
        return moved

    def _taken(self, contents: C) -> Snapshot[C]:
        return Snapshot(
            rows=self._rows.view(),
            contents=contents,
            count=self._count,
            version=self._version,
            deaths=self._deaths[: self._rows.size],
        )


def _too_many(dead: int, size: int) -> bool:
    return dead > max(_SMALLEST, _DEAD_SHARE * size)
