"""The order that stores promise, for backends that have none of their own.

Records are read page by page in the order of their ids, and results of equal score stand in the
order of their ids, whatever order the backend answers in.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeVar

from lib.vector.composed import ComposedBackend
from lib.vector.contract import FilterLike, ScanStore
from lib.vector.filter import Filter, matches
from lib.vector.records import Match, Record


class _Scored(Protocol):
    @property
    def score(self) -> float: ...


T = TypeVar("T")
S = TypeVar("S", bound=_Scored)

_IDS_A_REQUEST: Final = 1000
_SPARE = 8  # results beyond the k-th, to see where its score ends
_GROWTH = 4


class Listing:
    """The ids of the namespace that is being read, kept from one page to the next.

    All ids are read for the first page. A page that begins where the last one ended takes them
    from here; any other one reads them again.
    """

    def __init__(self) -> None:
        """Know no ids."""
        self._next: tuple[str, str] | None = None  # what is read, and where the last page ended
        self._ids: list[str] = []

    async def page(
        self,
        namespace: str,
        after: str,
        limit: int,
        *,
        ids: Callable[[str], Awaitable[Sequence[str]]],
        get: Callable[[str, list[str]], Awaitable[list[Record]]],
        filter: Filter | None = None,
    ) -> list[Record]:
        """Return the first records whose ids follow; fewer than `limit` only if no more do.

        Args:
            namespace: to read.
            filter: what the records have to pass, which the ids that are listed did.
            after: the id that the page follows; the empty string for the first page.
            limit: how many records.
            ids: returns all ids of a namespace, in any order.
            get: returns those of these records that are still there, in their order.
        """
        key = f"{namespace}\0{filter!r}"
        listed = self._ids if self._next == (key, after) else sorted(await ids(namespace))
        found: list[Record] = []
        start = bisect_right(listed, after)
        while len(found) < limit and start < len(listed):
            wanted = listed[start : start + min(limit - len(found), _IDS_A_REQUEST)]
            there = await get(namespace, wanted)
            found += [one for one in there if filter is None or matches(filter, one.meta)]
            start += len(wanted)
        more = start < len(listed)
        self._next = (key, listed[start - 1]) if more else None
        self._ids = listed if more else []
        return found


class ListedBackend(ComposedBackend):
    """A backend whose `scan` reads all ids of the namespace with the first page, and keeps them."""

    def __init__(self) -> None:
        """Know no ids."""
        self._listing = Listing()

    @abstractmethod
    async def ids(self, namespace: str, filter: Filter | None) -> list[str]:
        """Return the ids of the records of a namespace that pass the filter, in any order."""

    async def scan(
        self, namespace: str, after: str, limit: int, filter: Filter | None
    ) -> list[Record]:
        """Return the first records that pass and whose ids follow `after`, in their order."""
        return await self._listing.page(
            namespace,
            after,
            limit,
            ids=lambda name: self.ids(name, filter),
            get=self.get,
            filter=filter,
        )

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, which are read and written whole."""
        wanted = await self.ids(namespace, filter) if ids is None else ids
        return await super().update_meta(namespace, wanted, filter, changes)


async def pages(
    store: ScanStore,
    *,
    filter: FilterLike = None,
    after: str | None = None,
    size: int,
    namespace: str | None,
) -> AsyncGenerator[list[Record]]:
    """Yield the records that pass the filter, so many at a time, in the order of their ids."""
    while page := await store.scan(filter=filter, after=after, limit=size, namespace=namespace):
        yield page
        after = page[-1].id
        if len(page) < size:
            return


async def listed(
    store: ScanStore,
    *,
    filter: FilterLike = None,
    after: str | None = None,
    batch_size: int = 1000,
    namespace: str | None = None,
) -> AsyncGenerator[Record]:
    """Yield the records that pass the filter, in the order of their ids."""
    read = pages(store, filter=filter, after=after, size=batch_size, namespace=namespace)
    async with aclosing(read):
        async for page in read:
            for record in page:
                yield record


def ordered(found: Sequence[Match], *, higher_is_better: bool) -> list[Match]:
    """Return the matches best first, ties in the order of their ids."""
    sign = -1.0 if higher_is_better else 1.0
    return sorted(found, key=lambda match: (sign * match.score, match.id))


def good_enough(found: list[S], threshold: float | None, *, higher_is_better: bool) -> list[S]:
    """Return what is as good as the threshold or better; None lets everything pass."""
    if threshold is None:
        return found
    if higher_is_better:
        return [one for one in found if one.score >= threshold]
    return [one for one in found if one.score <= threshold]


async def nearest(
    fetch: Callable[[int], Awaitable[Sequence[Match]]],
    k: int,
    *,
    higher_is_better: bool,
    limit: int | None = None,
) -> list[Match]:
    """Return the k best, as if the backend had ordered equal scores by id.

    Args:
        fetch: asks the backend for its n best, in any order; fewer only where there are no more.
        k: how many are wanted.
        higher_is_better: how the backend's scores are read.
        limit: the largest n that `fetch` takes; beyond it the backend breaks ties as it likes.
    """
    sign = -1.0 if higher_is_better else 1.0
    found = await contenders(fetch, k, distance=lambda match: sign * match.score, limit=limit)
    return ordered(found, higher_is_better=higher_is_better)[:k]


async def contenders(
    fetch: Callable[[int], Awaitable[Sequence[T]]],
    k: int,
    *,
    distance: Callable[[T], float],
    limit: int | None = None,
) -> Sequence[T]:
    """Return the k best and all that are as good as the k-th, perhaps more, in any order.

    Asks for more than k until a result is worse than the k-th, so that every tie with it is seen.

    Args:
        fetch: asks the backend for its n best, in any order; fewer only where there are no more.
            It may give more than n, as long as they are its best.
        k: how many are wanted.
        distance: how bad a result is.
        limit: the largest n that `fetch` takes.
    """
    size = k + _SPARE
    while True:
        size = size if limit is None else min(size, limit)
        found = await fetch(size)
        distances = sorted(map(distance, found))
        complete = len(found) < size or size == limit
        if complete or distances[-1] != distances[k - 1]:
            return found
        size *= _GROWTH
