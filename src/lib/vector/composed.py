"""`ComposedBackend`: calls that a database lacks, made of those that every backend has.

They take several steps: what another writer changes between two of them may be lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib.vector.filter import Filter, matches
from lib.vector.records import Match, Record
from lib.vector.validate import Batch, checked_batch

_PAGE: Final = 500


class ComposedBackend(ABC):
    """A backend that reads and writes records, and has no more than that."""

    @abstractmethod
    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch."""

    @abstractmethod
    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""

    @abstractmethod
    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        """Return the first records that pass and whose ids follow `after`, in their order."""

    @abstractmethod
    async def query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        """Return the nearest records, best first, ties by id."""

    async def query_many(
        self,
        namespace: str,
        queries: list[NDArray[np.float32]],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[list[Match]]:
        """Return what `query` does for each of them, one after the other."""
        return [
            await self.query(namespace, query, k, filter, include_vectors=include_vectors)
            for query in queries
        ]

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there; return their number."""
        there = {record.id for record in await self.get(namespace, batch.ids)}
        new = batch.without(there)
        if new.ids:
            await self.upsert(namespace, new)
        return len(new.ids)

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, which are read and written whole."""
        count = 0
        async for page in self._chosen(namespace, ids, filter):
            batch = merged(page, changes)
            if batch is not None:
                await self.upsert(namespace, batch)
            count += len(page)
        return count

    async def _chosen(
        self, namespace: str, ids: list[str] | None, filter: Filter | None
    ) -> AsyncGenerator[list[Record]]:
        """Yield the records that have one of the ids, and pass the filter, some at a time."""
        if ids is None:
            after = ""
            while page := await self.scan(namespace, after, _PAGE, filter):
                yield page
                after = page[-1].id
            return
        distinct = list(dict.fromkeys(ids))
        for start in range(0, len(distinct), _PAGE):
            page = await self.get(namespace, distinct[start : start + _PAGE])
            yield [one for one in page if filter is None or matches(filter, one.meta)]


def merged(records: Iterable[Record], changes: dict[str, Any]) -> Batch | None:
    """Return stored records with these changes to their metadata; None if there are none."""
    changed = [replace(one, meta={**one.meta, **changes}) for one in records]
    return checked_batch(changed, metric="dot", dimension=None)  # the vectors were checked before
