"""What is under way for a run: each effect a task, begun under the lease, its result kept here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from lib._util.trace_context import CURRENT_CALL
from lib.engine.core.settle import Draft
from lib.engine.handler import Context, Handler
from lib.engine.held import HeldLease
from lib.errors import EngineError, RunAbandoned
from lib.events import Event

_log = logging.getLogger("lib.engine")


class Effects:
    """The effects of one run in this process.

    Attributes:
        results: what has happened and was not appended yet.
        broken: what has gone wrong in one of them, or with the lease.
        broken_by: the name of the task in which that was; of an effect it is the request's key.
    """

    def __init__(self, held: HeldLease, *, grace_s: float, woken: Callable[[], None]) -> None:
        """Begin with nothing.

        Args:
            held: the lease under which effects are begun.
            grace_s: how long one that is cancelled may take to end.
            woken: is told whenever one has ended.
        """
        self.results: list[Draft] = []
        self.broken: BaseException | None = None
        self.broken_by = ""
        self._held = held
        self._grace_s = grace_s
        self._woken = woken
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> bool:
        """Whether any has not ended, or has a result that is not in the log."""
        return bool(self._tasks or self.results)

    def begin(self, request: Event, handler: Handler, context: Callable[[], Context]) -> None:
        """Begin the effect of a request that is in the log.

        Args:
            request: the request.
            handler: has the effect.
            context: tells what it knows of the run when it begins.

        Raises:
            RunAbandoned: the lease has ended.
        """
        if not self._held.lasts:
            raise RunAbandoned(request.run_id, "its lease ended before an effect was begun")
        key = request.data["key"]
        task = asyncio.create_task(self._carry_out(request, handler, context), name=key)
        self._tasks[key] = task
        task.add_done_callback(self.ended)

    async def drop(self, keys: Iterable[str] | None = None) -> None:
        """Cancel those of these keys, by default all, and wait for them, but not for ever.

        A plain function runs in a thread, and that cannot be stopped.
        """
        wanted = list(self._tasks) if keys is None else keys
        tasks = {key: self._tasks[key] for key in wanted if key in self._tasks}
        for task in tasks.values():
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks.values(), timeout=self._grace_s)
            run_id = self._held.lease.run_id
            for task in stuck:
                _log.warning("%s of run %r ignores its cancellation", task, run_id)
        for key in tasks:
            self._tasks.pop(key, None)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Take note of the end of a task of this run."""
        if task.cancelled():
            error = None if task.cancelling() else EngineError(f"{task} was cancelled from within")
        else:
            error = task.exception()
        if error is not None:
            self.broken, self.broken_by = error, task.get_name()
            self._woken()

    async def _carry_out(
        self, request: Event, handler: Handler, context: Callable[[], Context]
    ) -> None:
        known = context()
        CURRENT_CALL.set(known.trace)  # of this task; it may have been begun within another call
        drafts = await handler.handle(request, known)
        if self._tasks.pop(request.data["key"], None) is not None:  # else settled without it
            self.results.extend(drafts)
            self._woken()
