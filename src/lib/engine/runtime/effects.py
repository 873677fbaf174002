"""The effects of a run: each a task, begun under the lease, with its result until it is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from lib._util.trace_context import CURRENT_CALL
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.base import Call, Handler
from lib.engine.runtime.lease import LeaseKeeper
from lib.errors import EngineError, RunAbandoned
from lib.events import Event

_log = logging.getLogger("lib.engine")


class Effects:
    """The effects of one run in this process.

    Attributes:
        results: what has happened and was not appended yet.
        error: what has gone wrong in one of them, or with the lease.
        failed_task: the name of the task in which that was; of an effect it is the request's key.
    """

    def __init__(self, keeper: LeaseKeeper, *, grace_s: float, wake: Callable[[], None]) -> None:
        """Begin with nothing.

        Args:
            keeper: the lease under which effects are begun.
            grace_s: how long one that is cancelled may take to end.
            wake: is called whenever one has ended.
        """
        self.results: list[PendingEvent] = []
        self.error: BaseException | None = None
        self.failed_task: str = ""
        self._keeper = keeper
        self._grace_s = grace_s
        self._wake = wake
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> bool:
        """True if any has not ended, or has a result that is not in the log."""
        return bool(self._tasks or self.results)

    def begin(self, request: Event, handler: Handler, call: Callable[[], Call]) -> None:
        """Begin the effect of a request that is in the log.

        Args:
            request: the request.
            handler: has the effect.
            call: makes the call when the effect begins.

        Raises:
            RunAbandoned: the lease has ended.
        """
        if not self._keeper.is_valid:
            raise RunAbandoned(request.run_id, "its lease ended before an effect was begun")
        key = request.data["key"]
        task = asyncio.create_task(self._carry_out(request, handler, call), name=key)
        self._tasks[key] = task
        task.add_done_callback(self.note_end)

    async def cancel(self, keys: Iterable[str] | None = None) -> None:
        """Cancel those of these keys, by default all, and wait for them, but not for ever.

        A plain function runs in a thread, and that cannot be stopped.
        """
        wanted = list(self._tasks) if keys is None else keys
        tasks = {key: self._tasks[key] for key in wanted if key in self._tasks}
        for task in tasks.values():
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks.values(), timeout=self._grace_s)
            run_id = self._keeper.lease.run_id
            for task in stuck:
                _log.warning("%s of run %r ignores its cancellation", task, run_id)
        for key in tasks:
            self._tasks.pop(key, None)

    def note_end(self, task: asyncio.Task[None]) -> None:
        """Take note of the end of a task of this run."""
        if task.cancelled():
            error = None if task.cancelling() else EngineError(f"{task} was cancelled from within")
        else:
            error = task.exception()
        if error is not None:
            self.error, self.failed_task = error, task.get_name()
            self._wake()

    async def _carry_out(
        self, request: Event, handler: Handler, make_call: Callable[[], Call]
    ) -> None:
        call = make_call()
        CURRENT_CALL.set(call.trace)  # of this task; it may have been begun within another call
        pending_events = await handler.handle(call)
        if self._tasks.pop(request.data["key"], None) is not None:  # else settled without it
            self.results.extend(pending_events)
            self._wake()
