"""Tasks of a server: a call that goes on there while its client asks for its state.

The server is a stranger: it chooses when the task ends, and what it asks meanwhile. A task is
looked at again on another connection after the server was away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from anyio import CancelScope

from lib._util.clock import Clock
from lib.errors import LibError, ToolError
from lib.mcp.client.connection import MAX_ROUNDS, Connection, ConnectionLostError
from lib.mcp.client.sdk import MCPError, types
from lib.mcp.task_types import CreateTaskResult, GetTaskResult

UNKNOWN: Final = "it may or may not have had its effect: verify before you repeat it"

_MAX_ID_CHARS: Final = 1_024
_MAX_MISSES: Final = 30
_SHORTEST_POLL_S: Final = 0.1
_LONGEST_POLL_S: Final = 60.0
_CANCEL_S: Final = 5.0


class TaskFollower:
    """Waits for the end of one task, and answers what it asks.

    Attributes:
        task_id: the server's name for it.
    """

    def __init__(
        self,
        created: CreateTaskResult,
        connect: Callable[[], Awaitable[Connection]],
        clock: Clock,
    ) -> None:
        """Take a task that a server has created.

        Raises:
            ToolError: its id is too long to be one.
        """
        if not 0 < len(created.task_id) <= _MAX_ID_CHARS:
            raise ToolError("unknown", f"the server's answer cannot be read; {UNKNOWN}")
        self.task_id: str = created.task_id
        self._poll_ms = created.poll_interval_ms
        self._connect, self._clock = connect, clock
        self._answered: set[str] = set()
        self._rounds = 0

    async def result(self, *, cancels: bool) -> types.CallToolResult:
        """Return the result of the call.

        Args:
            cancels: whether to cancel the task when its end is not waited for any more.

        Raises:
            ToolError: it ended without a result, cannot be found, or wants too much.
            Exception: what the server sends cannot be read.
        """
        ended = False
        try:
            while True:
                await self._clock.sleep(self._pause_s())
                task = await self._look()
                ended = task.status in ("completed", "failed", "cancelled")
                if ended:
                    return _result_of(task)
                self._poll_ms = task.poll_interval_ms
                await self._answer(task)
        finally:
            if cancels and not ended:
                with CancelScope(shield=True):
                    await self.cancel()

    async def cancel(self) -> None:
        """Ask the server to end the task; what becomes of that is the server's."""
        with suppress(Exception):  # around a stranger's server, at the end of a call
            async with asyncio.timeout(_CANCEL_S):
                connection = await self._connect()
                await connection.cancel_task(self.task_id)

    def _pause_s(self) -> float:
        wanted_s = 1.0 if self._poll_ms is None else self._poll_ms / 1000
        return min(max(wanted_s, _SHORTEST_POLL_S), _LONGEST_POLL_S)

    async def _look(self) -> GetTaskResult:
        """Return the state of the task, once the server can be reached."""
        for miss in range(_MAX_MISSES):
            try:
                connection = await self._connect()
                task = await connection.task(self.task_id)
            except MCPError as error:
                if error.code == types.INVALID_PARAMS:
                    raise ToolError("unknown", f"the server has lost the task; {UNKNOWN}") from None
            except (ConnectionLostError, LibError):
                pass  # it is away, and may come back
            else:
                if task.task_id == self.task_id:
                    return task
                break
            await self._clock.sleep(min(2.0**miss * _SHORTEST_POLL_S, _LONGEST_POLL_S))
        raise ToolError("unknown", f"the state of the server's task cannot be read; {UNKNOWN}")

    async def _answer(self, task: GetTaskResult) -> None:
        """Answer what was not answered before.

        Raises:
            ToolError: the server wants too much input, or input that it does not get.
        """
        open_requests = {} if task.status != "input_required" else dict(task.input_requests or {})
        new = {key: each for key, each in open_requests.items() if key not in self._answered}
        if not new:
            return
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise ToolError("failed", f"the server wants input more than {MAX_ROUNDS} times")
        connection = await self._connect()
        await connection.answer_task(self.task_id, new)
        self._answered |= new.keys()


def _result_of(task: GetTaskResult) -> types.CallToolResult:
    match task.status:
        case "completed":
            return types.CallToolResult.model_validate(task.result, by_name=False)
        case "failed":
            code = types.ErrorData.model_validate(task.error).code
            raise ToolError("unknown", f"the task ended with error {code}; {UNKNOWN}")
        case _:
            raise ToolError("cancelled", f"the server has cancelled the task; {UNKNOWN}")
