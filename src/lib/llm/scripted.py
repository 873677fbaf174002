"""Clients for tests: one plays a script and complains about deviations, one asks a function."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from lib.errors import ScriptError
from lib.llm.client import Delta, Output, Reply, ToolSpec, Usage, check_modalities
from lib.llm.messages import Message
from lib.llm.parts import Text
from lib.llm.pieces import deltas_of, estimate_tokens

TEXT_ONLY: Final = frozenset({"text"})
CHARS_PER_DELTA: Final = 8

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
    """What a client was asked."""

    messages: tuple[Message, ...]
    model: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    output: Output | None = None
    settings: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None


class FunctionClient:
    """Asks a function, plain or async, for each answer.

    A string stands for a reply of that text. A reply without usage gets an estimate that is the
    same each time, one with tool calls stops for them.

    Attributes:
        calls: what it was asked, oldest first.
    """

    name = "function"

    def __init__(
        self, answer: Answerer, *, modalities: frozenset[str] = TEXT_ONLY, model: str = "function"
    ) -> None:
        """Take the function; `modalities` and `model` are what the client says of itself."""
        self.modalities = modalities
        self.model = model
        self.calls: list[Call] = []
        self._answer = answer

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
        check_modalities(call.messages, self.modalities, client=self.name)
        self.calls.append(call)
        answer = self._answer(call.messages)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer if isinstance(answer, CutOff) else self._reply(answer, call)

    def _reply(self, answer: object, call: Call) -> Reply:
        reply = Reply((Text(answer),)) if isinstance(answer, str) else answer
        if not isinstance(reply, Reply):
            told = f"an answer is a text, a Reply or a CutOff, not {type(reply).__name__}"
            raise ScriptError(f"{told}: write calls as Reply((ToolCall(…),))")
        if reply.usage == Usage():
            read, written = estimate_tokens(call.messages), estimate_tokens(reply.parts)
            reply = replace(reply, usage=Usage(input_tokens=read, output_tokens=written))
        if reply.tool_calls and reply.stop == "stop":
            reply = replace(reply, stop="tool_calls")
        return reply if reply.model else replace(reply, model=call.model or self.model)


class ScriptedClient(FunctionClient):
    """Plays its steps in order, and fails on a call too many and on steps that nobody asked for.

    A step is an answer (a string, a `Reply`, a `CutOff`), an exception to raise, or a function of
    the messages that returns an answer. Use it as a context manager, or call `verify()` at the
    end.
    """

    name = "scripted"

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        modalities: frozenset[str] = TEXT_ONLY,
        model: str = "scripted",
    ) -> None:
        """Take the script; `modalities` and `model` are what the client says of itself."""
        super().__init__(self._play, modalities=modalities, model=model)
        self._steps = tuple(steps)
        self._played = 0

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
        """Check that the whole script was played.

        Raises:
            ScriptError: some steps are left.
        """
        if self._played < len(self._steps):
            raise ScriptError(
                f"the script has {len(self._steps)} steps, only {self._played} were asked for"
            )

    def _play(self, messages: Sequence[Message]) -> Answer | Awaitable[Answer]:
        if self._played == len(self._steps):
            raise ScriptError(f"call {self._played + 1} of a script that has {self._played} steps")
        step = self._steps[self._played]
        self._played += 1
        if isinstance(step, Exception):
            raise step
        return step(messages) if callable(step) else step
