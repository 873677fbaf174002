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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lib._util.clock import Clock
from lib.engine.admission import Handlers
from lib.engine.attachments import HeldBlobs, appended
from lib.engine.bearing import borne
from lib.engine.core.algorithm import Algorithm, LLMRequest, Request
from lib.engine.core.decide import Step, next_step
from lib.engine.core.settle import OUTCOME_UNKNOWN, Draft, fail_open, finished
from lib.engine.core.state import RunState, evolve
from lib.engine.derived import Nursery, StartedRuns
from lib.engine.effects import Effects
from lib.engine.handler import Context, Live
from lib.engine.held import HeldLease
from lib.engine.outage import begins_with
from lib.engine.redaction import Redaction
from lib.engine.states import States
from lib.errors import (
    Conflict,
    MissingHandler,
    RedactionFailed,
    RunAbandoned,
    RunNotFound,
)
from lib.events import Event, EventStore, Lease, NewEvent
from lib.events import kinds as k
from lib.events.wakeups import Listener

_log = logging.getLogger(__name__)

CANCELLED = "the run was cancelled while this call ran; it may or may not have had its effect"
ERASED = "it has been erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What an engine lends to the drivers of its runs."""

    store: EventStore
    states: States
    handlers: Handlers
    engine: Nursery
    blobs: HeldBlobs | None
    redacted: Redaction
    clock: Clock
    worker: str
    lease_s: float
    grace_s: float


class Driver:
    """One run in the hands of this process."""

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
        self._algorithm = algorithm
        self._held = HeldLease(
            equipment.store,
            lease,
            clock=equipment.clock,
            lease_s=equipment.lease_s,
            grace_s=equipment.grace_s,
        )
        self._live = live
        self._log = log
        self._effects = Effects(self._held, grace_s=equipment.grace_s, woken=self._woken)
        self._wake: Listener | None = None
        self._stopping = False

    async def drive(self) -> RunState[Any]:
        """Drive the run until it ends or waits for somebody; return its state then.

        Raises:
            RunAbandoned: another worker has taken over, or `stop` was called.
            MissingHandler: the run asks for what no handler of the engine fulfils.
        """
        idle_at: int | None = None
        with self._with.store.wakeups.listen(self._held.lease.run_id, signals_only=True) as wake:
            self._wake = wake
            self._held.keep(self._effects.ended)
            try:
                await self._take()
                await self._loop(wake)
                idle_at = self._state.head
            except asyncio.CancelledError:
                self._held.hurry()
                raise
            finally:
                await self._effects.drop()  # under the lease, as long as it takes
                await self._save_results()
                self._held.stop()
                await self._give_back(idle_at)
            return self._state

    def stop(self) -> None:
        """Let `drive` end soon, leaving the run to whoever resumes it."""
        self._stopping = True
        self._held.hurry()
        self._woken()

    async def _give_back(self, idle_at: int | None) -> None:
        store, lease = self._with.store, self._held.lease
        with borne(lease, "its lease was not given back"):
            await self._held.outlast(lambda: store.release(lease, idle_at=idle_at))

    # -- the loop --------------------------------------------------------------------------

    async def _loop(self, wake: Listener) -> None:
        while True:
            await self._advance()
            if self._state.outcome is not None:
                return
            if await self._wind_down():
                continue
            if not self._effects.under_way:
                return  # it waits for a person, and nothing is held meanwhile
            self._check()
            await wake.wait()
            self._check()
            if not self._effects.results:
                await self._read_tail()

    def _check(self) -> None:
        if self._effects.broken is not None:
            raise self._effects.broken
        if self._stopping:
            raise RunAbandoned(self._held.lease.run_id, "the engine is closing")

    async def _advance(self) -> None:
        """Append what has happened and what follows from it, until nothing more follows."""
        while True:
            results = list(self._effects.results)
            events = self._numbered(results, self._state.head)
            probe = self._fold(self._state, events)
            step = next_step(self._algorithm, probe)
            follow_up = self._numbered(self._drafts(step, probe), probe.head)
            if not events and not follow_up:
                return
            if step.requests:
                await self._before_intents()
            if await self._append(events + follow_up):
                del self._effects.results[: len(results)]
                self._state = self._fold(probe, follow_up)
                self._start(follow_up, step.requests)

    async def _before_intents(self) -> None:
        """Make sure that what is about to be intended may also be begun."""
        self._check()
        if not self._held.lasts:
            await self._held.renew()

    async def _save_results(self) -> None:
        """Append what has happened and was not appended yet; nothing is decided on it here."""
        # Somebody has taken over, or there is no redacting: that has been told.
        with (
            suppress(RunAbandoned, RedactionFailed),
            borne(self._held.lease, "results may be lost"),
        ):
            while self._effects.results:
                if await self._append(self._numbered(self._effects.results, self._state.head)):
                    self._effects.results.clear()

    def _drafts(self, step: Step, probe: RunState[Any]) -> list[Draft]:
        """Return the step as events to be: facts, intents, and the end."""
        drafts = list(step.settled)
        if step.requests:
            drafts += self._with.handlers.admit(step.requests, probe)
        if step.finish is not None:
            drafts.append(finished(step.finish))
        return drafts

    def _numbered(self, drafts: Sequence[Draft], head: int) -> list[Event]:
        if not drafts:
            return []
        state, at, redacted = self._state, self._with.clock.now(), self._with.redacted
        told = [(draft.kind, redacted(draft.kind, draft.data)) for draft in drafts]
        return [
            Event(state.run_id, seq, kind, data, at, state.tenant, state.user)
            for seq, (kind, data) in enumerate(told, head + 1)
        ]

    # -- the log ---------------------------------------------------------------------------

    async def _append(self, events: Sequence[Event]) -> bool:
        """Append the events; False if signals came first, which are folded instead.

        While the store fails, it is tried again for as long as the lease lasts.

        Raises:
            RunAbandoned: another worker has taken over, or the run has been erased.
        """
        run_id, head = self._state.run_id, self._state.head
        new = [NewEvent(event.kind, event.data, event.at, None, event.user) for event in events]
        try:
            await self._held.outlast(lambda: self._with.store.append(run_id, new, expected=head))
        except Conflict as error:
            if not await self._were_stored(events):
                if self._state.head == head:  # nothing has come: the log is not what it was
                    raise RunAbandoned(run_id, "its log has been replaced") from error
                return False
        except RunNotFound as error:
            raise RunAbandoned(run_id, ERASED) from error
        await appended(self._with.blobs, events)
        return True

    async def _were_stored(self, events: Sequence[Event]) -> bool:
        """Tell whether these events, whose append lost its answer, are in the log.

        If not, the signals that are there instead are folded.
        """
        tail = await self._tail()
        if not begins_with(tail, events):
            self._fold_signals(tail)
            return False
        self._only_signals(tail[len(events) :])
        self._woken()  # to read on
        return True

    def _fold(self, state: RunState[Any], events: Sequence[Event]) -> RunState[Any]:
        for event in events:
            state = evolve(self._algorithm, state, event)
        return state

    async def _read_tail(self) -> None:
        """Fold the signals that others have appended.

        Raises:
            RunAbandoned: another worker has taken over.
        """
        self._fold_signals(await self._tail())

    async def _tail(self) -> Sequence[Event]:
        run_id, head = self._state.run_id, self._state.head
        return await self._held.outlast(lambda: self._with.store.read(run_id, after=head))

    def _fold_signals(self, tail: Sequence[Event]) -> None:
        self._only_signals(tail)
        self._state = self._fold(self._state, tail)

    def _only_signals(self, tail: Sequence[Event]) -> None:
        if any(not k.is_signal(event.kind) for event in tail):
            raise RunAbandoned(self._state.run_id, "another worker has taken it over")

    async def _take(self) -> None:
        """Read and fold the run; if somebody has been interrupted in it, take it over."""
        found = await self._with.states.read(self._held.lease.run_id, self._algorithm, self._log)
        if found is None:
            raise RunAbandoned(self._held.lease.run_id, ERASED)
        self._state, decided = found
        self._derived = StartedRuns(self._with.engine, self._state.root_id)
        if self._state.outcome is not None:
            return
        while self._held.lease.takeover or self._state.open:
            resumed = Draft(
                k.RUN_RESUMED, {"worker": self._held.lease.owner, "epoch": self._held.lease.epoch}
            )
            events = self._numbered([resumed], self._state.head)
            if await self._append(events):
                self._state = self._fold(self._state, events)
                break
        await self._pass_on_cancel()
        for event in list(self._state.open.values()):
            if event.kind in k.DERIVING or not self._state.poisoned:
                self._recover(event, decided.get(event.data["key"]))

    def _recover(self, event: Event, decided: Request | None) -> None:
        """Carry an interrupted request out again, or settle it."""
        handler = self._with.handlers.by_kind.get(event.kind)
        if handler is None:
            raise MissingHandler(self._state.run_id, event.kind)
        result = handler.recover(event)
        if result is None and (decided is not None or event.kind in k.DERIVING):
            self._warn_if_changed(event, decided)
            self._spawn(event, decided)
        else:  # settled; if by us, the algorithm is another one by now
            self._effects.results.append(result or fail_open(event, "unknown", OUTCOME_UNKNOWN))

    def _warn_if_changed(self, event: Event, decided: Request | None) -> None:
        if not isinstance(decided, LLMRequest):
            return
        if decided.digest(self._with.handlers.offers.digest(decided.tools)) != event.data["digest"]:
            _log.warning("run %r: %s renders differently now", event.run_id, decided.key)

    # -- effects ---------------------------------------------------------------------------

    def _start(self, events: Sequence[Event], requests: Sequence[Request]) -> None:
        decided = {request.key: request for request in requests}
        for event in events:
            if event.kind in k.REQUESTS and not event.data.get("unstarted"):
                self._spawn(event, decided[event.data["key"]])

    def _spawn(self, event: Event, decided: Request | None) -> None:
        handler = self._with.handlers.by_kind[event.kind]
        self._effects.begin(event, handler, lambda: self._context(event, decided))

    def _context(self, event: Event, decided: Request | None) -> Context:
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
        )

    def _woken(self) -> None:
        if self._wake is not None:
            self._wake.wake()

    async def _wind_down(self) -> bool:
        """Stop what is under way in a run that is to end; tell whether that settled anything.

        The runs that it has started are asked to stop, and end by themselves.
        """
        await self._pass_on_cancel()
        if not self._state.cancelled:
            return False
        keys = [key for key, each in self._state.open.items() if each.kind not in k.DERIVING]
        await self._effects.drop(keys)
        settled = {draft.data["key"] for draft in self._effects.results if "key" in draft.data}
        for key in keys:
            if key not in settled:
                self._effects.results.append(
                    fail_open(self._state.open[key], "cancelled", CANCELLED)
                )
        return bool(keys)

    async def _pass_on_cancel(self) -> None:
        if self._state.cancelled:
            await self._derived.cancel(self._state.cancel_reason or "")
        elif self._state.poisoned:
            await self._derived.cancel("the run that asked for this one has failed")
