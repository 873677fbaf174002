"""Clients for tests: one plays a script and fails on deviations, one calls a function.

Neither counts calls: a script's step is chosen by the conversation that is sent, so a run that is
resumed in another process goes on where it was, and several runs share one client.
"""

from __future__ import annotations

import inspect
import operator
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

from lib._util.contexts import AsyncClosable
from lib._util.json import canonical, digest
from lib.errors import ScriptError
from lib.llm.client import Delta, Output, Reply, ToolSpec, Usage, check_modalities
from lib.llm.messages import Message, message_to_json
from lib.llm.parts import Text, ToolCall, ToolResult
from lib.llm.replies import ASK_AGAIN, deltas_of, estimate_tokens, is_empty

T = TypeVar("T")

TEXT_ONLY: Final = frozenset({"text"})
CHARS_PER_DELTA: Final = 8
KEPT_CALLS: Final = 1_000
"""How many of its last calls a client keeps by default."""
KEPT_CONVERSATIONS: Final = 64
"""Of how many conversations a client knows the estimated tokens, and counts only what is new."""

Answer: TypeAlias = "str | Reply | CutOff"
Answerer: TypeAlias = "Callable[[Sequence[Message]], Answer | Awaitable[Answer]]"
Step: TypeAlias = "Answer | Exception | Answerer"


@dataclass(frozen=True, slots=True)
class CutOff:
    """An answer that breaks off: a stream brings `text` before it raises `error`."""

    text: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a client got."""

    messages: tuple[Message, ...]
    model: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    output: Output | None = None
    settings: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None


@dataclass(slots=True)
class _Seen:
    """The messages of a conversation, which were checked, and how many tokens they have."""

    messages: tuple[Message, ...] = ()
    _counted: int = 0
    _tokens: int = 0

    def tokens(self) -> int:
        self._tokens += estimate_tokens(self.messages[self._counted :])
        self._counted = len(self.messages)
        return self._tokens


class FunctionClient(AsyncClosable):
    """Asks a function, plain or async, for each answer.

    A string stands for a reply of that text. A reply without usage gets an estimate that is the
    same each time, one with tool calls stops for them.

    """

    name = "function"

    def __init__(
        self,
        answer: Answerer,
        *,
        modalities: frozenset[str] = TEXT_ONLY,
        model: str = "function",
        keep_calls: int | None = KEPT_CALLS,
    ) -> None:
        """Take the function.

        Args:
            answer: returns the answer to the messages.
            modalities: of the client.
            model: of the client.
            keep_calls: how many of the last calls `calls` holds, None for all, 0 for none.

        Raises:
            ValueError: `keep_calls` is negative.
        """
        if keep_calls is not None and keep_calls < 0:
            raise ValueError(f"keep_calls is 0 or more, or None for all, got {keep_calls}")
        self.modalities = modalities
        self.model = model
        self._answer = answer
        self._calls: deque[Call] = deque(maxlen=keep_calls)
        # By the identity of the first message, which the conversation itself keeps alive.
        self._seen: dict[int, _Seen] = {}

    @property
    def calls(self) -> list[Call]:
        """The last `keep_calls` calls, oldest first."""
        return list(self._calls)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Return the function's answer."""
        call = Call(tuple(messages), model, tuple(tools), output, settings, state)
        answer = await self._ask(call)
        if isinstance(answer, CutOff):
            raise answer.error
        return answer

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Delta | Reply]:
        """Yield the function's answer in small pieces, then whole."""
        call = Call(tuple(messages), model, tuple(tools), output, settings, state)
        answer = await self._ask(call)
        whole = Reply((Text(answer.text),)) if isinstance(answer, CutOff) else answer
        for delta in deltas_of(whole, chars=CHARS_PER_DELTA):
            yield delta
        if isinstance(answer, CutOff):
            raise answer.error
        yield answer

    async def _ask(self, call: Call) -> Reply | CutOff:
        self._read(call.messages)
        self._calls.append(call)
        answer = self._choose(call)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer if isinstance(answer, CutOff) else self._reply(answer, call)

    def _read(self, messages: tuple[Message, ...]) -> _Seen:
        """Check the messages that are new in their conversation, and return what is known of it.

        Raises:
            UnsupportedModality: see `check_modalities`.
        """
        begins = id(messages[0]) if messages else 0
        seen = self._seen.pop(begins, None) or _Seen()
        before = seen.messages
        if len(before) > len(messages) or not all(map(operator.is_, before, messages)):
            seen = _Seen()
        check_modalities(messages[len(seen.messages) :], self.modalities, client=self.name)
        seen.messages = messages
        self._seen[begins] = seen
        if len(self._seen) > KEPT_CONVERSATIONS:
            del self._seen[next(iter(self._seen))]
        return seen

    def _choose(self, call: Call) -> Answer | Awaitable[Answer]:
        """Return the answer to a call."""
        return self._answer(call.messages)

    def _reply(self, answer: object, call: Call) -> Reply:
        reply = _as_reply(answer)
        if not isinstance(reply, Reply):
            expected = f"expected a text, a Reply or a CutOff, got {type(reply).__name__}"
            raise ScriptError(f"{expected}: write calls as Reply((ToolCall(…),))")
        if reply.usage == Usage():
            read, written = self._read(call.messages).tokens(), estimate_tokens(reply.parts)
            reply = replace(reply, usage=Usage(input_tokens=read, output_tokens=written))
        if reply.tool_calls and reply.stop == "stop":
            reply = replace(reply, stop="tool_calls")
        return reply if reply.model else replace(reply, model=call.model or self.model)


class ScriptedClient(FunctionClient):
    """Plays a script, and fails on a call too many and on steps that were never played.

    A step is an answer (a string, a `Reply`, a `CutOff`), an exception to raise, or a function of
    the messages that returns an answer. Use it as a context manager, or call `verify()` at the
    end.

    The conversation chooses the step, no counter does: after two replies of the script it gets the
    third answer, in whichever process it is sent. So every new run begins with the first step, a
    session goes through one script turn by turn, and a request that is repeated gets its answer
    again. Replies before the script's own, such as examples in a run's input, are not counted.
    Exceptions and `CutOff`s stand before the answer that comes after them: a conversation gets one
    after the other, each time that it is sent, and then the answer.

    Where one agent calls another with a `task`, the steps are in the order in which they are
    played: the steps of the agent that is called follow the call, then its caller goes on.
    """

    name = "scripted"

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        modalities: frozenset[str] = TEXT_ONLY,
        model: str = "scripted",
        keep_calls: int | None = KEPT_CALLS,
    ) -> None:
        """Take the script; for the other arguments see `FunctionClient`."""
        super().__init__(_unused, modalities=modalities, model=model, keep_calls=keep_calls)
        self._steps = tuple(steps)
        self._answers = [n for n, step in enumerate(self._steps) if not _fails(step)]
        self._next: dict[str, int] = {}  # by digest of a conversation that a failure was sent to
        self._played: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.verify()

    def verify(self) -> None:
        """Check that the whole script was played; what a conversation shows counts as played.

        Raises:
            ScriptError: some steps are left.
        """
        if len(self._played) < len(self._steps):
            raise ScriptError(
                f"the script has {len(self._steps)} steps, got only {len(self._played)} calls"
            )

    def _choose(self, call: Call) -> Answer | Awaitable[Answer]:
        first = self._first(call)
        number = self._number(self._after_replies(call.messages, first), call.messages)
        begins = self._answers[first - 1] + 1 if first else 0
        self._played.update(range(begins, number + 1))
        step = self._steps[number]
        if isinstance(step, Exception):
            raise step
        return step(call.messages) if callable(step) else step

    def _first(self, call: Call) -> int:
        """Return the answer that a conversation begins with: after the call that set its task."""
        opening = next((each for each in call.messages if each.role != "system"), None)
        offered = {spec.name for spec in call.tools}
        for position, number in enumerate(self._answers):
            for place, (name, task) in enumerate(_tasks(_calls(self._steps[number]))):
                if opening is not None and task == opening.text and name not in offered:
                    return self._after_texts(position + 1, place)
        return 0

    def _after_texts(self, position: int, count: int) -> int:
        """Return the position after so many texts: an agent's steps end with one."""
        while count and position < len(self._answers):
            count -= not _calls(self._steps[self._answers[position]])
            position += 1
        return position

    def _after_replies(self, messages: Sequence[Message], first: int) -> int:
        """Return the position after those replies that are the script's: as many as fit it."""
        replies = [n for n, each in enumerate(messages) if _is_reply(each)]
        for begin in replies:
            position = self._walk(messages[begin:], first, _equals)
            if position is not None:
                return position
        if (later := self._after_later_replies(messages, replies, first)) is not None:
            return later
        # What a redactor has changed is the script's all the same, if the script goes on then.
        position = self._walk(messages, first, _resembles)
        return first if position in (None, len(self._answers)) else position

    def _after_later_replies(
        self, messages: Sequence[Message], replies: Sequence[int], first: int
    ) -> int | None:
        """Return the position after replies of which the first were left out, as by a context."""
        for begin in range(first + 1, len(self._answers)) if replies else ():
            position = self._walk(messages[replies[0] :], begin, _equals)
            if position is not None and not any(
                callable(self._steps[number]) for number in self._answers[begin:position]
            ):
                return position
        return None

    def _walk(
        self,
        messages: Sequence[Message],
        position: int,
        fits: Callable[[Message, Step], bool],
    ) -> int | None:
        """Return the position after the replies; None if one does not fit its step.

        Functions fit everything: if there is nothing else, it must not be the end of the script.
        """
        tasks: set[str] = set()
        certain = False
        for message in messages:
            if _is_reply(message):
                if position == len(self._answers):
                    return None
                step = self._steps[self._answers[position]]
                if not (callable(step) or fits(message, step)):
                    return None
                certain = certain or not callable(step)
                position += 1
                tasks |= {call.id for call in message.tool_calls if _tasks([call])}
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in tasks:
                    position = self._after_answer(part.content, position)
        return position if certain or position < len(self._answers) else None

    def _after_answer(self, answer: str, position: int) -> int:
        """Return the position after an agent's answer, if the script has one and goes on then."""
        for later in range(position, len(self._answers) - 1):
            step = self._steps[self._answers[later]]
            if not callable(step) and not _calls(step) and _text(step) == answer:
                return later + 1
        return position

    def _number(self, position: int, messages: Sequence[Message]) -> int:
        """Return the number of the step: of the answer, or of a failure that comes before it."""
        ends = [-1, *self._answers, len(self._steps)]
        answer = ends[min(position + 1, len(ends) - 1)]
        number = ends[min(position, len(ends) - 2)] + 1
        if number < answer:
            conversation = digest(canonical([*map(message_to_json, messages)]))
            number = self._next.get(conversation, number)
            self._next[conversation] = min(number + 1, answer)
        if position > len(self._answers) or number >= len(self._steps):
            count = max(position, number) + 1
            raise ScriptError(f"call {count} of a script that has {len(self._steps)} steps")
        return number


def _unused(_: Sequence[Message]) -> Answer:
    raise NotImplementedError


def _fails(step: Step) -> bool:
    return isinstance(step, Exception | CutOff)


def _is_reply(message: Message) -> bool:
    """Return True if a message is a reply, or stands for an empty one."""
    return message.role == "assistant" or message == ASK_AGAIN


def _equals(message: Message, step: Step) -> bool:
    same_text = message == ASK_AGAIN or message.text == _text(step)
    return _resembles(message, step) and (bool(message.tool_calls) or same_text)


def _resembles(message: Message, step: Step) -> bool:
    """Return True if the reply makes the calls of the step, or none as the step does."""
    if message == ASK_AGAIN:
        return isinstance(step, str | Reply) and is_empty(_as_reply(step))
    return [call.name for call in message.tool_calls] == [call.name for call in _calls(step)]


def _as_reply(answer: str | T) -> Reply | T:
    return Reply((Text(answer),)) if isinstance(answer, str) else answer


def _text(step: Step) -> str:
    return step.text if isinstance(step, Reply) else str(step)


def _calls(step: Step) -> Sequence[ToolCall]:
    return step.tool_calls if isinstance(step, Reply) else ()


def _tasks(calls: Sequence[ToolCall]) -> list[tuple[str, str]]:
    """Return those calls that have the arguments of an agent's call, as name and task."""
    return [
        (call.name, task)
        for call in calls
        if len(call.arguments) == 1 and isinstance(task := call.arguments.get("task"), str)
    ]
