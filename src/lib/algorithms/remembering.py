"""An algorithm with a memory: recalls before another one begins, and remembers when it is done.

What was recalled is in the log and goes into the conversation before the new input, as data with
dates. It stays there for the turns after it, so that a prefix that a provider has cached is not
rewritten, and a fact that stands in the conversation is not shown again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from lib._util.json import digest
from lib.content.hygiene import fenced
from lib.engine.core.algorithm import RECALL, REMEMBER, Algorithm, Decision, Finish, MemoryRequest
from lib.engine.core.conversation import is_recalled, recalled_message
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Message, message_from_json, message_to_json
from lib.memory.tools import CHANGING_TOOLS

_RECALL_KEY: Final = "memory/recall"
_REMEMBER_KEY: Final = "memory/remember"
_PREFACE: Final = (
    "Facts about the user from earlier conversations, each with the time at which it was said; of "
    "two that contradict each other, the later one is true.\n"
)
_NO_RULES: Final[Mapping[str, Any]] = MappingProxyType({})


class RememberingState(NamedTuple):
    """The state of a run with a memory.

    Attributes:
        inner: the state of the algorithm that has it.
        started: the start of the run.
        history: the conversation that the run goes on with.
        texts: the new words of the user, which may be remembered; none in the run of an agent that
            another one has called, whose input is the words of a model.
        query: what to recall for, "" for nothing.
        recalled: True once it was recalled, or nothing is.
        events: what has changed that state before.
        remembered: True once it was remembered, or nothing is.
    """

    inner: Any
    started: Event
    history: Sequence[Message]
    texts: tuple[str, ...] = ()
    query: str = ""
    recalled: bool = True
    events: tuple[Event, ...] = ()
    remembered: bool = True


class Remembering:
    """Gives an algorithm a memory; `Agent(…, memory=…)` does that with its own."""

    def __init__(self, inner: Algorithm[Any], memory: Mapping[str, bool] = _NO_RULES) -> None:
        """Take them.

        Args:
            inner: decides everything else.
            memory: see `lib.memory.Memory.config`; a `MemoryHandler` has the memory itself.
        """
        self._inner = inner
        self._memory = dict(memory)
        self.name: str = inner.name

    @property
    def tool_names(self) -> Sequence[str] | None:
        """The names of the tools on offer; see `React`."""
        return getattr(self._inner, "tool_names", None)

    def config(self) -> dict[str, Any]:
        """Return what a run must remember of both."""
        return {**self._inner.config(), "memory": self._memory}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> RememberingState:
        """Return the state that the run begins with, from the config recorded in it."""
        state = RememberingState(_begin(self._inner, started, history), started, history)
        rules = _rules(started)
        if not rules or (started.user is None and not rules.get("shared")):
            return state
        texts = _new_texts(started)
        if not texts:
            return state
        learns = bool(rules.get("learns")) and _is_of_user(started)
        return state._replace(
            texts=texts, query="\n".join(texts), recalled=False, remembered=not learns
        )

    @property
    def conversation(self) -> Callable[[RememberingState], Any]:
        """Returns what the next turn of a session goes on with, if the other algorithm does.

        Raises:
            AttributeError: it does not.
        """
        conversation = cast("Any", self._inner).conversation
        return lambda state: conversation(state.inner)

    def evolve(self, state: RememberingState, event: Event) -> RememberingState:
        """Return the state after one more event."""
        before, inner = state.inner, self._inner.evolve(state.inner, event)
        state = state._replace(inner=inner)
        if not state.recalled and inner != before:
            state = state._replace(events=(*state.events, event))
        if event.kind in (k.MEMORY_COMPLETED, k.MEMORY_FAILED):
            return self._settled(state, event)
        if event.kind == k.GUARD_VERDICT and _refuses_input(event):
            return state._replace(remembered=True)
        if event.kind == k.TOOL_REQUESTED and event.data.get("name") in CHANGING_TOOLS:
            return state._replace(remembered=True)
        return state

    def _settled(self, state: RememberingState, event: Event) -> RememberingState:
        key = event.data.get("key")
        if key == _REMEMBER_KEY:
            return state._replace(remembered=True)
        if key != _RECALL_KEY or state.recalled:
            return state
        events, state = state.events, state._replace(recalled=True, events=())
        message = _recalled(event, state.history)
        if message is None:
            return state
        inputs = [message_to_json(message), *state.started.data["input"]]
        started = replace(state.started, data={**state.started.data, "input": inputs})
        inner = _begin(self._inner, started, state.history)
        for each in events:
            inner = self._inner.evolve(inner, each)
        return state._replace(inner=inner)

    def decide(self, state: RememberingState) -> Decision:
        """Return what the algorithm decides, between recalling and remembering."""
        if not state.recalled:
            return [MemoryRequest(key=_RECALL_KEY, operation=RECALL, texts=(state.query,))]
        decision = self._inner.decide(state.inner)
        if state.remembered or not isinstance(decision, Finish) or decision.outcome != "COMPLETED":
            return decision
        return [MemoryRequest(key=_REMEMBER_KEY, operation=REMEMBER, texts=state.texts)]


def _begin(inner: Algorithm[Any], started: Event, history: Sequence[Message]) -> Any:
    return inner.initial(started, history) if history else inner.initial(started)


def _rules(started: Event) -> Mapping[str, Any]:
    """Return what a run remembers of its memory, nothing if it has none."""
    config = started.data.get("config")
    rules = cast("Any", config).get("memory") if isinstance(config, Mapping) else None
    return cast("Mapping[str, Any]", rules) if isinstance(rules, Mapping) else _NO_RULES


def _new_texts(started: Event) -> tuple[str, ...]:
    """Return the texts of the user since the last reply in the input."""
    messages = [message_from_json(each) for each in started.data.get("input", ())]
    replies = [place for place, each in enumerate(messages) if each.role == "assistant"]
    new = messages[replies[-1] + 1 if replies else 0 :]
    return tuple(each.text for each in new if each.role == "user" and each.text.strip())


def _is_of_user(started: Event) -> bool:
    """Return False for the run of an agent that another one has called: a model wrote its input."""
    return not started.data.get("parent") or "upto" in started.data


def _refuses_input(event: Event) -> bool:
    return event.data.get("stage") == "input" and event.data.get("verdict") != "allowed"


def _recalled(event: Event, history: Sequence[Message]) -> Message | None:
    """Return what a model is shown of what was recalled, None if it is nothing new."""
    shown = _lines_shown(history)
    lines = [line for line in _lines(event.data.get("records")) if line not in shown]
    if not lines:
        return None
    text = "\n".join(lines)
    boundary = digest("recalled", event.run_id, text)[:16]
    return recalled_message(_PREFACE + fenced(text, source="the memory", boundary=boundary))


def _lines(records: object) -> Iterable[str]:
    for record in cast("list[object]", records) if isinstance(records, list) else ():
        fact = cast("Mapping[str, Any]", record) if isinstance(record, Mapping) else _NO_RULES
        if isinstance(text := fact.get("text"), str) and text:
            yield f"{fact.get('said_at', '')}: {' '.join(text.split())}"


def _lines_shown(history: Sequence[Message]) -> set[str]:
    """Return the facts in a conversation, none where only a view of it is sent: it may be cut."""
    if getattr(history, "view", None) is not None:
        return set()
    texts = (each.text for each in history if is_recalled(each))
    return {line for text in texts for line in text.splitlines()[2:-1]}
