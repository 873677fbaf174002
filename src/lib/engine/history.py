"""The conversation before a turn: folded from the logs of the turns before it, never stored."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lib.engine.core.algorithm import Algorithm
from lib.engine.core.blind import BLIND
from lib.engine.core.history import Conversation
from lib.engine.core.session import Keys
from lib.engine.core.state import fold
from lib.engine.faults import is_fault
from lib.engine.requests import KeptRequests
from lib.errors import UnknownAlgorithm
from lib.events import Event, EventStore, RunQuery
from lib.events import kinds as k
from lib.events.payloads import fits, readable
from lib.events.store import erasures_of
from lib.llm import Message, message_from_json

_log = logging.getLogger("lib.engine")

KEPT: Final = 64
"""Of how many sessions the conversation is kept, so that the next turn reads the last one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was said in a session up to a point of its log.

    Attributes:
        conversation: the messages, without a system message; every call in them is answered.
        upto: the `seq` of the end of its last turn.
        turns: the runs whose logs it was folded from.
        whole: whether nothing has been erased of it since, and its algorithms could fold all of it.
        erasures: what the store told of its erasures when all these turns were last seen there.
    """

    conversation: Sequence[Message] = ()
    upto: int = 0
    turns: Keys = field(default_factory=Keys)
    whole: bool = True
    erasures: int | None = None


_NOTHING: Final = Past()


class Histories:
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
        self._kept: OrderedDict[str, Past] = OrderedDict()
        self.requests = KeptRequests(kept=kept)

    async def before(self, started: Event) -> Past:
        """Return what a run goes on with, given its first event: nothing, unless it is a turn.

        Raises:
            UnknownAlgorithm: a turn before it has an algorithm that is not here.
            StoreError: the logs cannot be read.
        """
        started = readable(started)
        upto, parent = started.data.get("upto"), started.data.get("parent")
        return await self.upto(parent["run_id"], upto) if upto and parent else _NOTHING

    async def upto(self, session_id: str, upto: int) -> Past:
        """Return what the turns have left which a session had completed up to this `seq`.

        Raises:
            UnknownAlgorithm: one of them has an algorithm that is not here.
            StoreError: the logs cannot be read.
        """
        past = await self._known(session_id)
        if past.upto > upto:
            past = Past(erasures=past.erasures)
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

    async def _known(self, session_id: str) -> Past:
        """Return what is kept of a session, unless some of it has been erased since.

        Its turns are looked for if the store has erased anything since, and always if the store
        does not tell: whoever looked at each turn would pay more the longer a session is.
        """
        past = self._kept.get(session_id, Past())
        erasures = await erasures_of(self._store)  # before anything is read that it speaks of
        if past.turns and (erasures is None or erasures != past.erasures):
            there = {info.run_id for info in await self._store.runs(RunQuery(parent_id=session_id))}
            if not there.issuperset(past.turns):
                self._kept.pop(session_id, None)
                past = Past()
        past = replace(past, erasures=erasures)
        if past.turns:
            self._keep(session_id, past)
        return past

    async def _with_turn(self, past: Past, run_id: str) -> Past:
        """Return the past with what a turn has left; nothing is left of one that was erased."""
        log = await self._store.read(run_id)
        if not log:
            return replace(past, whole=False)
        name = str(log[0].data.get("algorithm", ""))
        algorithm = self._algorithms.get(name)
        if algorithm is None:
            raise UnknownAlgorithm(name, known=tuple(self._algorithms))
        turns = past.turns if run_id in past.turns else past.turns.add(run_id)
        if "input" not in readable(log[0]).data:
            past = replace(past, whole=False)
        try:
            left = _left(algorithm, log, past.conversation)
            return replace(past, conversation=left, turns=turns)
        except Exception as error:
            if not is_fault(error):
                raise
            what = "run %r: %r cannot fold this turn: later ones know what was asked and answered"
            _log.warning(what, run_id, name, exc_info=error)
            left = _left(BLIND, log, past.conversation)
            return replace(past, conversation=left, turns=turns, whole=False)

    def _keep(self, session_id: str, past: Past) -> None:
        if past.upto >= self._kept.get(session_id, _NOTHING).upto:  # else it is an older turn
            self._kept[session_id] = past
            self._kept.move_to_end(session_id)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)


def _left(
    algorithm: Algorithm[Any], log: Sequence[Event], before: Sequence[Message]
) -> Sequence[Message]:
    """Return the conversation after a turn; where an algorithm tells none, what was said to it."""
    state, started = fold(algorithm, log, before), log[0]
    conversation = getattr(algorithm, "conversation", None)
    if conversation is not None:
        return conversation(state.loop)
    given = readable(started).data.get("input", ())
    said = [message_from_json(message) for message in given]
    answer = (state.finish or {}).get("output")
    new = [*said, *([Message.assistant(answer)] if answer else ())]
    return (before if isinstance(before, Conversation) else Conversation(before)).extend(new)
