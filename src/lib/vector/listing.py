"""Reading records in the order of their ids from a backend that has no order of ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lib.vector.records import Record

_IDS_A_REQUEST: Final = 1000


class Listing:
    """The ids of the namespace that is being read, kept from one page to the next.

    All ids are read for the first page. A page that begins where the last one ended takes them
    from here; any other one reads them again.
    """

    def __init__(self) -> None:
        """Know no ids."""
        self._next: tuple[str, str] | None = None  # the namespace, and where the last page ended
        self._ids: list[str] = []

    async def page(
        self,
        namespace: str,
        after: str,
        limit: int,
        *,
        ids: Callable[[str], Awaitable[Sequence[str]]],
        get: Callable[[str, list[str]], Awaitable[list[Record]]],
    ) -> list[Record]:
        """Return the first records whose ids follow; fewer than `limit` only if no more do.

        Args:
            namespace: to read.
            after: the id that the page follows; the empty string for the first page.
            limit: how many records.
            ids: returns all ids of a namespace, in any order.
            get: returns those of these records that are still there, in their order.
        """
        known = self._ids if self._next == (namespace, after) else sorted(await ids(namespace))
        found: list[Record] = []
        start = bisect_right(known, after)
        while len(found) < limit and start < len(known):
            wanted = known[start : start + min(limit - len(found), _IDS_A_REQUEST)]
            found += await get(namespace, wanted)
            start += len(wanted)
        more = start < len(known)
        self._next = (namespace, known[start - 1]) if more else None
        self._ids = known if more else []
        return found


class ListedBackend(ABC):
    """A backend whose `scan` reads all ids of the namespace with the first page, and keeps them."""

    def __init__(self) -> None:
        """Know no ids."""
        self._listing = Listing()

    @abstractmethod
    async def ids(self, namespace: str) -> list[str]:
        """Return all ids of a namespace, in any order."""

    @abstractmethod
    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""

    async def scan(self, namespace: str, after: str, limit: int) -> list[Record]:
        """Return the first records whose ids follow `after`, in the order of their ids."""
        return await self._listing.page(namespace, after, limit, ids=self.ids, get=self.get)
