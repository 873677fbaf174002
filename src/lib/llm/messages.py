"""Messages of a conversation, and their one JSON form.

A message that is only one text is `{"role": "user", "content": "hi"}`, every other one is
`{"role": …, "parts": […]}`. Equal messages give equal JSON, today and after a restart: a
conversation that is rendered again from its log has the same bytes, so that the provider's prompt
cache still knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, cast, get_args

from lib.llm.parts import (
    Part,
    Text,
    ToolCall,
    ToolResult,
    as_object,
    no_extra,
    part_from_json,
    part_to_json,
    unknown_keys,
)

Role = Literal["system", "user", "assistant", "tool"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
_KEYS: Final = frozenset({"role", "content", "parts"})


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: the author of the message.
        parts: its content, in order.
        extra: keys of its JSON that this release does not know.
    """

    role: Role
    parts: tuple[Part, ...]
    extra: dict[str, Any] = field(default_factory=no_extra, kw_only=True)

    @classmethod
    def system(cls, *content: str | Part) -> Self:
        """Make an instruction to the model."""
        return cls("system", _parts(content))

    @classmethod
    def user(cls, *content: str | Part) -> Self:
        """Make a message of the user; a string stands for a text part."""
        return cls("user", _parts(content))

    @classmethod
    def assistant(cls, *content: str | Part) -> Self:
        """Make a message of the model."""
        return cls("assistant", _parts(content))

    @classmethod
    def tool(cls, *results: ToolResult) -> Self:
        """Make the message that answers the model's tool calls."""
        return cls("tool", results)

    @property
    def text(self) -> str:
        """Its text parts, joined."""
        return text_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it, in order."""
        return tool_calls_of(self.parts)


def message_to_json(message: Message) -> dict[str, Any]:
    """Return the message as plain data."""
    match message.parts:
        case (Text(text, extra=extra),) if not extra:
            return {**message.extra, "role": message.role, "content": text}
        case parts:
            return {**message.extra, "role": message.role, "parts": [*map(part_to_json, parts)]}


def message_from_json(value: Mapping[str, Any]) -> Message:
    """Return the message that `message_to_json` has written.

    Raises:
        ValueError: the role is unknown, or it has not exactly one of content and parts.
    """
    value = as_object(value)
    role, content, parts = value.get("role"), value.get("content"), value.get("parts")
    if role not in ROLES:
        raise ValueError(f"a message's role is one of {', '.join(ROLES)}, got {role!r}")
    if isinstance(content, str) == isinstance(parts, list):
        raise ValueError("a message has either a text 'content' or a list of 'parts'")
    read = (
        (Text(content),)
        if isinstance(content, str)
        else tuple(map(part_from_json, cast(Sequence[Mapping[str, Any]], parts)))
    )
    return Message(role, read, extra=unknown_keys(value, _KEYS))


def text_of(parts: Sequence[Part]) -> str:
    """Return the text parts, joined."""
    return "".join([part.text for part in parts if isinstance(part, Text)])


def tool_calls_of(parts: Sequence[Part]) -> tuple[ToolCall, ...]:
    """Return the tool calls among the parts, in order."""
    return tuple([part for part in parts if isinstance(part, ToolCall)])


def _parts(content: Sequence[str | Part]) -> tuple[Part, ...]:
    return tuple([Text(item) if isinstance(item, str) else item for item in content])
