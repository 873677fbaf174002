"""Replies while they are being written, for whoever watches; what nobody watches is not kept."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable

from lib.engine.handler import Live


class LiveHub:
    """Carries pieces of replies from handlers to watchers of the same process.

    A slow watcher loses nothing and delays nobody: its queue grows until it has read the reply,
    whose size the model's token limit bounds.
    """

    def __init__(self) -> None:
        """Make a hub that nobody watches."""
        self._watchers: defaultdict[str, set[asyncio.Queue[Live | None]]] = defaultdict(set)

    def publisher(self, run_id: str) -> Callable[[Live], None] | None:
        """Return where to put the pieces of this run, None when nobody watches it."""
        return self._publish(run_id) if run_id in self._watchers else None

    def _publish(self, run_id: str) -> Callable[[Live], None]:
        def publish(piece: Live) -> None:
            for queue in self._watchers.get(run_id, ()):
                queue.put_nowait(piece)

        return publish

    def end(self, run_id: str) -> None:
        """Tell the watchers of this run that nothing more comes from this process."""
        for queue in self._watchers.get(run_id, ()):
            queue.put_nowait(None)

    async def watch(self, run_id: str, *, driven: bool) -> AsyncGenerator[Live]:
        """Yield the pieces of this run until this process has stopped driving it.

        Args:
            run_id: the run.
            driven: whether this process drives it now; else there is nothing to wait for.
        """
        if not driven:
            return
        queue: asyncio.Queue[Live | None] = asyncio.Queue()
        self._watchers[run_id].add(queue)
        try:
            while (piece := await queue.get()) is not None:
                yield piece
        finally:
            self._watchers[run_id].discard(queue)
            if not self._watchers[run_id]:
                del self._watchers[run_id]
