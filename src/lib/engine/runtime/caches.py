"""Folds of logs that an engine keeps: conversations, requested turns and states of sessions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from lib._util.json import canonical, digest
from lib.engine.core.algorithm import NULL_ALGORITHM, Algorithm, Request
from lib.engine.core.conversation import Conversation
from lib.engine.core.decide import Rehydration, is_run_error
from lib.engine.core.session import SESSION, KeySet
from lib.engine.core.state import RunState, begin, fold
from lib.errors import UnknownAlgorithm
from lib.events import Event, EventStore, RunQuery
from lib.events import kinds as k
from lib.events.paging import log_pages
from lib.events.payloads import fits, readable
from lib.events.store import erasures_of
from lib.llm import Message, message_from_json

_log = logging.getLogger("lib.engine")

KEPT: Final = 64
"""Of how many sessions the conversation is kept, so that the next turn reads the last one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTurns:
    """The conversation of a session up to a point of its log.

    Attributes:
        conversation: the messages, without a system message; every call in them is answered.
        upto: the `seq` of the end of its last turn.
        turns: the runs whose logs it was folded from.
        whole: True if nothing of it was erased since, and its algorithms could fold all of it.
        erasures: the erasure count of the store when all these turns were last seen there.
    """

    conversation: Sequence[Message] = ()
    upto: int = 0
    turns: KeySet = field(default_factory=KeySet)
    whole: bool = True
    erasures: int | None = None


_NOTHING: Final = EarlierTurns()


class ConversationCache:
    """Reads what turns go on with; the conversations used last are kept.

    A turn that is erased, by whatever process, is in nothing that is read from then on. Until its
    session is read again, or others take its place, it stays in the memory of processes that have
    read it.

    Attributes:
        requests: the turns that were requested of those sessions.
    """

    def __init__(
        self, store: EventStore, algorithms: Mapping[str, Algorithm[Any]], *, kept: int = KEPT
    ) -> None:
        """Take the logs, and the algorithms that their runs are folded by."""
        self._store = store
        self._algorithms = algorithms
        self._limit = kept
        self._kept: OrderedDict[str, EarlierTurns] = OrderedDict()
        self.requests: TurnRequestCache = TurnRequestCache(kept=kept)

    async def before(self, started: Event) -> EarlierTurns:
        """Return the conversation before a run, from its first event: empty, unless it is a turn.

        Raises:
            UnknownAlgorithm: a turn before it has an algorithm that is not here.
            StoreError: the logs cannot be read.
        """
        started = readable(started)
        upto, parent = started.data.get("upto"), started.data.get("parent")
        return await self.upto(parent["run_id"], upto) if upto and parent else _NOTHING

    async def upto(self, session_id: str, upto: int) -> EarlierTurns:
        """Return what the turns have left which a session had completed up to this `seq`.

        Raises:
            UnknownAlgorithm: one of them has an algorithm that is not here.
            StoreError: the logs cannot be read.
        """
        past = await self._cached(session_id)
        if past.upto > upto:
            past = EarlierTurns(erasures=past.erasures)
        missing = upto - past.upto
        if not missing:
            return past
        events = await self._store.read(session_id, after=past.upto, limit=missing)
        for event in events:
            if event.kind == k.TURN_COMPLETED and fits(event.kind, event.data):
                past = await self._with_turn(past, event.data["run_id"])
                past = replace(past, upto=event.seq)
        self._keep(session_id, past)
        return past if len(events) == missing else replace(past, whole=False)

    async def _cached(self, session_id: str) -> EarlierTurns:
        """Return what is kept of a session, unless some of it has been erased since.

        Its turns are looked for if the store has erased anything since, and always if the store
        does not count them: a look at each turn would cost more the longer a session is.
        """
        past = self._kept.get(session_id, EarlierTurns())
        erasures = await erasures_of(self._store)  # before anything is read that it speaks of
        if past.turns and (erasures is None or erasures != past.erasures):
            there = {info.run_id for info in await self._store.runs(RunQuery(parent_id=session_id))}
            if not there.issuperset(past.turns):
                self._kept.pop(session_id, None)
                past = EarlierTurns()
        past = replace(past, erasures=erasures)
        if past.turns:
            self._keep(session_id, past)
        return past

    async def _with_turn(self, past: EarlierTurns, run_id: str) -> EarlierTurns:
        """Return the past with what a turn has left; nothing is left of one that was erased."""
        log = await self._store.read(run_id)
        if not log:
            return replace(past, whole=False)
        name = str(log[0].data.get("algorithm", ""))
        algorithm = self._algorithms.get(name)
        if algorithm is None:
            raise UnknownAlgorithm(name, available=tuple(self._algorithms))
        turns = past.turns if run_id in past.turns else past.turns.add(run_id)
        if "input" not in readable(log[0]).data:
            past = replace(past, whole=False)
        try:
            left = _conversation_after(algorithm, log, past.conversation)
            return replace(past, conversation=left, turns=turns)
        except Exception as error:
            if not is_run_error(error):
                raise
            what = "run %r: %r cannot fold this turn: later ones get its input and its answer only"
            _log.warning(what, run_id, name, exc_info=error)
            left = _conversation_after(NULL_ALGORITHM, log, past.conversation)
            return replace(past, conversation=left, turns=turns, whole=False)

    def _keep(self, session_id: str, past: EarlierTurns) -> None:
        if past.upto >= self._kept.get(session_id, _NOTHING).upto:  # else it is an older turn
            self._kept[session_id] = past
            self._kept.move_to_end(session_id)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)


def _conversation_after(
    algorithm: Algorithm[Any], log: Sequence[Event], before: Sequence[Message]
) -> Sequence[Message]:
    """Return the conversation after a turn; of an algorithm without one, its input and answer."""
    state, started = fold(algorithm, log, before), log[0]
    conversation = getattr(algorithm, "conversation", None)
    if conversation is not None:
        return conversation(state.loop)
    inputs = readable(started).data.get("input", ())
    messages = [message_from_json(message) for message in inputs]
    answer = (state.finish or {}).get("output")
    new = [*messages, *([Message.assistant(answer)] if answer else ())]
    return (before if isinstance(before, Conversation) else Conversation(before)).extend(new)


def request_digest(data: Mapping[str, Any]) -> str:
    """Return a digest of what was sent, from the payload of `lib.turn.requested`."""
    return digest(canonical(data.get("input", ())))


class TurnRequests:
    """The turns requested of one session, folded from its log.

    Attributes:
        seen: the `seq` of the last event that was read, 0 where there is no such session.
        tenant: the tenant of the session.
        turns: by the key of each turn, the `seq` of its request and a digest of its input.
        closed: how the session has ended or is about to end, None while it takes turns.
    """

    def __init__(self) -> None:
        """Begin before the first event."""
        self.seen: int = 0
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


class TurnRequestCache:
    """The requests of the sessions that were used last, shared by all handles of an engine.

    They hold digests of messages, no text. Those of an erased session are gone when
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


PAGE: Final = 500
"""How many events are read at once: each page is folded, and forgotten, before the next."""


class StateCache:
    """Folds logs into states for drivers.

    A session is taken up for each of its turns. So the states of those used last are kept while
    they are idle, and only what is new is read: a late turn costs what an early one did. Such a
    state holds no message.
    """

    def __init__(
        self,
        store: EventStore,
        conversations: ConversationCache,
        *,
        kept: int = KEPT,
        page: int = PAGE,
    ) -> None:
        """Take the logs, and what turns go on with.

        Args:
            store: the logs.
            conversations: of earlier turns.
            kept: how many states of idle sessions to keep.
            page: how many events to read at once.
        """
        self._store, self._page = store, page
        self._histories = conversations
        self._limit = kept
        self._kept: OrderedDict[str, RunState[Any]] = OrderedDict()

    async def read(
        self, run_id: str, algorithm: Algorithm[Any], log: Sequence[Event] = ()
    ) -> tuple[RunState[Any], dict[str, Request]] | None:
        """Return the state of a run and its open requests as they were decided, by key.

        Args:
            run_id: the run; None is returned where there is no such run (any more).
            algorithm: how it goes on.
            log: its events, if they are at hand.

        Raises:
            UnknownAlgorithm: it is a turn after others whose algorithm is not here.
            StoreError: the logs cannot be read.
        """
        kept = self._kept.pop(run_id, None)
        if kept is not None:
            tail = await self._store.read(run_id, after=kept.head - 1)
            if tail and _ends_with(kept, tail[0]):
                rehydration = Rehydration(algorithm, kept)
                rehydration.extend(tail[1:])
                return rehydration.state, rehydration.decided()
        page = log or await self._store.read(run_id, limit=self._page)
        if not page:
            return None
        past = await self._histories.before(page[0])
        rehydration = Rehydration(algorithm, begin(algorithm, page[0], past.conversation))
        rehydration.extend(page[1:])
        if not log and len(page) == self._page:
            after = page[-1].seq
            async for page in log_pages(self._store, run_id, after=after, page=self._page):
                rehydration.extend(_draining(page))
        return rehydration.state, rehydration.decided()

    def keep(self, algorithm: Algorithm[Any], state: RunState[Any]) -> None:
        """Keep the state of a run that is driven no longer, if it is an idle session."""
        if algorithm.name == SESSION and state.outcome is None and not state.open:
            self._kept[state.run_id] = state
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)


def _draining(page: list[Event]) -> Iterator[Event]:
    """Yield the events, and forget each: garbage is not collected where none gathers."""
    page.reverse()
    while page:
        yield page.pop()


def _ends_with(state: RunState[Any], last: Event) -> bool:
    """Return True if the state was folded up to this event."""
    return last.seq == state.head and (k.is_signal(last.kind) or last.at == state.at)
