"""The turns that were requested of a session: folded from its log once in an engine, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lib._util.json import canonical, digest
from lib.engine.core.session import SESSION
from lib.events import Event, EventStore
from lib.events import kinds as k
from lib.events.payloads import fits


def request_digest(data: Mapping[str, Any]) -> str:
    """Return a digest of what was sent, from the payload of `lib.turn.requested`."""
    return digest(canonical(data.get("input", ())))


class TurnRequests:
    """What the log of one session says to those who send to it.

    Attributes:
        seen: the `seq` of the last event that was read, 0 where there is no such session.
        tenant: the tenant of the session.
        turns: by the key of each turn, the `seq` of its request and a digest of its input.
        closed: how the session has ended or is about to end, None while it takes turns.
    """

    def __init__(self) -> None:
        """Begin before the first event."""
        self.seen = 0
        self.tenant: str | None = None
        self.turns: dict[str, tuple[int, str]] = {}
        self.closed: str | None = None
        self._last_at: datetime | None = None

    async def catch_up(self, store: EventStore, session_id: str) -> bool:
        """Read the new events; return False where the log is not the one that was read before.

        Raises:
            ValueError: the run is no session.
        """
        last = (self.seen, self._last_at)
        events = await store.read(session_id, after=max(self.seen - 1, 0))
        if last[0] and (not events or (events[0].seq, events[0].at) != last):
            return False
        for event in events:
            if event.seq > self.seen:  # another handle may have read it meanwhile
                if fits(event.kind, event.data):
                    self._read(event)
                self.seen, self.tenant, self._last_at = event.seq, event.tenant, event.at
        return True

    def _read(self, event: Event) -> None:
        match event.kind:
            case k.RUN_STARTED if event.data.get("algorithm") != SESSION:
                raise ValueError(f"run {event.run_id!r} is no session")
            case k.TURN_REQUESTED if self.closed is None:
                key = event.data["signal_id"]
                self.turns.setdefault(key, (event.seq, request_digest(event.data)))
            case k.CLOSE_REQUESTED:
                self.closed = self.closed or "COMPLETED"
            case k.RUN_COMPLETED:
                self.closed = event.data["outcome"]
            case _:
                pass


class KeptRequests:
    """The requests of the sessions that were used last, shared by all handles of an engine.

    Nothing that was said is in them, but digests of it. Those of an erased session are gone when
    one of its handles is used again, or when others take their place.
    """

    def __init__(self, *, kept: int) -> None:
        """Keep nothing yet."""
        self._limit = kept
        self._kept: OrderedDict[str, TurnRequests] = OrderedDict()

    def of(self, session_id: str) -> TurnRequests:
        """Return what is kept of a session, or else what begins before its first event."""
        return self._kept.get(session_id) or TurnRequests()

    def keep(self, session_id: str, requests: TurnRequests) -> None:
        """Keep the requests of a session that is there."""
        self._kept[session_id] = requests
        self._kept.move_to_end(session_id)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Keep nothing of a session."""
        self._kept.pop(session_id, None)
