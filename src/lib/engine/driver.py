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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK
from lib._util.tasks import whole
from lib._util.trace_context import span_id_of
from lib.engine.bearing import borne
from lib.engine.core.algorithm import (
    Algorithm,
    LLMRequest,
    Request,
    ToolRequest,
    TurnRequest,
)
from lib.engine.core.blind import BLIND
from lib.engine.core.decide import Step, next_step, refold
from lib.engine.core.settle import OUTCOME_UNKNOWN, Draft, fail_open, finished
from lib.engine.core.state import RunState
from lib.engine.derived import StartedRuns
from lib.engine.effects import Effects
from lib.engine.equipment import Equipment
from lib.engine.faults import is_fault
from lib.engine.fresh import is_fresh
from lib.engine.handler import Context, Live
from lib.engine.held import HeldLease
from lib.engine.ledger import ERASED, Ledger
from lib.engine.logs import log_run
from lib.engine.redaction import off_loop_if_large
from lib.errors import (
    MissingHandler,
    RedactionFailed,
    RunAbandoned,
    RunNotFound,
)
from lib.events import Event, Lease
from lib.events import kinds as k
from lib.events.wakeups import Listener

_log = logging.getLogger("lib.engine")

_SPAN_FAMILIES: Final[Mapping[str, str]] = {
    k.LLM_REQUESTED: "llm",
    k.TOOL_REQUESTED: "tool",
    k.CHILD_REQUESTED: "tool",
    k.TURN_STARTED: "turn",
    k.MEMORY_REQUESTED: "memory",
}
"""Of the spans that `lib.observe.spans` makes of requests, for `span_id_of`."""

CANCELLED = "the run was cancelled while this call ran; it may or may not have had its effect"
FAILED = "the run that asked for this one has failed"
_HASHED_CHARS: Final = 500_000  # at once: some 3 ms
_PAUSE_S: Final = 0.001  # with none, threads that read a log wait for the interpreter all along


class _Bell:
    """Wakes a driver, and does not know it: what has been driven is no cycle, and gone at once."""

    listener: Listener | None = None

    def ring(self) -> None:
        """Wake it, if it listens."""
        if self.listener is not None:
            self.listener.wake()


class Driver:
    """One run in the hands of this process.

    Attributes:
        waits: whether it only waits for runs that it has started.
    """

    def __init__(
        self,
        equipment: Equipment,
        algorithm: Algorithm[Any],
        lease: Lease,
        live: Callable[[str], Callable[[Live], None] | None],
        *,
        log: Sequence[Event] = (),
    ) -> None:
        """Take a claimed run; `drive` does the work.

        Args:
            equipment: what the engine lends.
            algorithm: how the run goes on.
            lease: the right to drive it.
            live: tells where pieces of a run's replies go.
            log: the run's events, if they are at hand.
        """
        self._with = equipment
        self._held = HeldLease(
            equipment.store,
            lease,
            clock=equipment.clock,
            lease_s=equipment.lease_s,
            grace_s=equipment.grace_s,
        )
        self._bell = _Bell()
        self._ledger = Ledger(equipment, algorithm, self._held, self._bell.ring)
        self._live = live
        self._log = log
        self._effects = Effects(self._held, grace_s=equipment.grace_s, woken=self._bell.ring)
        self._interrupted: dict[str, ToolRequest] = {}
        self.waits = False
        self._stopping = False
        self._idle_at: int | None = None
        self._unfolded = False

    async def drive(self, begin: asyncio.Event | None = None) -> RunState[Any]:
        """Drive the run until it ends or waits for somebody; return its state then.

        Whatever goes wrong, here or while it cleans up, the lease is not renewed any more and is
        given back: another worker can take the run.

        Args:
            begin: is waited for before anything is done; None begins at once.

        Raises:
            RunAbandoned: another worker has taken over, or `stop` was called.
            MissingHandler: the run asks for what no handler of the engine fulfils.
        """
        async with AsyncExitStack() as leaving:  # from the last to the first, each of them always
            listening = self._with.store.wakeups.listen(self._held.lease.run_id, signals_only=True)
            wake = self._bell.listener = leaving.enter_context(listening)
            leaving.push_async_callback(self._give_back)
            leaving.callback(self._held.stop)
            leaving.push_async_exit(self._save)
            leaving.push_async_callback(self._effects.drop)  # under the lease, as long as it takes
            leaving.push(self._hurry_if_cancelled)
            self._held.keep(self._effects.ended)
            if begin is not None:
                await begin.wait()
            await self._take()
            await self._loop(wake)
            self._idle_at = self._ledger.state.head
        return self._ledger.state

    def stop(self) -> None:
        """Let `drive` end soon, leaving the run to whoever resumes it."""
        self._stopping = True
        self._held.hurry()
        self._bell.ring()

    def _hurry_if_cancelled(self, _type: object, error: BaseException | None, _at: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._held.hurry()

    async def _save(self, _type: object, error: BaseException | None, _at: object) -> None:
        """Write down what is known at the end: results, or else the failure that ended it."""
        saved = await self._save_results()
        run_id = self._held.lease.run_id
        if isinstance(error, RunAbandoned) and error.run_id == run_id and not self._stopping:
            await self._say_alive()
        if not saved and isinstance(error, Exception) and is_fault(error):
            await self._count(error)

    async def _say_alive(self) -> None:
        """Say in the log of a run that was taken over that this worker was slow, and not dead."""
        store, lease = self._with.store, self._held.lease
        data = {
            "signal_id": f"lost/{lease.owner}/{lease.epoch}",
            "worker": lease.owner,
            "epoch": lease.epoch,
        }
        with suppress(RunNotFound), borne(lease, "that this worker lives was not written down"):
            info = await store.run(lease.run_id)
            if info is not None and info.status == "open":
                event = await self._with.engine.event(k.LEASE_LOST, data)
                await self._held.outlast(lambda: store.append(lease.run_id, [event], expected=None))

    async def _give_back(self) -> None:
        store, lease = self._with.store, self._held.lease
        with borne(lease, "its lease was not given back"):
            release = self._held.outlast(lambda: store.release(lease, idle_at=self._idle_at))
            await whole(release)

    # -- the loop --------------------------------------------------------------------------

    async def _loop(self, wake: Listener) -> None:
        while True:
            await self._advance()
            if self._ledger.state.outcome is not None:
                _log_end(self._ledger.state)
                return
            if await self._wind_down():
                continue
            if not self._effects.under_way:
                _log_rest(self._ledger.state)
                return  # nothing is held meanwhile
            self._check()
            self.waits = self._ledger.state.delegates
            await wake.wait(rest_s=self._with.engine.poll_s if self.waits else 0.0)
            self.waits = False
            self._check()
            if not self._effects.results:
                await self._ledger.read_tail()

    def _check(self) -> None:
        if self._effects.broken is not None:
            raise self._effects.broken
        if self._stopping:
            raise RunAbandoned(self._held.lease.run_id, "the engine is closing")

    async def _advance(self) -> None:
        """Append what has happened and what follows from it, until nothing more follows."""
        while True:
            results = list(self._effects.results)
            events = await self._ledger.numbered(results, self._ledger.state.head)
            probe = self._ledger.fold(self._ledger.state, events)
            step = next_step(self._ledger.algorithm, probe)
            await _reckoned(step.requests)
            follow_up = await self._ledger.numbered(self._drafts(step, probe), probe.head)
            if not events and not follow_up:
                return
            if step.requests or any(event.kind == k.TOOL_CHECKED for event in events):
                await self._before_intents()
            if await self._ledger.append(events + follow_up):
                del self._effects.results[: len(results)]
                self._ledger.state = self._ledger.fold(probe, follow_up)
                self._make_checked(events)
                self._start(follow_up, step.requests)

    async def _before_intents(self) -> None:
        """Make sure that what is about to be intended may also be begun."""
        self._check()
        if not self._held.lasts:
            await self._held.renew()

    async def _save_results(self) -> bool:
        """Append what has happened and was not appended yet; nothing is decided on it here.

        Returns:
            Whether there was anything, and it is in the log now.
        """
        known, self._effects.results = self._effects.results, []
        batches = [known] if known else []
        saved = False
        while batches:
            batch = batches.pop()
            # Another worker has taken over, or there is no redacting: that has been logged.
            with (
                suppress(RunAbandoned, RedactionFailed),
                borne(self._held.lease, "results may be lost"),
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

    async def _append(self, drafts: Sequence[Draft]) -> None:
        """Append drafts, after whatever signals come before them."""
        while True:
            events = await self._ledger.numbered(drafts, self._ledger.state.head)
            if await self._ledger.append(events):
                break
        self._ledger.state = self._ledger.state._replace(head=events[-1].seq)

    async def _count(self, fault: Exception) -> None:
        """Write down a failure that whoever takes the run up next would not count."""
        with suppress(RunAbandoned), borne(self._held.lease, "its failure was not counted"):
            kinds = {request.kind for request in self._ledger.state.open.values()}
            if self._ledger.state.poisoned or not (self._unfolded or kinds <= k.DERIVING):
                return
            self._ledger.algorithm = BLIND  # it is not asked any more
            if not await self._is_anothers(fault):
                await self._append([self._resumed(error={"type": type(fault).__name__})])

    async def _is_anothers(self, fault: Exception) -> bool:
        """Tell whether a run that this one has started has failed here, and counts for itself."""
        request = self._ledger.state.open.get(self._effects.broken_by)
        if fault is not self._effects.broken or request is None:
            return False
        return await self._with.store.run(request.data["run_id"]) is not None

    def _resumed(self, **more: Any) -> Draft:
        lease = self._held.lease
        return Draft(k.RUN_RESUMED, {"worker": lease.owner, "epoch": lease.epoch, **more})

    def _drafts(self, step: Step, probe: RunState[Any]) -> list[Draft]:
        """Return the step as events to be: facts, intents, and the end."""
        drafts = list(step.settled)
        for request in step.requests:
            if isinstance(request, TurnRequest):
                self._with.engine.algorithm(request.algorithm)  # it raises if it is not here
        if step.requests:
            drafts += self._with.handlers.admit(step.requests, probe)
        if step.finish is not None:
            drafts.append(finished(step.finish))
        return drafts

    # -- taking up ---------------------------------------------------------------------------

    async def _take(self) -> None:
        """Read and fold the run; if somebody has been interrupted in it, take it over."""
        decided = await self._read()
        state = self._ledger.state
        self._derived = StartedRuns(
            self._with.engine, state.root_id, self._held.outlast, trace=state.trace
        )
        if self._ledger.state.outcome is not None:
            return
        for event in self._ledger.state.open.values():
            self._check_able(event)
        while self._held.lease.takeover or self._ledger.state.open:
            events = await self._ledger.numbered([self._resumed()], self._ledger.state.head)
            if await self._ledger.append(events):
                self._log_resumed()
                self._ledger.state = self._ledger.fold(self._ledger.state, events)
                break
        await self._pass_on_cancel()
        poisoned = self._ledger.state.poisoned
        if not poisoned:  # else it ends even if what it asks for cannot be hashed
            await _reckoned(decided.values())
        for event in list(self._ledger.state.open.values()):
            if event.kind in k.DERIVING or not poisoned:
                self._recover(event, decided.get(event.data["key"]))

    def _log_resumed(self) -> None:
        lease, under_way = self._held.lease, len(self._ledger.state.open)
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
        run_id = self._held.lease.run_id
        try:
            found = await self._with.states.read(run_id, self._ledger.algorithm, self._log)
        except Exception as error:
            if not is_fault(error):
                raise
            log = self._log or await self._with.store.read(run_id)
            self._ledger.state, decided = refold(BLIND, log)
            self._unfolded = True
            if not (self._ledger.state.poisoned or self._ledger.state.cancelled):
                raise
            self._ledger.algorithm = BLIND
            return decided
        if found is None:
            raise RunAbandoned(run_id, ERASED)
        self._ledger.state, decided = found
        return decided

    def _check_able(self, event: Event) -> None:
        """Refuse a run before anything is written of which this engine lacks something."""
        if event.kind not in self._with.handlers.by_kind:
            raise MissingHandler(self._ledger.state.run_id, event.kind)
        if event.kind in k.DERIVING:
            self._with.engine.algorithm(event.data.get("algorithm", ""))

    def _recover(self, event: Event, decided: Request | None) -> None:
        """Carry an interrupted request out again, or settle it."""
        result = self._with.handlers.by_kind[event.kind].recover(event)
        if result is None and (decided is not None or event.kind in k.DERIVING):
            self._warn_if_changed(event, decided)
            if isinstance(decided, ToolRequest):
                self._interrupted[decided.key] = decided
            self._spawn(event, decided, interrupted=True)
        else:  # settled; if by us, the algorithm is another one by now
            _log_unknown(event)
            self._effects.results.append(result or fail_open(event, "unknown", OUTCOME_UNKNOWN))

    def _warn_if_changed(self, event: Event, decided: Request | None) -> None:
        if not isinstance(decided, LLMRequest):
            return
        digest = decided.digest(self._with.handlers.offers.digest(decided.tools))
        if digest != event.data.get("digest"):
            _log.warning("run %r: %s renders differently now", event.run_id, decided.key)

    # -- effects ---------------------------------------------------------------------------

    def _start(self, events: Sequence[Event], requests: Sequence[Request]) -> None:
        decided = {request.key: request for request in requests}
        for event in events:
            if event.kind in k.REQUESTS and not event.data.get("unstarted"):
                self._spawn(event, decided[event.data["key"]])

    def _make_checked(self, events: Sequence[Event]) -> None:
        """Make the interrupted calls that did not happen, now that this is in the log."""
        for event in events:
            if event.kind == k.TOOL_CHECKED:
                request = self._ledger.state.open.get(event.data["key"])
                decided = self._interrupted.pop(event.data["key"], None)
                if request is not None:
                    self._spawn(request, decided)

    def _spawn(self, event: Event, decided: Request | None, *, interrupted: bool = False) -> None:
        handler = self._with.handlers.by_kind[event.kind]
        self._effects.begin(
            event, handler, lambda: self._context(event, decided, interrupted=interrupted)
        )

    def _context(self, event: Event, decided: Request | None, *, interrupted: bool) -> Context:
        trace = self._ledger.state.trace
        return Context(
            run_id=event.run_id,
            tenant=event.tenant,
            user=event.user,
            decided=decided,
            offers=self._with.handlers.offers,
            blobs=self._with.blobs,
            clock=self._with.clock,
            redacted=self._with.redacted,
            derived=self._derived,
            live=self._live(event.run_id),
            fresh=is_fresh(self._ledger.state),
            interrupted=interrupted,
            budget=self._ledger.state.budget,
            trace=None if trace is None else trace.below(_span_of(event)),
            deps=self._with.deps,
        )

    async def _wind_down(self) -> bool:
        """Stop what is under way in a run that is to end; tell whether that settled anything.

        The runs that it has started are asked to stop, and end by themselves.
        """
        await self._pass_on_cancel()
        if not self._ledger.state.cancelled:
            return False
        keys = [key for key, each in self._ledger.state.open.items() if each.kind not in k.DERIVING]
        await self._effects.drop(keys)
        results = (draft for draft in self._effects.results if draft.kind in k.RESULTS)
        settled = {draft.data["key"] for draft in results}
        for key in keys:
            if key not in settled:
                self._effects.results.append(
                    fail_open(self._ledger.state.open[key], "cancelled", CANCELLED)
                )
        return bool(keys)

    async def _pass_on_cancel(self) -> None:
        if self._ledger.state.cancelled:
            await self._derived.cancel(await self._sayable(self._ledger.state.cancel_reason or ""))
        elif self._ledger.state.poisoned:
            await self._derived.cancel(await self._sayable(FAILED))

    async def _sayable(self, reason: str) -> str:
        """Return the reason, or nothing if it cannot be redacted: children are stopped anyway."""
        try:
            await off_loop_if_large(self._with.redacted, k.CANCEL_REQUESTED, {"reason": reason})
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
    keys = sorted(key for key, said in state.approvals.items() if said == "pending")
    if keys:
        log_run(logging.INFO, state.run_id, "waits for a person to decide %s", ", ".join(keys))
    else:
        log_run(logging.DEBUG, state.run_id, "waits for a signal")


def _log_unknown(request: Event) -> None:
    if request.kind == k.TOOL_REQUESTED:
        what = "does not know what became of call %r of tool %r, which was under way"
        log_run(logging.WARNING, request.run_id, what, request.data["key"], request.data["name"])


async def _reckoned(requests: Iterable[Request]) -> None:
    """Hash what is to be sent; while that is much, others have their turns.

    They take real time, whatever clock the run goes by.
    """
    for request in requests:
        if isinstance(request, LLMRequest):
            while request.history.reckon(_HASHED_CHARS):
                await SYSTEM_CLOCK.sleep(_PAUSE_S)
