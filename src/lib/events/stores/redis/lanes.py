"""How operations wait for the next script of their lane, and share it.

One script of a lane is under way at a time. What arrives meanwhile waits for the next one: the
slower the server, the larger the batches, so that all who wait share the cost of a round trip and
of the server's write to its disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from lib._util.together import Together
from lib.events.stores.redis.operations import Operation, Outdated

_MAX_OPERATIONS: Final = 256
_MAX_BYTES: Final = 4 * 1024 * 1024  # the server does nothing else while a script runs


T = TypeVar("T")


class Lane:
    """Carries operations from one event loop to the server."""

    def __init__(
        self,
        commit: Callable[[Sequence[bytes]], Awaitable[Sequence[Any]]],
        committed: Callable[[Sequence[Any]], None],
    ) -> None:
        """Begin without work.

        Args:
            commit: carries out operations, given as arguments of the script, and returns a reply
                for each.
            committed: called after each script with the outcomes of what it has carried out.
        """
        self._commit, self._committed = commit, committed
        self._together = Together(self._carry_out, name="lib.events.commit", most=_MAX_OPERATIONS)

    def put(self, operation: Operation) -> asyncio.Future[Any]:
        """Return the outcome to come; cancelled before its script, nothing happens."""
        return self._together.put(operation)

    async def drained(self) -> None:
        """Return when nothing waits and nothing is under way."""
        await self._together.drained()

    async def _carry_out(self, operations: Sequence[Operation]) -> list[Any]:
        """Return what has become of those that fit into a script: the outcome, or the refusal."""
        outcomes: list[Any] = []
        places: list[int] = []
        args: list[bytes] = []
        size = 0
        for operation in operations:
            if size >= _MAX_BYTES:
                break
            own = _told(operation, operation.arguments)
            if not isinstance(own, Exception):
                places.append(len(outcomes))
                args += own
                size += sum(map(len, own))
            outcomes.append(own)
        if places:
            told = await self._send([operations[place] for place in places], args)
            for place, outcome in zip(places, told, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def _send(self, operations: Sequence[Operation], args: Sequence[bytes]) -> list[Any]:
        try:
            replies = await self._commit(args)
        except BaseException:
            for operation in operations:
                operation.failed()
            raise
        told = [
            _told(operation, partial(operation.outcome, reply))
            for operation, reply in zip(operations, replies, strict=True)
        ]
        self._committed([each for each in told if not isinstance(each, Exception)])
        return told


def _told(operation: Operation, step: Callable[[], T]) -> T | Exception:
    """Return what a step of an operation returns, or why it is refused; the others go on."""
    try:
        return step()
    except Outdated as refusal:
        return refusal
    except Exception as refusal:  # noqa: BLE001 - told to who waits
        operation.failed()
        return refusal
