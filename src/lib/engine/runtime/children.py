"""Child runs: started once, driven by any worker, awaited to the end by their parent.

Their ids follow from the request that asks for them, so that starting one again finds it there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lib._util.tasks import whole
from lib._util.trace_context import TraceContext
from lib.engine.core.budget import Spend
from lib.engine.core.result import Result
from lib.engine.logs import log_run
from lib.engine.runtime.lease import LeaseKeeper
from lib.engine.runtime.services import EngineAPI
from lib.errors import Conflict, RedactionFailed, RunErased, RunNotFound, StoreError
from lib.events import Event, NewEvent
from lib.events import kinds as k

_log = logging.getLogger("lib.engine")


class ChildRunStarter:
    """The runs that one run starts, while a driver of this process holds it."""

    def __init__(
        self,
        engine: EngineAPI,
        root_id: str,
        keeper: LeaseKeeper,
        *,
        trace: TraceContext | None,
    ) -> None:
        """Make it for a run.

        Args:
            engine: starts and drives.
            root_id: the root of the run, and so of those that it starts.
            keeper: of the run's lease; while it lasts, calls that the store fails are repeated.
            trace: the application's span within which the root was started, None for none.
        """
        self._engine = engine
        self._root_id = root_id
        self._keeper = keeper
        self._trace = {} if trace is None else trace.to_json()
        self._started: dict[str, Event] = {}
        self._unanswered: set[str] = set()
        self._reason: str | None = None

    async def run(
        self,
        request: Event,
        *,
        algorithm: str,
        input: Sequence[Mapping[str, Any]],  # noqa: A002 - the name in the log
        budget: Mapping[str, Any] | None = None,
        user: str | None = None,
        upto: int | None = None,
        client_tools: Sequence[Mapping[str, Any]] = (),
    ) -> Result:
        """Start the run that the request names, unless it is there; wait for its end.

        See `lib.engine.handlers.base.ChildRuns`.
        """
        user = user or request.user
        config = self._engine.algorithm(algorithm).config()
        try:
            config |= await self._engine.run_config(algorithm, tenant=request.tenant, user=user)
        # Around an application's own code: the child run fails, its parent goes on.
        except Exception as error:  # noqa: BLE001 - see above
            if not await self.exists(request):  # else it remembers what it began with
                _log.exception("the instructions of agent %r failed", algorithm)
                return _failed(request, "instructions", error, Spend())
        data: dict[str, Any] = {
            "algorithm": algorithm,
            "input": list(input),
            "config": config,
            "parent": {"run_id": request.run_id, "key": request.data["key"]},
            "root": self._root_id,
            **self._trace,
        }
        if budget is not None:
            data["budget"] = dict(budget)
        if upto is not None:
            data["upto"] = upto
        if client_tools:
            data["client_tools"] = list(client_tools)
        # Repeated, it finds what it has begun.
        return await self._keeper.retry_while_held(lambda: self._run(request, data, user))

    async def exists(self, request: Event) -> bool:
        """Return True if the run that the request names exists or was erased; see `ChildRuns`."""
        store, run_id = self._engine.store, request.data["run_id"]

        async def look() -> bool:
            return await store.run(run_id) is not None or await store.tombstone(run_id) is not None

        return await self._keeper.retry_while_held(look)

    async def _run(self, request: Event, data: dict[str, Any], user: str | None) -> Result:
        run_id = request.data["run_id"]
        try:
            await self._begin(request, run_id, data, user)
            return await self._engine.result_of(run_id)
        except RunNotFound as error:  # or erased, while its parent waits for it
            return _erased(request, error)
        finally:
            self._started.pop(run_id, None)

    async def cancel(self, reason: str) -> None:
        """Cancel all of them, those to come included; safe to repeat."""
        if self._reason is None:
            self._reason = reason
            for run_id, request in list(self._started.items()):
                await self._cancel_one(run_id, request)

    async def _begin(
        self, request: Event, run_id: str, data: dict[str, Any], user: str | None
    ) -> None:
        cancelled = self._reason is not None
        try:
            event = self._engine.event(k.RUN_STARTED, data, tenant=request.tenant, user=user)
            events = [await event]
            if cancelled:  # one that has not begun by now begins nothing
                events.append(await self._cancel_signal(request))
            log = await whole(self._append(request, events))
            log_run(logging.INFO, run_id, "starts: %s for %r", data["algorithm"], request.run_id)
        except (Conflict, RedactionFailed) as error:
            if isinstance(error, RedactionFailed) and await self._engine.store.run(run_id) is None:
                raise
            log, cancelled = [], False  # it is there already
        self._started[run_id] = request
        if self._reason is not None and not cancelled:
            await self._cancel_one(run_id, request)
        elif log:
            await self._engine.start_driving(run_id, log)

    async def _append(self, request: Event, events: Sequence[NewEvent]) -> list[Event]:
        """Begin the run that the request names, unless its parent or its root has been erased.

        An erasure of a tree looks for new runs after its root is gone. So either that look has
        found the new run, or this one finds the root gone. Only a process that dies between the
        two, or loses its lease before a store has answered, leaves an orphan.

        Raises:
            Conflict: it is there already.
            RunErased: it has been erased, or its parent or root has.
        """
        store, run_id = self._engine.store, request.data["run_id"]
        try:
            log = await store.append(run_id, events, expected=0)
            await self._undo_orphan(request)
        except Conflict:
            if run_id in self._unanswered:  # it may be this one that has begun it
                await self._undo_orphan(request)
            raise
        except StoreError as error:
            if error.retryable:
                self._unanswered.add(run_id)
            raise
        return log

    async def _undo_orphan(self, request: Event) -> None:
        store, run_id = self._engine.store, request.data["run_id"]
        for relative in dict.fromkeys((request.run_id, self._root_id)):
            if await store.run(relative) is None:
                await store.erase(run_id)
                raise RunErased(run_id)
        self._unanswered.discard(run_id)

    async def _cancel_one(self, run_id: str, request: Event) -> None:
        """Cancel one, if it has not ended."""
        info = await self._engine.store.run(run_id)
        if info is not None and info.status == "open":
            with suppress(RunNotFound):  # erased meanwhile
                signal = await self._cancel_signal(request)
                await self._engine.store.append(run_id, [signal], expected=None)

    async def _cancel_signal(self, request: Event) -> NewEvent:
        signal_id = f"cancel/{request.run_id}/{request.data['key']}"
        data = {"signal_id": signal_id}
        if self._reason:
            data["reason"] = self._reason
        return await self._engine.event(k.CANCEL_REQUESTED, data)


def _erased(request: Event, error: RunNotFound) -> Result:
    """Return how a run has ended that was erased.

    Its spend is lost with it. It counts as all that was granted, so that this is not granted
    again; without a limit, as nothing.
    """
    granted = Spend.from_json(request.data.get("budget", {}))
    return _failed(request, "erased", error, granted._replace(seconds=0.0))


def _failed(request: Event, reason: str, error: Exception, spend: Spend) -> Result:
    return Result(
        run_id=request.data["run_id"],
        outcome="FAILED",
        text="",
        reason=reason,
        error={"type": type(error).__name__, "message": str(error)},
        spend=spend,
    )
