"""A session: a run that stays open and answers each message by a run of its own, in order.

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
"""The algorithm of every session; every engine has it."""


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """A message of a user whose turn has not begun."""

    key: str
    input: Sequence[Mapping[str, Any]]
    user: str | None = None
    client_tools: Sequence[Mapping[str, Any]] = ()


class KeySet:
    """An immutable set of texts; values with a common origin share their memory."""

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
    """The state of a session, folded from its log.

    Attributes:
        config: `algorithm`, by which its turns go on, and `turn_budget`, of each of them.
        seen: the keys of all messages, the oldest first.
        waiting: the turns that have not begun, the oldest first.
        answering: the key of the turn that is open.
        closing: True once it was closed; later messages are not answered.
    """

    config: Mapping[str, Any]
    seen: KeySet
    waiting: tuple[PendingTurn, ...] = ()
    answering: str | None = None
    closing: bool = False


class SessionLoop:
    """Answers messages in the order of the log until the session is closed."""

    name = SESSION

    def config(self) -> dict[str, Any]:
        """Return nothing: the start of a session carries its config."""
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> SessionState:
        """Return a session without messages."""
        config: dict[str, Any] = started.data.get("config", {})
        types = {"algorithm": str, "turn_budget": dict}
        own_config = {
            name: config[name] for name in types if isinstance(config.get(name), types[name])
        }
        return SessionState(config=own_config, seen=KeySet())

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
                    client_tools=turn.client_tools,
                )
            ]
        return Finish(outcome="COMPLETED") if state.closing else Wait()


def _queue_turn(state: SessionState, event: Event) -> SessionState:
    key = event.data["signal_id"]
    if state.closing or key in state.seen:
        return state
    data = event.data
    turn = PendingTurn(key, data.get("input", ()), event.user, data.get("client_tools", ()))
    return state._replace(seen=state.seen.add(key), waiting=(*state.waiting, turn))
