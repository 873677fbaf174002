"""`Gates`: keeps the steps of a composed call together while other writes run beside each other.

Plain writes share a namespace. A call that reads records and writes them back has it alone while it
does so, or it could bring back what another call has deleted in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager


class Gates:
    """A gate for each namespace that is being written, forgotten when the last of its calls ends.

    Calls pass in the order in which they come, so neither kind keeps the other one out for ever.
    A call that is cancelled while it waits leaves its place.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._gates: dict[str, _Gate] = {}

    def __len__(self) -> int:
        """Return how many namespaces are being written, or waited for."""
        return len(self._gates)

    def shared(self, namespace: str) -> AbstractAsyncContextManager[None]:
        """Write to a namespace beside others that share it."""
        return self._passed(namespace, exclusive=False)

    def exclusive(self, namespace: str) -> AbstractAsyncContextManager[None]:
        """Read and write a namespace while no other call writes to it."""
        return self._passed(namespace, exclusive=True)

    @asynccontextmanager
    async def _passed(self, namespace: str, *, exclusive: bool) -> AsyncGenerator[None]:
        gate = self._gates.setdefault(namespace, _Gate())
        try:
            await gate.enter(exclusive=exclusive)
            try:
                yield
            finally:
                gate.leave()
        finally:
            if gate.idle and self._gates.get(namespace) is gate:
                del self._gates[namespace]


class _Gate:
    """The calls that are in one namespace, and those that wait, in their order."""

    def __init__(self) -> None:
        self._inside = 0
        self._alone = False
        self._waiting = deque[tuple[bool, asyncio.Future[None]]]()

    @property
    def idle(self) -> bool:
        """True if no call is inside, and none waits."""
        return not self._inside and not self._waiting

    async def enter(self, *, exclusive: bool) -> None:
        """Wait for the calls that came before, unless all of them share the namespace."""
        if not self._waiting and self._fits(exclusive=exclusive):
            self._let_in(exclusive=exclusive)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((exclusive, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in_next()  # those behind it may share what it would have had alone
            else:  # its turn had just come
                self.leave()
            raise

    def leave(self) -> None:
        """End a call, and let in those that waited for it."""
        self._inside -= 1
        self._alone = False
        self._let_in_next()

    def _fits(self, *, exclusive: bool) -> bool:
        return not self._inside or not (exclusive or self._alone)

    def _let_in(self, *, exclusive: bool) -> None:
        self._inside += 1
        self._alone = exclusive

    def _let_in_next(self) -> None:
        while self._waiting:
            exclusive, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(exclusive=exclusive):
                    return
                self._let_in(exclusive=exclusive)
                turn.set_result(None)
            self._waiting.popleft()
