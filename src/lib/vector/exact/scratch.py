"""Rows of one namespace in scratch files, for vectors that memory has no room for.

A scratch file has no name: no path leads other programs to it, and it is gone with the last reader
in this process, however the process ends. Rows are appended by ordinary writes, which a full disk
refuses, and read through a mapping, of which memory keeps as much as it has to spare.

In memory there are a sketch of each row (`exact.sketch`), its cluster (`exact.clusters`), and a
number of 64 bits that leads from its id to the row. Rows that are appended at once are sorted by
their clusters.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, overload
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from lib.errors import StoreError
from lib.vector.exact.disk import MappedRows
from lib.vector.exact.search import Rows
from lib.vector.exact.sketch import Basis, Sketch
from lib.vector.records import Metric

_SMALLEST_BYTES: Final = 1 << 20
_SAMPLES: Final = (8_192, 1 << 16)  # at least, and at most
_SAMPLE_SHARE: Final = 8  # one row in so many
_LAST_BASIS: Final = 1 << 18  # rows; later ones change little
_RENEWED: Final = 4
_COPIED_ROWS: Final = 8_192
_ROW_BITS, _LOW = np.uint64(32), (1 << 32) - 1
MAX_SCRATCH_DIMENSION: Final = 4_096
"""Choosing the directions of sketches takes the third power of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """A directory for scratch files, and the namespaces that use it.

    Attributes:
        folder: the directory.
        least_bytes: namespaces whose vectors take no more stay in memory.
        least_rows: how many make sketches pay; fewer are all read.
    """

    folder: str
    least_bytes: int
    least_rows: int = 2_048

    @classmethod
    def of(cls, folder: str, *, dimension: int, least_bytes: int) -> Scratch:
        """Return a directory for vectors of this length.

        Raises:
            ValueError: the name is empty, the vectors are too long, or this is Windows.
        """
        if os.name == "nt":
            raise ValueError(
                "scratch_dir needs files that lose their names while they are open, which Windows "
                "does not have: leave it out, or use a database server"
            )
        if not folder:
            raise ValueError("scratch_dir is the name of a directory, got ''")
        if dimension > MAX_SCRATCH_DIMENSION:
            raise ValueError(
                f"with a scratch_dir vectors have at most {MAX_SCRATCH_DIMENSION} numbers, "
                f"got dimension {dimension}"
            )
        return cls(folder=str(Path(folder).absolute()), least_bytes=least_bytes)

    def check(self) -> None:
        """Make sure that the directory takes files.

        Raises:
            StoreError: it does not.
        """
        ScratchFile(self.folder).append(b"\0")

    def rows(self, metric: Metric, dimension: int) -> ScratchRows:
        """Return rows of a namespace, none yet.

        Raises:
            StoreError: the directory takes no files.
        """
        return ScratchRows(metric, dimension, self)


class ScratchFile:
    """Bytes on a disk that are appended and mapped, under no name.

    Attributes:
        size: how many there are.
        mapping: of the first bytes, at least of so many as `mapped` was last called for.
    """

    def __init__(self, folder: str) -> None:
        """Make an empty file in this directory.

        Raises:
            StoreError: the directory takes none.
        """
        self._folder = folder
        try:
            self._file = TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - see finalize
        except OSError as error:
            raise self._failure(error) from error
        finalize(self, self._file.close)
        self.size: int = 0
        self._capacity = 0
        self.mapping: mmap.mmap | None = None

    def append(self, data: bytes | memoryview) -> None:
        """Append bytes, all of them or none.

        Raises:
            StoreError: the disk is full, or has failed.
        """
        try:
            self._file.seek(self.size)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
            self._extend(self.size + len(data))
        except OSError as error:
            raise self._failure(error) from error
        self.size += len(data)

    def _extend(self, size: int) -> None:
        """Map the file anew with room for as much again; what is not written takes no room."""
        if size <= self._capacity:
            return
        capacity = max(_SMALLEST_BYTES, 2 * size)
        self._file.truncate(capacity)
        self.mapping = mmap.mmap(self._file.fileno(), capacity, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):  # else a row brings many pages of its neighbours
            with suppress(OSError):  # advice alone
                self.mapping.madvise(mmap.MADV_RANDOM)
        self._capacity = capacity

    def _failure(self, error: OSError) -> StoreError:
        return StoreError(
            f"no room for vectors in scratch_dir {self._folder!r}: {error.strerror}; name a "
            "directory that this process may write to, on a disk with room for a copy of them"
        )


class _Names(Sequence[str]):
    """The ids of the rows, read from the disk."""

    def __init__(self, records: NDArray[Any], names: mmap.mmap | None) -> None:
        self._starts, self._lengths, self._names = records["start"], records["length"], names

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        start = int(self._starts[row])
        end = start + int(self._lengths[row])
        return "" if self._names is None else self._names[start:end].decode()


class _Index:
    """Rows by ids: 32 bits of the hash of each and its row, in sorted runs that grow."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._runs)

    def append(self, ids: Sequence[str], first: int) -> None:
        rows = np.arange(first, first + len(ids), dtype=np.uint64)
        self._runs.append(np.sort(_hashes(ids) << _ROW_BITS | rows))
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(np.sort(np.concatenate([before, last]), kind="stable"))

    def candidates(self, ids: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the number of an id and a row that may have it, later rows of an id first."""
        wanted = _hashes(ids) << _ROW_BITS
        for run in reversed(self._runs):
            starts = np.searchsorted(run, wanted)
            ends = np.searchsorted(run, wanted | np.uint64(_LOW), side="right")
            for number in np.flatnonzero(ends > starts).tolist():
                for place in range(int(ends[number]) - 1, int(starts[number]) - 1, -1):
                    yield number, int(run[place]) & _LOW


def _hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    return np.fromiter((hash(name) & _LOW for name in ids), np.uint64, len(ids))


class ScratchRows:
    """The vectors and ids of rows, on a disk; one thread appends, others may read.

    Attributes:
        size: how many rows there are.
    """

    def __init__(self, metric: Metric, dimension: int, scratch: Scratch) -> None:
        """Start empty.

        Raises:
            StoreError: the directory takes no files.
        """
        self._metric: Metric = metric
        self._dimension, self._scratch = dimension, scratch
        self._record = np.dtype(
            [("vector", "=f4", (dimension,)), ("start", "=u8"), ("length", "=u4")]
        )
        self._records, self._names = ScratchFile(scratch.folder), ScratchFile(scratch.folder)
        self._index = _Index()
        self._sketch: Sketch | None = None
        self.size: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes in memory, with those for the death of each row and its place in a database."""
        sketched = 0 if self._sketch is None else self._sketch.nbytes
        return 16 * self.size + self._index.nbytes + sketched

    def newest(self, ids: Sequence[str]) -> list[int | None]:
        """Return the last row that each id was given, dead or alive."""
        names, found = self.view().ids, list[int | None]([None]) * len(ids)
        for number, row in self._index.candidates(ids):
            before = found[number]
            if (before is None or row > before) and names[row] == ids[number]:
                found[number] = row
        return found

    def sample_of(self, size: int) -> int:
        """Return among how many of so many rows directions and clusters are chosen."""
        if size < self._scratch.least_rows:
            return 0
        few, many = _SAMPLES
        return min(size, max(few, min(size // _SAMPLE_SHARE, many)))

    def learn(self, sample: NDArray[np.float32], size: int) -> None:
        """Choose what sketches are made with, before there are rows.

        Args:
            sample: some of the rows that follow.
            size: how many will follow.
        """
        if len(sample) >= self._scratch.least_rows:
            with np.errstate(all="ignore"):  # see `exact.search.nearest`
                self._sketch = Sketch(Basis(self._metric, sample), size)

    def append(self, ids: Sequence[str], vectors: NDArray[np.float32]) -> NDArray[np.intp]:
        """Append rows, all of them or none; return the order in which they lie.

        Those of a cluster lie together, so that a search reads few pages.

        Raises:
            StoreError: the disk is full.
        """
        order, sketches = np.arange(len(ids)), None
        if self._sketch is not None:
            with np.errstate(all="ignore"):
                sketches = self._sketch.sketched(np.ascontiguousarray(vectors))
            order = np.argsort(sketches.numbers, kind="stable")
            sketches, vectors = sketches.taken(order), vectors[order]
        self._write([ids[row] for row in order.tolist()], vectors)
        if self._sketch is not None and sketches is not None:
            self._sketch.extend(sketches)
        with np.errstate(all="ignore"):
            self._renew()
        return order

    def _write(self, ids: Sequence[str], vectors: NDArray[np.float32]) -> None:
        encoded = [name.encode() for name in ids]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        records = np.zeros(len(ids), self._record)
        records["vector"] = vectors
        records["start"] = self._names.size + np.cumsum(lengths) - lengths
        records["length"] = lengths
        self._names.append(b"".join(encoded))
        self._records.append(records.view(np.uint8).data)
        self._index.append(ids, self.size)
        self.size += len(ids)

    def moved(self, kept: NDArray[np.intp]) -> ScratchRows:
        """Return these rows alone, in their order, in files of their own; change nothing here."""
        copy, rows = ScratchRows(self._metric, self._dimension, self._scratch), self.view()
        if self._sketch is not None:
            copy._sketch = self._sketch.moved(kept)
        for start in range(0, len(kept), _COPIED_ROWS):
            some = kept[start : start + _COPIED_ROWS]
            ids = [rows.ids[int(row)] for row in some]
            copy._write(ids, rows.vectors[some])
        return copy

    def view(self) -> Rows:
        """Return the rows as they are now."""
        records = np.empty(0, self._record)
        if self.size and self._records.mapping is not None:
            records = np.frombuffer(self._records.mapping, self._record, self.size)
        mapped = MappedRows(
            metric=self._metric,
            records=records,
            sketch=self._sketch,
            mapping=self._records.mapping,
        )
        return Rows(
            ids=_Names(records, self._names.mapping),
            vectors=records["vector"],
            scales=np.empty(0, np.float32),
            mapped=mapped,
        )

    def _renew(self) -> None:
        """Choose other directions for sketches once there are four times as many rows."""
        size, sketch = self.size, self._sketch
        chosen = 0 if sketch is None else sketch.chosen
        due = max(self._scratch.least_rows, _RENEWED * chosen)
        if size < due or chosen >= _LAST_BASIS:
            return
        vectors = self.view().vectors
        some = np.linspace(0, size - 1, self.sample_of(size)).astype(np.intp)
        renewed = Sketch(Basis(self._metric, vectors[some]), size)
        for start in range(0, size, _COPIED_ROWS):
            some = np.ascontiguousarray(vectors[start : start + _COPIED_ROWS])
            renewed.extend(renewed.sketched(some))
        self._sketch = renewed
