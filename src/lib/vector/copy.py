"""Copying records from one store into another, of whatever kind; started again, it goes on.

There is no journal that could be lost or wrong: the target itself says how far a copy has come.
Where its namespace held records before, each batch is compared with them, and only what is missing
or different is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from lib._util.json import canonical
from lib.errors import DimensionMismatch, MetricMismatch, VectorError
from lib.vector.contract import ScanStore, VectorStore, is_scannable
from lib.vector.ordering import pages
from lib.vector.records import Record

_TOLERANCE: Final = 1e-6
"""By how much a part of a stored vector may be off: eight units of a 32-bit float's last place.

Some stores keep the direction of a vector and its length, and multiply them when read.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedNamespace:
    """The result of copying one namespace.

    Attributes:
        namespace: its name, in both stores.
        records: how many were read.
        written: how many of them the target did not have, or had with other content.
        missing: how many of them the target does not have at the end; a complete copy has none.
    """

    namespace: str
    records: int
    written: int
    missing: int


async def copy_store(
    source: ScanStore,
    target: VectorStore,
    *,
    namespaces: Iterable[str] | None = None,
    batch_size: int = 500,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> list[CopiedNamespace]:
    """Copy the records of the source into the same namespaces of the target, and verify it.

    Nothing is deleted: what only the target has, stays. Safe to repeat, whenever and however the
    last attempt ended. What is written to the source meanwhile may be missed. At the end the
    target is read for every record.

    Args:
        source: set up.
        target: set up, for the same dimension and metric.
        namespaces: which ones; None takes all.
        batch_size: records read and written at once, 1 to 10,000.
        on_progress: called after each batch with the number of records done, that of all, and
            the namespace.

    Returns:
        What became of each namespace, in the order in which they were copied.

    Raises:
        VectorError: the source cannot be read in order, or lacks one of the namespaces.
        DimensionMismatch: the target holds vectors of another length.
        MetricMismatch: it measures nearness in another way.
        ValueError: it is the source itself, or the namespaces are one string.
    """
    if source is target:
        raise ValueError("a store cannot be copied onto itself")
    _check_fit(source, target)
    totals = {
        name: await source.count(namespace=name)
        for name in await chosen_namespaces(source, namespaces)
    }
    done, total, copied = 0, sum(totals.values()), list[CopiedNamespace]()
    for name in totals:
        moved = partial(_report, on_progress, done, total, name)
        copied.append(await _copy(source, target, name, batch_size, moved))
        done += copied[-1].records
    return copied


def _report(
    on_progress: Callable[[int, int, str], None] | None, done: int, total: int, name: str, more: int
) -> None:
    if on_progress is not None:
        on_progress(done + more, total, name)


def _check_fit(source: VectorStore, target: VectorStore) -> None:
    if not is_scannable(source):
        raise VectorError(f"{type(source).__name__} cannot be copied from: it has no scan()")
    if source.metric != target.metric:
        raise MetricMismatch(expected=target.metric, got=source.metric)
    if None not in (source.dimension, target.dimension) and source.dimension != target.dimension:
        raise DimensionMismatch(expected=target.dimension or 0, got=source.dimension or 0)


async def chosen_namespaces(source: VectorStore, namespaces: Iterable[str] | None) -> list[str]:
    """Return the namespaces to copy, each once, in their order; None takes all.

    Raises:
        VectorError: the source lacks one of them.
        ValueError: they are one string.
    """
    if isinstance(namespaces, str):
        raise ValueError("namespaces are a list, got one string: wrap it in a list")  # noqa: TRY004 - a value of the right type would be a list
    wanted = None if namespaces is None else list(dict.fromkeys(namespaces))
    there = await source.namespaces()
    if wanted is None:
        return there
    for name in wanted:
        if name not in there:
            raise VectorError(f"the store to copy from has no records in a namespace {name!r}")
    return wanted


async def _copy(
    source: ScanStore,
    target: VectorStore,
    name: str,
    batch_size: int,
    moved: Callable[[int], None],
) -> CopiedNamespace:
    before = await target.count(namespace=name)
    read = written = 0
    async for page in pages(source, size=batch_size, namespace=name):
        there: dict[str, Record] = {}
        if before:
            found = await target.get([record.id for record in page], namespace=name)
            there = {record.id: record for record in found}
        stale = await asyncio.to_thread(_stale, page, there)
        if stale:
            await target.upsert(stale, namespace=name)
        read, written = read + len(page), written + len(stale)
        moved(read)
    # Counting would be cheaper, and wrong where another process writes to the target.
    missing = await _missing(source, target, name, batch_size)
    return CopiedNamespace(namespace=name, records=read, written=written, missing=missing)


async def _missing(source: ScanStore, target: VectorStore, name: str, batch_size: int) -> int:
    """Return how many records the target does not have, asking for each."""
    missing = 0
    async for page in pages(source, size=batch_size, namespace=name):
        found = await target.get([record.id for record in page], namespace=name)
        missing += len({record.id for record in page} - {record.id for record in found})
    return missing


def _stale(page: Sequence[Record], there: Mapping[str, Record]) -> list[Record]:
    """Return the records that are not there, or not alike."""
    return [record for record in page if not _alike(record, there.get(record.id))]


def _alike(record: Record, stored: Record | None) -> bool:
    return (
        stored is not None
        and record.text == stored.text
        and canonical(record.meta) == canonical(stored.meta)  # for `==`, True is 1
        and len(record.vector) == len(stored.vector)
        and np.allclose(np.array(record.vector), np.array(stored.vector), _TOLERANCE, 0.0)
    )
