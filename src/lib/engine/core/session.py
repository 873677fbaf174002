"""A session: a run that stays open and has other runs answer what people say to it, one by one.

The log is the queue. Turns are answered in the order in which they stand there, each by a run of
its own that goes on with the conversation of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from lib.engine.core.algorithm import Finish, Request, TurnRequest, Wait
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Message

SESSION: Final = "session"
"""The algorithm of every session; an engine has it without being told."""


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """What somebody has said, and nobody has begun to answer."""

    key: str
    input: Sequence[Mapping[str, Any]]
    user: str | None = None


class KeySet:
    """An immutable set of texts; values that grew from one another share their memory."""

    __slots__ = ("_places", "_size")

    def __init__(self) -> None:
        """Make an empty set."""
        self._places: dict[str, int] = {}
        self._size = 0

    def add(self, key: str) -> KeySet:
        """Return this set with one more, which is not in it."""
        # The dictionary belongs to the largest value; a second branch copies what it shares.
        own = len(self._places) == self._size
        grown = KeySet()
        grown._places = self._places if own else {each: self._places[each] for each in self}
        grown._places[key] = self._size
        grown._size = self._size + 1
        return grown

    def __contains__(self, key: str) -> bool:
        return self._places.get(key, self._size) < self._size

    def __iter__(self) -> Iterator[str]:
        return islice(self._places, self._size)

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySet) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


class SessionState(NamedTuple):
    """A session as its log tells it.

    Attributes:
        config: `algorithm`, by which its turns go on, and `turn_budget`, of each of them.
        seen: the keys of all that was ever said, the oldest first.
        waiting: what has been said and nobody answers yet, the oldest first.
        answering: the key of the turn that is open.
        closing: whether somebody has asked to end it; what is said later is not answered.
    """

    config: Mapping[str, Any]
    seen: KeySet
    waiting: tuple[PendingTurn, ...] = ()
    answering: str | None = None
    closing: bool = False


class SessionLoop:
    """Answers what people say, in the order of the log, until somebody closes the session."""

    name = SESSION

    def config(self) -> dict[str, Any]:
        """Return nothing: who opens a session says what it is to remember."""
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> SessionState:
        """Return a session in which nothing was said."""
        config: dict[str, Any] = started.data.get("config", {})
        types = {"algorithm": str, "turn_budget": dict}
        known = {name: config[name] for name in types if isinstance(config.get(name), types[name])}
        return SessionState(config=known, seen=KeySet())

    def evolve(self, state: SessionState, event: Event) -> SessionState:
        """Return the state after one more event."""
        match event.kind:
            case k.TURN_REQUESTED:
                return _queue_turn(state, event)
            case k.TURN_STARTED:
                key = event.data["key"]
                waiting = tuple(turn for turn in state.waiting if turn.key != key)
                return state._replace(waiting=waiting, answering=key)
            case k.TURN_COMPLETED:
                return state._replace(answering=None)
            case k.CANCEL_REQUESTED:  # of a turn that has not begun, or of something else
                key = event.data.get("key")
                waiting = tuple(turn for turn in state.waiting if turn.key != key)
                return state._replace(waiting=waiting)
            case k.CLOSE_REQUESTED:
                return state._replace(closing=True)
            case _:
                return state

    def decide(self, state: SessionState) -> Sequence[Request] | Finish | Wait:
        """Return the next turn, or the end, or that there is nothing to answer."""
        if state.answering is not None:
            return Wait()
        if state.waiting:
            turn = state.waiting[0]
            return [
                TurnRequest(
                    key=turn.key,
                    algorithm=state.config.get("algorithm", ""),
                    input=turn.input,
                    user=turn.user,
                    budget=state.config.get("turn_budget"),
                )
            ]
        return Finish(outcome="COMPLETED") if state.closing else Wait()


def _queue_turn(state: SessionState, event: Event) -> SessionState:
    key = event.data["signal_id"]
    if state.closing or key in state.seen:
        return state
    turn = PendingTurn(key, event.data.get("input", ()), event.user)
    return state._replace(seen=state.seen.add(key), waiting=(*state.waiting, turn))
