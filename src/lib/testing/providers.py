"""Fakes of model providers that are as strict, and as forgetful, as real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib.errors import LLMError
from lib.llm import Delta, FunctionClient, Message, Output, Reply, ToolSpec
from lib.llm.chat.request import Dialect, build_body
from lib.llm.scripted import Answerer
from lib.testing.llm_rules import refusal

_DIALECT: Final = Dialect()


def check_conversation(messages: Sequence[Message]) -> None:
    """Refuse what strict providers refuse: calls without results, results without calls, silence.

    Raises:
        LLMError: with status 400, as a server answers.
    """
    problem = refusal(build_body(messages, model="strict", dialect=_DIALECT))
    if problem is not None:
        raise LLMError(problem["error"]["message"], status=400)
    for number, message in enumerate(messages):
        if message.role == "assistant" and not (message.text or message.tool_calls):
            raise LLMError(f"messages.{number}: content must be non-empty", status=400)


class StrictClient(FunctionClient):
    """Asks a function, for conversations only that every provider takes."""

    name = "strict"

    def __init__(self, answer: Answerer, **options: Any) -> None:
        """Take the function; `options` are those of `FunctionClient`."""

        def checked(messages: Sequence[Message]) -> Any:
            check_conversation(messages)
            return answer(messages)

        super().__init__(checked, **options)


class KeepingClient(StrictClient):
    """A provider that keeps conversations: whoever has a handle sends only what is new.

    The model sees what was kept and what was sent, never what a caller says that was kept.

    Attributes:
        sent: for each call that was answered, how many messages came with it.
        refused: how many handles it did not know any more.
    """

    name = "keeping"

    def __init__(self, answer: Answerer, **options: Any) -> None:
        """Take the function that stands in for the model."""
        super().__init__(answer, **options)
        self.sent: list[int] = []
        self.refused = 0
        self._kept: dict[str, tuple[Message, ...]] = {}
        self._made = 0

    def forget(self) -> None:
        """Let every handle expire."""
        self._kept.clear()

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
        """Return the function's answer to the conversation that is known here."""
        known, new = self._known(messages, state)
        reply = await super().complete(
            [*known, *new], model=model, tools=tools, output=output, settings=settings, state=state
        )
        return self._keep(reply, known, new)

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
        known, new = self._known(messages, state)
        async for piece in super().stream(
            [*known, *new], model=model, tools=tools, output=output, settings=settings, state=state
        ):
            yield self._keep(piece, known, new) if isinstance(piece, Reply) else piece

    def _known(
        self, messages: Sequence[Message], state: Mapping[str, Any] | None
    ) -> tuple[Sequence[Message], Sequence[Message]]:
        if state is None:
            return (), messages
        if state["id"] not in self._kept:
            self.refused += 1
            raise LLMError(f"no response {state['id']!r}", status=404, state_lost=True)
        return self._kept[state["id"]], messages[state["covers"] :]

    def _keep(self, reply: Reply, known: Sequence[Message], new: Sequence[Message]) -> Reply:
        self._made += 1
        self.sent.append(len(new))
        name = f"resp-{self._made}"
        self._kept[name] = (*known, *new, reply.message)
        return replace(reply, state={"id": name})
