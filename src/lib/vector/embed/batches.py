"""Batches: as many texts as a server takes at once, and as many batches at once as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def batches(texts: Iterable[str], *, max_texts: int, max_bytes: int) -> Iterator[list[str]]:
    """Yield the texts in lists of bounded length and size; a text above the size goes alone.

    Servers bound the tokens of a request; no token is shorter than a byte.
    """
    batch: list[str] = []
    size = 0
    for text in texts:
        more = len(text.encode("utf-8", "replace"))
        if batch and (len(batch) == max_texts or size + more > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += more
    if batch:
        yield batch


async def each(
    items: Sequence[T], call: Callable[[T], Awaitable[R]], *, concurrency: int
) -> list[R]:
    """Return what `call` gives for each item, in the order of the items.

    At most `concurrency` calls run at once. The first that fails cancels the others, and its
    error is raised.
    """
    waiting = enumerate(items)
    results: dict[int, R] = {}

    async def work() -> None:
        for place, item in waiting:
            results[place] = await call(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(items))):
                group.create_task(work())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [results[place] for place in range(len(items))]
