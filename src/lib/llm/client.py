"""Calls of models: what a client takes and returns.

`LLMClient` is the only thing that an engine, a reranker or a judge knows of a model. A client is
one provider's wire: it neither retries nor remembers, its callers do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast, get_args

from lib.errors import UnsupportedModality
from lib.llm.messages import Message, text_of, tool_calls_of
from lib.llm.parts import (
    PROVIDER_BLOCK,
    Attachment,
    Opaque,
    Part,
    ToolCall,
    part_from_json,
    part_to_json,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

Stop = Literal["stop", "tool_calls", "length", "content_filter", "other"]
STOPS: Final[tuple[Stop, ...]] = get_args(Stop)

Output: TypeAlias = "Mapping[str, Any] | type[BaseModel]"
"""The shape that a reply must have: a JSON schema, or a pydantic model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens and cost of one or more calls.

    Attributes:
        input_tokens: all of the input, read from a cache or not.
        output_tokens: all of the output, reasoning included.
        cache_read_tokens: the part of the input that the provider's cache held.
        cache_write_tokens: the part of the input that the provider put into its cache.
        cache_write_1h_tokens: the part of that which it keeps for an hour, at a price of its own.
        reasoning_tokens: the part of the output that the model wrote for itself.
        cost: in US dollars, None if unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=sum(costs) if costs else None,
        )


_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)


def usage_to_json(usage: Usage) -> dict[str, Any]:
    """Return the usage as plain data, without zeros."""
    out: dict[str, Any] = {name: count for name in _COUNTS if (count := getattr(usage, name))}
    if usage.cost is not None:
        out["cost"] = usage.cost
    return out


def usage_from_json(value: Mapping[str, Any]) -> Usage:
    """Return the usage that `usage_to_json` has written; other keys are ignored."""
    counts = {name: value[name] for name in _COUNTS if name in value}
    return Usage(**counts, cost=value.get("cost"))


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's complete answer.

    Attributes:
        parts: text, thinking and tool calls, in order.
        usage: what the call has consumed.
        stop: why the model stopped.
        model: the model that answered, as the provider names it.
        id: the provider's name for this answer.
        state: the provider's handle on the conversation, for the next call's `state=`.
        request_id: the server's name for the request, which its support asks for; "" if it has
            none beside `id`.
    """

    parts: tuple[Part, ...]
    usage: Usage = field(default_factory=Usage)
    stop: Stop = "stop"
    model: str = ""
    id: str = ""
    state: dict[str, Any] | None = None
    request_id: str = ""

    @property
    def message(self) -> Message:
        """The answer as a message of the conversation."""
        return Message("assistant", self.parts)

    @property
    def text(self) -> str:
        """Its text parts, joined."""
        return text_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it, in order."""
        return tool_calls_of(self.parts)


def reply_to_json(reply: Reply) -> dict[str, Any]:
    """Return the reply as plain data, defaults left out."""
    out: dict[str, Any] = {"parts": [*map(part_to_json, reply.parts)]}
    if usage := usage_to_json(reply.usage):
        out["usage"] = usage
    if reply.stop != "stop":
        out["stop"] = reply.stop
    if reply.model:
        out["model"] = reply.model
    if reply.id:
        out["id"] = reply.id
    if reply.state is not None:
        out["state"] = reply.state
    if reply.request_id:
        out["request_id"] = reply.request_id
    return out


def reply_from_json(value: Mapping[str, Any]) -> Reply:
    """Return the reply that `reply_to_json` has written; other keys are ignored.

    Raises:
        ValueError: a part of it cannot be read.
    """
    stop = value.get("stop", "stop")
    return Reply(
        tuple(map(part_from_json, cast(Sequence[Mapping[str, Any]], value.get("parts", ())))),
        usage=usage_from_json(value.get("usage", {})),
        stop=stop if stop in STOPS else "other",
        model=value.get("model", ""),
        id=value.get("id", ""),
        state=value.get("state"),
        request_id=value.get("request_id", ""),
    )


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for a model; `input_schema` is the JSON schema of its arguments."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call: the number of the call in its reply, and a piece of its JSON."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply, for display: the `Reply` that ends the stream is whole."""

    text: str = ""
    thinking: str = ""
    tool_call: ToolCallDelta | None = None


class LLMClient(Protocol):
    """One model, or one provider's models.

    Both calls raise `LLMError` with `retryable` where the same call may succeed later, and
    `UnsupportedModality` before any I/O for a message that they cannot carry. Neither retries.

    A client may have one more attribute, `provider: str | None`: the provider that bills calls, as
    OpenTelemetry's `gen_ai.provider.name` has it, such as "openai", "anthropic" or "gcp.gemini". It
    goes into the log with every call, and prices are looked up by it.
    """

    @property
    def name(self) -> str:
        """The wire that it speaks, such as "chat"."""
        ...

    @property
    def model(self) -> str:
        """The model of calls that name none."""
        ...

    @property
    def modalities(self) -> frozenset[str]:
        """The modalities that messages may carry: "text" and any of "image", "audio", "file"."""
        ...

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
        """Return the model's answer to the conversation.

        Args:
            messages: the whole conversation, oldest first.
            model: another model than the client's own.
            tools: what the model may call.
            output: the shape that the text of the answer must have.
            settings: parameters of the model such as temperature and max_tokens.
            state: the handle that an earlier `Reply` brought, and in it as `covers` how many of
                the messages, from the first on, it stands for: a client that uses it sends the
                others. One that does not know what its provider keeps ignores it.

        Raises:
            LLMError: the call failed; `state_lost` is True if the server has lost the handle.
            UnsupportedModality: a message carries what the client did not declare.
        """
        ...

    def stream(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Delta | Reply]:
        """Yield the answer in pieces as it comes, and last the whole `Reply`.

        Args and errors are those of `complete`; an error can also come after some pieces.
        """
        ...


def check_modalities(
    messages: Iterable[Message], supported: frozenset[str], *, client: str
) -> None:
    """Refuse messages that a client cannot carry; clients call it before any I/O.

    Raises:
        UnsupportedModality: a message has an attachment of another modality, or a part of a type
            that this release does not know. A block of another provider is no reason: clients
            leave it out.
    """
    for message in messages:
        for part in message.parts:
            match part:
                case Opaque(type=kind) if kind == PROVIDER_BLOCK and message.role == "assistant":
                    pass
                case Attachment(modality=modality) | Opaque(type=modality):
                    if modality not in supported:
                        raise UnsupportedModality(modality, client=client, supported=supported)
                case _:
                    pass
