"""The base of clients whose wire is one file: a body, a builder of replies, and a path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Unpack, cast

from lib.llm.api.client import ClientOptions, ModelClient
from lib.llm.api.endpoint import Endpoint
from lib.llm.api.streams import Builder, ServerEvent
from lib.llm.client import Delta, Output, Reply, ToolSpec
from lib.llm.messages import Message
from lib.llm.parts import ToolCall, ToolResult

_NEED_TOOLS: Final = frozenset({"parallel_tool_calls", "tool_choice"})
_CHOICES: Final = frozenset({"auto", "none", "required"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call of a model.

    Attributes:
        messages: the whole conversation.
        model: the model that answers.
        tools: what it may call.
        output: the shape of its text.
        settings: what its caller wants beside that, unread.
        stream: True if the answer comes in pieces.
    """

    messages: Sequence[Message]
    model: str
    tools: Sequence[ToolSpec] = ()
    output: Output | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stream: bool = False

    def used_tools(self) -> Sequence[ToolSpec]:
        """Return the tools, or stand-ins for those in the conversation where there are none.

        Servers refuse calls and results in a conversation without any tool.
        """
        if self.tools:
            return self.tools
        parts = [part for message in self.messages for part in message.parts]
        names = {part.name: None for part in parts if isinstance(part, ToolCall)}
        if not names and any(isinstance(part, ToolResult) for part in parts):
            names = {"unavailable": None}
        return [ToolSpec(name, "Not available any more.", {"type": "object"}) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that every wire has, under the names of OpenAI, and the other ones.

    Attributes:
        max_tokens: of the answer, None for the server's own limit.
        tool: the name of the one tool that has to be called, "" for none.
        choice: "auto", "none", "required", or "" for the server's default.
        parallel: False for one call at a time, None for the server's default.
        rest: what goes into the request as it is.
    """

    max_tokens: int | None
    tool: str
    choice: str
    parallel: bool | None
    rest: dict[str, Any]


def read_settings(call: ModelCall, reserved: frozenset[str]) -> Settings:
    """Return the settings of a call.

    Args:
        call: whose settings they are; without tools, what is about tools is left out.
        reserved: fields of the request that have a parameter of their own.

    Raises:
        ValueError: a setting has a parameter of its own.
    """
    rest = dict(call.settings)
    if taken := sorted(reserved & rest.keys()):
        raise ValueError(f"settings cannot hold {', '.join(taken)}")
    if not call.tools:
        rest = {name: value for name, value in rest.items() if name not in _NEED_TOOLS}
    choice = rest.get("tool_choice")
    if isinstance(choice, str):  # else it is in the words of the server
        del rest["tool_choice"]
    named = choice if isinstance(choice, str) else ""
    return Settings(
        max_tokens=rest.pop("max_tokens", None),
        tool="" if named in _CHOICES else named,
        choice=named if named in _CHOICES else "",
        parallel=rest.pop("parallel_tool_calls", None),
        rest=rest,
    )


def stops(value: Any) -> list[str]:
    """Return the setting `stop`, one text or several, as a list."""
    return [value] if isinstance(value, str) else [*cast(Sequence[str], value)]


class WireBuilder(Builder, Protocol):
    """Makes a reply of what a server sends."""

    def take(self, event: ServerEvent) -> Iterable[Delta]:
        """Take one event of a stream; return what it adds.

        Raises:
            LLMError: the event is an error that the server reports, or cannot be read.
        """
        ...


class WireClient(ModelClient, ABC):
    """Speaks one provider's own wire.

    It neither retries nor remembers, and can serve many calls at once on one event loop. `state` is
    not used: the whole conversation is sent. In `settings`, `max_tokens`, `tool_choice` (which may
    be the name of a tool), `parallel_tool_calls`, `temperature`, `top_p` and `stop` mean the same
    for every provider; the others go into the request as they are.
    """

    carries: ClassVar[frozenset[str]]

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        *,
        modalities: frozenset[str],
        **options: Unpack[ClientOptions],
    ) -> None:
        """Prepare a client; nothing is opened before the first call.

        Raises:
            ValueError: a modality that the wire cannot carry, or both `http` and `transport`.
        """
        if not modalities <= self.carries:
            unknown, own = sorted(modalities - self.carries), sorted(self.carries)
            raise ValueError(f"{self.name} carries {', '.join(own)}, not {', '.join(unknown)}")
        super().__init__(model, endpoint, modalities=modalities, **options)

    @abstractmethod
    def _path(self, call: ModelCall) -> str:
        """Return the path of a call below the address."""

    @abstractmethod
    def _body(self, call: ModelCall) -> dict[str, Any]:
        """Return the body of a call as plain data.

        Raises:
            ValueError: a setting has a parameter of its own.
            LLMError: a message holds what the wire cannot carry in its role.
        """

    @abstractmethod
    def _builder(self, call: ModelCall, body: Mapping[str, Any]) -> WireBuilder:
        """Return what makes the reply to a call."""

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
        """Return the model's answer; see `LLMClient.complete`."""
        self._check(messages)
        call = ModelCall(
            messages=messages,
            model=model or self.model,
            tools=tools,
            output=output,
            settings=settings or {},
        )
        body = self._body(call)
        builder = self._builder(call, body)
        await self._fill(builder, self._path(call), body)
        return self._reply(builder)

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
        """Yield the answer in pieces, then whole; see `LLMClient.stream`.

        A caller that stops in the middle closes the iterator, which closes the connection.
        """
        self._check(messages)
        call = ModelCall(
            messages=messages,
            model=model or self.model,
            tools=tools,
            output=output,
            settings=settings or {},
            stream=True,
        )
        body = self._body(call)
        builder = self._builder(call, body)
        async with self._filling(builder, self._path(call), body, _take) as pieces:
            async for delta in pieces:
                yield delta
        yield self._reply(builder)


def _take(event: ServerEvent, builder: WireBuilder) -> Iterable[Delta]:
    return builder.take(event)
