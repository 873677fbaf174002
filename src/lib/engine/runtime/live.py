"""Carries deltas of replies to subscribers in this process; without one nothing is kept."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from lib.engine.handlers.base import LiveDelta


class Watcher(Protocol):
    """Where a hub puts pieces; None says that this process has stopped driving the run."""

    def put_nowait(self, item: LiveDelta | None, /) -> None:
        """Take one."""
        ...


class DeltaHub:
    """Carries deltas of replies from handlers to watchers of the same process.

    A slow watcher loses nothing and delays no other: its queue grows until it has read the reply,
    whose size the model's token limit bounds.
    """

    def __init__(self) -> None:
        """Make a hub without watchers."""
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)

    def publisher(self, run_id: str) -> Callable[[LiveDelta], None] | None:
        """Return the callback for deltas of this run, None without a watcher."""
        return self._publish(run_id) if run_id in self._watchers else None

    def _publish(self, run_id: str) -> Callable[[LiveDelta], None]:
        def publish(piece: LiveDelta) -> None:
            for queue in self._watchers.get(run_id, ()):
                queue.put_nowait(piece)

        return publish

    def add(self, run_id: str, watcher: Watcher) -> None:
        """Add a watcher of this run, which need not be driven here yet."""
        self._watchers[run_id].add(watcher)

    def discard(self, run_id: str, watcher: Watcher) -> None:
        """Remove a watcher; safe to repeat."""
        watchers = self._watchers.get(run_id, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(run_id, None)

    def end(self, run_id: str) -> None:
        """Put None: this process has stopped driving the run."""
        for queue in self._watchers.get(run_id, ()):
            queue.put_nowait(None)

    async def watch(self, run_id: str, *, driven: bool) -> AsyncGenerator[LiveDelta]:
        """Yield the pieces of this run until this process has stopped driving it.

        Args:
            run_id: the run.
            driven: whether this process drives it now; else there is nothing to wait for.
        """
        if not driven:
            return
        queue: asyncio.Queue[LiveDelta | None] = asyncio.Queue()
        self.add(run_id, queue)
        try:
            while (piece := await queue.get()) is not None:
                yield piece
        finally:
            self.discard(run_id, queue)
