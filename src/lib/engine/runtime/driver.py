"""Drives one run: read, fold, decide, append, carry out, again, until it ends or waits.

The rules that keep a run safe:

1. An effect is begun only after its intent has been appended, and only while the lease lasts.
2. Nothing is folded into the live state before it has been appended. A decision is made on a
   probe, and its intents go into the same append as the results it rests on.
3. Each append names the event it expects to be last. If signals have come in between, they are
   folded and the decision is made anew; if another worker has taken over, this one stops and
   appends nothing more.
4. A takeover appends `lib.run.resumed` before anything else, which stops the old owner by rule 3.
   Then every request without a result is carried out again or settled as unknown, as its
   recorded effect class says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK
from lib._util.tasks import whole
from lib._util.trace_context import span_id_of
from lib.engine.core.algorithm import (
    NULL_ALGORITHM,
    Algorithm,
    LLMRequest,
    Request,
    ToolRequest,
    TurnRequest,
)
from lib.engine.core.decide import Step, is_run_error, next_step, rehydrate
from lib.engine.core.settle import OUTCOME_UNKNOWN, PendingEvent, fail_pending, run_completed
from lib.engine.core.state import RunState
from lib.engine.handlers.base import Call, Handler, ToolOffers
from lib.engine.logs import log_run, log_store_errors
from lib.engine.runtime.children import ChildRunStarter
from lib.engine.runtime.deltas import DeltaHub
from lib.engine.runtime.effects import Effects
from lib.engine.runtime.lease import LeaseKeeper
from lib.engine.runtime.log import ERASED, RunLog
from lib.engine.runtime.services import Services
from lib.errors import (
    MissingHandler,
    RedactionFailed,
    RunAbandoned,
    RunNotFound,
)
from lib.events import Event, Lease
from lib.events import kinds as k
from lib.events.wakeups import Listener
from lib.privacy.redactor import off_loop_if_large

_log = logging.getLogger("lib.engine")

_SPAN_FAMILIES: Final[Mapping[str, str]] = {
    k.LLM_REQUESTED: "llm",
    k.TOOL_REQUESTED: "tool",
    k.CHILD_REQUESTED: "tool",
    k.TURN_STARTED: "turn",
    k.MEMORY_REQUESTED: "memory",
    k.CONTEXT_REQUESTED: "context",
}
"""Of the spans that `lib.observe.spans` makes of requests, for `span_id_of`."""

CANCELLED = "the run was cancelled while this call ran; it may or may not have had its effect"
FAILED = "the run that requested this one has failed"
_HASHED_CHARS: Final = 500_000  # at once: some 3 ms
_PAUSE_S: Final = 0.001  # with none, threads that read a log wait for the interpreter all along


class _Waker:
    """Wakes a driver without a reference to it, so that an ended driver is no reference cycle."""

    listener: Listener | None = None

    def wake(self) -> None:
        """Wake it, if it listens."""
        if self.listener is not None:
            self.listener.wake()


class Driver:
    """Drives one run in this process.

    Attributes:
        waits: True while it only waits for its child runs.
    """

    def __init__(
        self,
        services: Services,
        algorithm: Algorithm[Any],
        lease: Lease,
        hub: DeltaHub,
        *,
        log: Sequence[Event] = (),
    ) -> None:
        """Take a claimed run; `drive` does the work.

        Args:
            services: parts of the engine that drivers share.
            algorithm: how the run goes on.
            lease: the right to drive it.
            hub: takes deltas of replies.
            log: the run's events, if they are at hand.
        """
        self._services = services
        self._keeper = LeaseKeeper(
            services.store,
            lease,
            clock=services.clock,
            lease_s=services.lease_s,
            grace_s=services.grace_s,
        )
        self._waker = _Waker()
        self._run_log = RunLog(services, algorithm, self._keeper, self._waker.wake)
        self._hub = hub
        self._loaded_log = log
        self._effects = Effects(self._keeper, grace_s=services.grace_s, wake=self._waker.wake)
        self._interrupted: dict[str, ToolRequest] = {}
        self._offers = services.handlers.all_offers
        self.waits: bool = False
        self._stopping = False
        self._idle_at: int | None = None
        self._fold_failed = False

    async def drive(self, begin: asyncio.Event | None = None) -> RunState[Any]:
        """Drive the run until it ends or waits for a signal; return its state then.

        After any error, here or in the clean-up, the lease is no longer renewed and is released:
        another worker can take the run over.

        Args:
            begin: is waited for before anything is done; None begins at once.

        Raises:
            RunAbandoned: another worker has taken over, or `stop` was called.
            MissingHandler: the run makes a request that no handler of the engine fulfils.
        """
        async with AsyncExitStack() as leaving:  # from the last to the first, each of them always
            listening = self._services.store.wakeups.listen(
                self._keeper.lease.run_id, signals_only=True
            )
            wake = self._waker.listener = leaving.enter_context(listening)
            leaving.push_async_callback(self._release_lease)
            leaving.callback(self._keeper.stop)
            leaving.push_async_exit(self._save)
            leaving.push_async_callback(
                self._effects.cancel
            )  # under the lease, as long as it takes
            leaving.push(self._shorten_if_cancelled)
            self._keeper.start(self._effects.note_end)
            if begin is not None:
                await begin.wait()
            await self._take_over()
            await self._loop(wake)
            self._idle_at = self._run_log.state.head
        return self._run_log.state

    def stop(self) -> None:
        """Let `drive` end soon; any worker can resume the run."""
        self._stopping = True
        self._keeper.shorten_deadline()
        self._waker.wake()

    def _shorten_if_cancelled(
        self, _type: object, error: BaseException | None, _at: object
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._keeper.shorten_deadline()

    async def _save(self, _type: object, error: BaseException | None, _at: object) -> None:
        """Log what there is at the end: results, or else the failure that ended it."""
        saved = await self._save_results()
        run_id = self._keeper.lease.run_id
        if isinstance(error, RunAbandoned) and error.run_id == run_id and not self._stopping:
            await self._log_lost_lease()
        if not saved and isinstance(error, Exception) and is_run_error(error):
            await self._log_failure(error)

    async def _log_lost_lease(self) -> None:
        """Log in a run that was taken over that this worker was slow, and not dead."""
        store, lease = self._services.store, self._keeper.lease
        data = {
            "signal_id": f"lost/{lease.owner}/{lease.epoch}",
            "worker": lease.owner,
            "epoch": lease.epoch,
        }
        with (
            suppress(RunNotFound),
            log_store_errors(lease, "that this worker lives was not written down"),
        ):
            info = await store.run(lease.run_id)
            if info is not None and info.status == "open":
                event = await self._services.engine.event(k.LEASE_LOST, data)
                await self._keeper.retry_while_held(
                    lambda: store.append(lease.run_id, [event], expected=None)
                )

    async def _release_lease(self) -> None:
        store, lease = self._services.store, self._keeper.lease
        with log_store_errors(lease, "its lease was not given back"):
            release = self._keeper.retry_while_held(
                lambda: store.release(lease, idle_at=self._idle_at)
            )
            await whole(release)

    # -- the loop --------------------------------------------------------------------------

    async def _loop(self, wake: Listener) -> None:
        while True:
            await self._advance()
            if self._run_log.state.outcome is not None:
                _log_end(self._run_log.state)
                return
            if await self._wind_down():
                continue
            if not self._effects.under_way:
                _log_rest(self._run_log.state)
                return  # nothing is held meanwhile
            self._raise_if_stopped()
            self.waits = self._run_log.state.delegates
            await wake.wait(rest_s=self._services.engine.poll_s if self.waits else 0.0)
            self.waits = False
            self._raise_if_stopped()
            if not self._effects.results:
                await self._run_log.read_tail()

    def _raise_if_stopped(self) -> None:
        if self._effects.error is not None:
            raise self._effects.error
        if self._stopping:
            raise RunAbandoned(self._keeper.lease.run_id, "the engine is closing")

    async def _advance(self) -> None:
        """Append what has happened and what follows from it, until nothing more follows."""
        run_log, handlers = self._run_log, self._services.handlers
        refreshed = False
        while True:
            results = list(self._effects.results)
            events = await run_log.to_events(results, run_log.state.head)
            probe = run_log.fold(run_log.state, events)
            step = next_step(run_log.algorithm, probe)
            if not refreshed and handlers.is_stale_for(step.requests, probe):
                refreshed = True
                # What has happened is in the log before a server is waited for.
                await self._before_intents()
                if events and await run_log.append(events):
                    del self._effects.results[: len(results)]
                    run_log.state = probe
                    self._start_checked(events)
                await handlers.refresh()
                continue
            await hash_messages(step.requests)
            follow_up = await run_log.to_events(self._drafts(step, probe), probe.head)
            if not events and not follow_up:
                return
            if step.requests or any(event.kind == k.TOOL_CHECKED for event in events):
                await self._before_intents()
            if await run_log.append(events + follow_up):
                del self._effects.results[: len(results)]
                run_log.state = run_log.fold(probe, follow_up)
                self._start_checked(events)
                self._start(follow_up, step.requests)

    async def _before_intents(self) -> None:
        """Check that an intent that is about to be logged may also be begun."""
        self._raise_if_stopped()
        if not self._keeper.is_valid:
            await self._keeper.renew()

    async def _save_results(self) -> bool:
        """Append what has happened and was not appended yet; nothing is decided on it here.

        Returns:
            Whether there was anything, and it is in the log now.
        """
        results, self._effects.results = self._effects.results, []
        batches = [results] if results else []
        saved = False
        while batches:
            batch = batches.pop()
            # Another worker has taken over, or there is no redacting: that has been logged.
            with (
                suppress(RunAbandoned, RedactionFailed),
                log_store_errors(self._keeper.lease, "results may be lost"),
            ):
                try:
                    await self._append(batch)
                    saved = True
                except (
                    RedactionFailed,
                    TypeError,
                    ValueError,
                ):  # one that cannot be written takes no other with it
                    if len(batch) == 1:
                        raise
                    batches = [[result] for result in reversed(batch)]
        return saved

    async def _append(self, pending_events: Sequence[PendingEvent]) -> None:
        """Append drafts, after whatever signals come before them."""
        while True:
            events = await self._run_log.to_events(pending_events, self._run_log.state.head)
            if await self._run_log.append(events):
                break
        self._run_log.state = self._run_log.state._replace(head=events[-1].seq)

    async def _log_failure(self, fault: Exception) -> None:
        """Log a failure that the next owner of the run could not count."""
        with (
            suppress(RunAbandoned),
            log_store_errors(self._keeper.lease, "its failure was not counted"),
        ):
            kinds = {request.kind for request in self._run_log.state.open.values()}
            if self._run_log.state.poisoned or not (self._fold_failed or kinds <= k.SPAWNS_RUN):
                return
            self._run_log.algorithm = NULL_ALGORITHM  # it is not called any more
            if not await self._failed_in_child(fault):
                await self._append([self._resumed(error={"type": type(fault).__name__})])

    async def _failed_in_child(self, fault: Exception) -> bool:
        """Return True if a child run has failed here, which counts its own failures."""
        request = self._run_log.state.open.get(self._effects.failed_task)
        if fault is not self._effects.error or request is None:
            return False
        return await self._services.store.run(request.data["run_id"]) is not None

    def _resumed(self, **more: Any) -> PendingEvent:
        lease = self._keeper.lease
        return PendingEvent(k.RUN_RESUMED, {"worker": lease.owner, "epoch": lease.epoch, **more})

    def _drafts(self, step: Step, probe: RunState[Any]) -> list[PendingEvent]:
        """Return the step as pending events: facts, intents, and the end."""
        pending_events = list(step.settled)
        for request in step.requests:
            if isinstance(request, TurnRequest):
                self._services.engine.algorithm(request.algorithm)  # it raises if it is not here
        if step.requests:
            self._offers = (
                self._services.handlers.all_offers
            )  # tools may change before they are sent
            pending_events += self._services.handlers.admit(step.requests, probe)
        if step.finish is not None:
            pending_events.append(run_completed(step.finish))
        return pending_events

    # -- taking up ---------------------------------------------------------------------------

    async def _take_over(self) -> None:
        """Read and fold the run; if its worker was interrupted in it, take it over."""
        decided = await self._read()
        state = self._run_log.state
        self._add_client_tools(state.client_tools)
        self._children = ChildRunStarter(
            self._services.engine, state.root_id, self._keeper, trace=state.trace
        )
        if self._run_log.state.outcome is not None:
            return
        for event in self._run_log.state.open.values():
            self._require_handler(event)
        while self._keeper.lease.takeover or self._run_log.state.open:
            events = await self._run_log.to_events([self._resumed()], self._run_log.state.head)
            if await self._run_log.append(events):
                self._log_resumed()
                self._run_log.state = self._run_log.fold(self._run_log.state, events)
                break
        await self._cancel_children()
        poisoned = self._run_log.state.poisoned
        if not poisoned:  # else it ends even if what it asks for cannot be hashed
            await hash_messages(decided.values())
            await self._refresh_for(self._run_log.state.open)
        for event in list(self._run_log.state.open.values()):
            if event.kind in k.SPAWNS_RUN or not poisoned:
                self._recover(event, decided.get(event.data["key"]))

    def _add_client_tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        if tools:
            handlers = self._services.handlers.with_client_tools(tools)
            self._services = replace(self._services, handlers=handlers)
            self._offers = handlers.all_offers

    async def _refresh_for(self, under_way: Mapping[str, Event]) -> None:
        """Find the tools of toolsets for requests that are carried out again."""
        if under_way:
            await self._services.handlers.refresh()
            self._offers = self._services.handlers.all_offers

    def _log_resumed(self) -> None:
        lease, under_way = self._keeper.lease, len(self._run_log.state.open)
        if lease.takeover:
            what = (
                "is taken over with %d calls under way: its worker gave no sign of life (epoch %d)"
            )
            log_run(logging.WARNING, lease.run_id, what, under_way, lease.epoch)
        else:
            what = "goes on with %d calls that were under way (epoch %d)"
            log_run(logging.INFO, lease.run_id, what, under_way, lease.epoch)

    async def _read(self) -> dict[str, Request]:
        """Fold the log and return the open requests as they were decided.

        A run that is to end is folded without its algorithm, if that fails.
        """
        run_id = self._keeper.lease.run_id
        try:
            found = await self._services.states.read(
                run_id, self._run_log.algorithm, self._loaded_log
            )
        except Exception as error:
            if not is_run_error(error):
                raise
            log = self._loaded_log or await self._services.store.read(run_id)
            self._run_log.state, decided = rehydrate(NULL_ALGORITHM, log)
            self._fold_failed = True
            if not (self._run_log.state.poisoned or self._run_log.state.cancelled):
                raise
            self._run_log.algorithm = NULL_ALGORITHM
            return decided
        if found is None:
            raise RunAbandoned(run_id, ERASED)
        self._run_log.state, decided = found
        return decided

    def _require_handler(self, event: Event) -> None:
        """Refuse a run, before anything is logged, of which this engine lacks a part."""
        self._handler(event)
        if event.kind in k.SPAWNS_RUN:
            self._services.engine.algorithm(event.data.get("algorithm", ""))

    def _recover(self, event: Event, decided: Request | None) -> None:
        """Carry an interrupted request out again, or settle it."""
        result = self._handler(event).recover(event)
        if result is None and (decided is not None or event.kind in k.SPAWNS_RUN):
            self._warn_if_changed(event, decided)
            if isinstance(decided, ToolRequest):
                self._interrupted[decided.key] = decided
            self._spawn(event, decided, interrupted=True)
        else:  # settled; if by us, the algorithm is another one by now
            _log_unknown(event)
            self._effects.results.append(result or fail_pending(event, "unknown", OUTCOME_UNKNOWN))

    def _warn_if_changed(self, event: Event, decided: Request | None) -> None:
        if not isinstance(decided, LLMRequest):
            return
        offers = self._services.handlers.member(decided.agent).offers
        digest = decided.digest(offers.digest(decided.tools))
        if digest != event.data.get("digest"):
            _log.warning("run %r: %s renders differently now", event.run_id, decided.key)

    # -- effects ---------------------------------------------------------------------------

    def _start(self, events: Sequence[Event], requests: Sequence[Request]) -> None:
        decided = {request.key: request for request in requests}
        for event in events:
            if event.kind in k.REQUESTS and not event.data.get("unstarted"):
                self._spawn(event, decided[event.data["key"]])

    def _start_checked(self, events: Sequence[Event]) -> None:
        """Make the interrupted calls that did not happen, now that this is in the log."""
        for event in events:
            if event.kind == k.TOOL_CHECKED:
                request = self._run_log.state.open.get(event.data["key"])
                decided = self._interrupted.pop(event.data["key"], None)
                if request is not None:
                    self._spawn(request, decided)

    def _spawn(self, event: Event, decided: Request | None, *, interrupted: bool = False) -> None:
        offers = self._offers.get(event.data.get("agent", ""), self._offers[""])
        self._effects.begin(
            event,
            self._handler(event),
            lambda: self._call(event, decided, offers, interrupted=interrupted),
        )

    def _handler(self, event: Event) -> Handler:
        handler = self._services.handlers.handler(event)
        if handler is None:
            raise MissingHandler(self._run_log.state.run_id, event.kind)
        return handler

    def _call(
        self, event: Event, decided: Request | None, offers: ToolOffers, *, interrupted: bool
    ) -> Call:
        trace = self._run_log.state.trace
        return Call(
            event=event,
            request=decided,
            run_id=event.run_id,
            tenant=event.tenant,
            user=event.user,
            offers=offers,
            blobs=self._services.blobs,
            clock=self._services.clock,
            redacted=self._services.redacted,
            children=self._children,
            on_delta=self._hub.writer(event.run_id, seq=event.seq, epoch=self._keeper.lease.epoch),
            first_model_call=is_first_model_call(self._run_log.state)
            or (isinstance(decided, LLMRequest) and decided.first_call),
            interrupted=interrupted,
            answer=self._run_log.state.answers.get(event.data.get("key", "")),
            budget=self._run_log.state.budget,
            trace=None if trace is None else trace.below(_span_of(event)),
            deps=self._services.deps,
            store=self._services.store,
        )

    async def _wind_down(self) -> bool:
        """Stop what is under way in a run that is to end; return True if that settled anything.

        Its child runs are cancelled, and end by themselves.
        """
        await self._cancel_children()
        if not self._run_log.state.cancelled:
            return False
        keys = [
            key for key, each in self._run_log.state.open.items() if each.kind not in k.SPAWNS_RUN
        ]
        await self._effects.cancel(keys)
        results = (pending for pending in self._effects.results if pending.kind in k.RESULTS)
        settled = {pending.data["key"] for pending in results}
        for key in keys:
            if key not in settled:
                self._effects.results.append(
                    fail_pending(self._run_log.state.open[key], "cancelled", CANCELLED)
                )
        return bool(keys)

    async def _cancel_children(self) -> None:
        if self._run_log.state.cancelled:
            await self._children.cancel(
                await self._redactable(self._run_log.state.cancel_reason or "")
            )
        elif self._run_log.state.poisoned:
            await self._children.cancel(await self._redactable(FAILED))

    async def _redactable(self, reason: str) -> str:
        """Return the reason, or nothing if it cannot be redacted: children are stopped anyway."""
        try:
            await off_loop_if_large(self._services.redacted, k.CANCEL_REQUESTED, {"reason": reason})
        except RedactionFailed:
            return ""
        return reason


def _span_of(request: Event) -> str:
    """Return the id of the span that observers make of a request."""
    return span_id_of(request.run_id, _SPAN_FAMILIES[request.kind], request.data["key"])


def _log_end(state: RunState[Any]) -> None:
    """Log how a run has ended, without what it says."""
    finish, spend = state.finish or {}, state.spend
    error: Mapping[str, Any] = finish.get("error") or {}
    reasons = [str(each) for each in (finish.get("reason"), error.get("type")) if each]
    log_run(
        logging.WARNING if state.outcome == "FAILED" else logging.INFO,
        state.run_id,
        "ended as %s%s: %d model calls, %d tool calls, %d tokens, %.1f s",
        state.outcome,
        f" ({', '.join(dict.fromkeys(reasons))})" if reasons else "",
        spend.llm_calls,
        spend.tool_calls,
        spend.tokens,
        spend.seconds,
    )


def _log_rest(state: RunState[Any]) -> None:
    keys = sorted(key for key, approval in state.approvals.items() if approval == "pending")
    if keys:
        log_run(logging.INFO, state.run_id, "waits for a person to decide %s", ", ".join(keys))
    elif "awaited" in state.approvals.values():
        log_run(logging.INFO, state.run_id, "waits for its client")
    else:
        log_run(logging.DEBUG, state.run_id, "waits for a signal")


def _log_unknown(request: Event) -> None:
    if request.kind == k.TOOL_REQUESTED:
        what = "does not know what became of call %r of tool %r, which was under way"
        log_run(logging.WARNING, request.run_id, what, request.data["key"], request.data["name"])


async def hash_messages(requests: Iterable[Request], *, chars: int = _HASHED_CHARS) -> None:
    """Hash the messages of model requests, with pauses for other tasks where they are many.

    The pauses are in real time, whatever the clock of the engine.

    Args:
        requests: of any kind.
        chars: how many to hash between two pauses.
    """
    for request in requests:
        if isinstance(request, LLMRequest):
            while request.history.hash_incrementally(chars):
                await SYSTEM_CLOCK.sleep(_PAUSE_S)


def is_first_model_call(state: RunState[Any]) -> bool:
    """Return True if a root run has had no model call that came to its end.

    Then all of its input is new, replies of models in it included. The conversation before a turn
    of a session is not: it was checked when it was sent.
    """
    waiting = sum(request.kind == k.LLM_REQUESTED for request in state.open.values())
    return state.root_id == state.run_id and state.spend.llm_calls <= waiting
