"""`ComposedBackend`: calls that a database lacks, made of those that every backend has.

They take several steps. No other write of the same store comes between them; what another process
changes there may be lost, and what it deletes may come back.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from lib._util.tasks import whole
from lib.vector.filter import Filter, matches
from lib.vector.gates import Gates
from lib.vector.records import Match, Record
from lib.vector.validate import Batch, checked_batch

T = TypeVar("T")

PAGE: Final = 500
"""How many records a composed call reads and writes while other writes wait."""


class ComposedBackend(ABC):
    """A backend that reads and writes records, and has no more than that."""

    @cached_property
    def gates(self) -> Gates:
        """Keeps composed calls of a namespace apart from its other writes.

        A store that has such a backend enters for every `upsert` and `delete`, as `BackedStore`
        does.
        """
        return Gates()

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
        """Insert the records whose ids are not there, a page at a time; return their number."""
        count = 0
        for page in batch.pages(PAGE):
            count += await self._in_one_piece(
                namespace, lambda page=page: self._insert(namespace, page)
            )
        return count

    async def _insert(self, namespace: str, page: Batch) -> int:
        there = {record.id for record in await self.get(namespace, page.ids)}
        new = page.without(there)
        if new.ids:
            await self.upsert(namespace, new)
        return len(new.ids)

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, which are read and written whole."""
        count = 0
        async with aclosing(self.chosen(namespace, ids, filter)) as pages:

            async def update() -> int | None:
                page = await anext(pages, None)
                batch = merged(page or (), changes)
                if batch is not None:
                    await self.upsert(namespace, batch)
                return None if page is None else len(page)

            while (size := await self._in_one_piece(namespace, update)) is not None:
                count += size
        return count

    async def _in_one_piece(self, namespace: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do work between whose steps no other write comes; if cancelled, wait for its end."""
        async with self.gates.exclusive(namespace):
            return await (whole(work()) if _on_a_loop() else work())

    async def chosen(
        self, namespace: str, ids: list[str] | None, filter: Filter | None
    ) -> AsyncGenerator[list[Record]]:
        """Yield the records that have one of the ids, and pass the filter, a page at a time."""
        if ids is None:
            after = ""
            while page := await self.scan(namespace, after, PAGE, filter):
                yield page
                after = page[-1].id
            return
        distinct = list(dict.fromkeys(ids))
        for start in range(0, len(distinct), PAGE):
            page = await self.get(namespace, distinct[start : start + PAGE])
            yield [one for one in page if filter is None or matches(filter, one.meta)]


def _on_a_loop() -> bool:
    """Return False in the thread of a client that blocks, where nothing is cancelled."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def merged(records: Iterable[Record], changes: dict[str, Any]) -> Batch | None:
    """Return stored records with these changes to their metadata; None if there are none."""
    changed = [replace(one, meta={**one.meta, **changes}) for one in records]
    return checked_batch(changed, metric="dot", dimension=None)  # the vectors were checked before
