"""The log of a run in the process that drives it: folded, and appended to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lib._util.json import canonical
from lib.engine.core.algorithm import Algorithm
from lib.engine.core.settle import PendingEvent
from lib.engine.core.state import RunState, evolve
from lib.engine.handlers.attachments import appended
from lib.engine.runtime.lease import LeaseKeeper
from lib.engine.runtime.services import Services
from lib.errors import Conflict, RedactionFailed, RunAbandoned, RunNotFound
from lib.events import Event, NewEvent
from lib.events import kinds as k
from lib.privacy.redactor import NOTHING_REDACTED, blanked, off_loop_if_large

ERASED = "it has been erased"


class RunLog:
    """Appends to the log of one run, and folds what others append to it.

    Attributes:
        state: the fold of all events that are certainly in the log.
        algorithm: what it is folded by.
    """

    state: RunState[Any]

    def __init__(
        self,
        services: Services,
        algorithm: Algorithm[Any],
        keeper: LeaseKeeper,
        wake: Callable[[], None],
    ) -> None:
        """Begin without a state, which the driver reads.

        Args:
            services: parts of the engine that drivers share.
            algorithm: see above.
            keeper: the lease; store calls are retried until it expires.
            wake: is called when the log may have new events.
        """
        self.algorithm = algorithm
        self._keeper = keeper
        self._wake = wake
        self._store, self._blobs = services.store, services.blobs
        self._clock, self._redact = services.clock, services.redacted

    async def to_events(self, pending_events: Sequence[PendingEvent], head: int) -> list[Event]:
        """Return drafts as events after this one, redacted; large ones in a thread.

        Intents get the epoch of the lease under which they are written.

        Raises:
            RedactionFailed: the redactor raised; nothing is to be written.
        """
        if not pending_events:
            return []
        state, at = self.state, self._clock.now()
        payloads = [(pending.kind, await self._payload(pending)) for pending in pending_events]
        return [
            Event(state.run_id, seq, kind, data, at, state.tenant, state.user)
            for seq, (kind, data) in enumerate(payloads, head + 1)
        ]

    async def _payload(self, pending: PendingEvent) -> dict[str, Any]:
        data = pending.data
        if self._redact is not NOTHING_REDACTED:
            data = await self._redacted(pending)
        return data | {"epoch": self._keeper.lease.epoch} if pending.kind in k.REQUESTS else data

    async def _redacted(self, pending: PendingEvent) -> dict[str, Any]:
        try:
            return await off_loop_if_large(self._redact, pending.kind, pending.data)
        except RedactionFailed:
            if not self.state.poisoned:
                raise
            return blanked(pending.kind, pending.data)

    async def append(self, events: Sequence[Event]) -> bool:
        """Append the events; False if signals came first, which are folded instead.

        While the store fails, it is tried again for as long as the lease lasts.

        Raises:
            RunAbandoned: another worker has taken over, or the run has been erased.
        """
        run_id, head = self.state.run_id, self.state.head
        new = [NewEvent(event.kind, event.data, event.at, None, event.user) for event in events]
        try:
            await self._keeper.retry_while_held(
                lambda: self._store.append(run_id, new, expected=head)
            )
        except Conflict as error:
            if not await self._were_stored(events):
                if self.state.head == head:  # nothing has come: the log is not what it was
                    raise RunAbandoned(run_id, "its log has been replaced") from error
                return False
        except RunNotFound as error:
            raise RunAbandoned(run_id, ERASED) from error
        await appended(self._blobs, events)
        return True

    async def _were_stored(self, events: Sequence[Event]) -> bool:
        """Return True if these events, whose append lost its answer, are in the log.

        If not, the signals that are there instead are folded.

        Another worker's intents have another epoch, unless the store has lost this worker's claim
        (a server that failed over) and has counted the other's claim the same. Then the store
        knows only the other's lease: the intents are the other's, and so are their effects.

        Raises:
            RunAbandoned: another worker has taken over.
        """
        tail = await self._tail()
        if not _starts_with(tail, events):
            self._fold_signals(tail)
            return False
        self._require_signals(tail[len(events) :])
        if events[-1].kind != k.RUN_COMPLETED:  # nothing follows the end, and it ends the lease
            await self._keeper.retry_while_held(self._keeper.renew)
        self._wake()  # to read on
        return True

    def fold(self, state: RunState[Any], events: Sequence[Event]) -> RunState[Any]:
        """Return the state after more events."""
        for event in events:
            state = evolve(self.algorithm, state, event)
        return state

    async def read_tail(self) -> None:
        """Fold the signals that others have appended.

        Raises:
            RunAbandoned: another worker has taken over.
        """
        self._fold_signals(await self._tail())

    async def _tail(self) -> Sequence[Event]:
        run_id, head = self.state.run_id, self.state.head
        return await self._keeper.retry_while_held(lambda: self._store.read(run_id, after=head))

    def _fold_signals(self, tail: Sequence[Event]) -> None:
        self._require_signals(tail)
        self.state = self.fold(self.state, tail)

    def _require_signals(self, tail: Sequence[Event]) -> None:
        if any(not k.is_signal(event.kind) for event in tail):
            raise RunAbandoned(self.state.run_id, "another worker has taken it over")


def _starts_with(tail: Sequence[Event], events: Sequence[Event]) -> bool:
    """Return True if a log continues with these events; intents of another epoch differ.

    Times are not compared: the clocks of two workers may agree.
    """
    return len(tail) >= len(events) and all(
        stored.kind == event.kind and canonical(stored.data) == canonical(event.data)
        for stored, event in zip(tail, events, strict=False)
    )
