"""Reads replies: their deltas and tokens, and if a reader would see anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from lib._util.json import canonical
from lib.llm.client import Delta, Reply, ToolCallDelta
from lib.llm.messages import Message
from lib.llm.parts import Attachment, Part, Text, Thinking, ToolCall, ToolResult

CHARS_PER_TOKEN: Final = 4
TOKENS_PER_MESSAGE: Final = 4
TOKENS_PER_ATTACHMENT: Final = 500


def deltas_of(reply: Reply, *, chars: int | None = None) -> Iterator[Delta]:
    """Yield the reply's text, thinking and tool calls as deltas.

    Args:
        reply: what to take apart.
        chars: characters in one delta at most; None makes one delta of each part.
    """
    calls = 0
    for part in reply.parts:
        match part:
            case Text(text):
                yield from (Delta(text=piece) for piece in _cut(text, chars))
            case Thinking(text):
                yield from (Delta(thinking=piece) for piece in _cut(text, chars))
            case ToolCall(id=call_id, name=name):
                yield Delta(tool_call=ToolCallDelta(calls, call_id, name))
                for piece in _cut(arguments_text(part), chars):
                    yield Delta(tool_call=ToolCallDelta(calls, arguments=piece))
                calls += 1
            case _:
                pass


def arguments_text(call: ToolCall) -> str:
    """Return the arguments as the model wrote them, or as canonical JSON."""
    return canonical(call.arguments) if call.invalid is None else call.invalid


def estimate_tokens(content: Iterable[Message | Part]) -> int:
    """Return about how many tokens messages or parts have: a quarter of their characters.

    The same content has the same estimate, on every machine and for every model.
    """
    return sum(_tokens(item) for item in content)


def _tokens(item: Message | Part) -> int:
    match item:
        case Message(parts=parts):
            return TOKENS_PER_MESSAGE + estimate_tokens(parts)
        case Text(text) | Thinking(text):
            chars = len(text)
        case ToolCall(name=name):
            chars = len(name) + len(arguments_text(item))
        case ToolResult(content=text):
            chars = len(text)
        case Attachment():
            return TOKENS_PER_ATTACHMENT
        case _:
            chars = len(canonical(item.data))
    return -(-chars // CHARS_PER_TOKEN)


def _cut(text: str, chars: int | None) -> list[str]:
    step = chars or len(text) or 1
    return [text[start : start + step] for start in range(0, len(text), step)]


ASK_AGAIN: Final = Message.user(
    "Your last reply was empty: it had no text and no tool call. Reply again."
)
"""Stands in the conversation instead of the empty reply, which providers refuse; logs hold its
digest, so it never changes."""

# Whitespace, control characters, and what Unicode calls default-ignorable; the Braille blank, too.
_UNSEEN: Final = re.compile(
    "[\\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]*"
)


def is_empty(reply: Reply) -> bool:
    """Return True if a reader would see nothing: at most thinking and whitespace.

    Tool calls and attachments are something, and so is a part of an unknown type.
    """
    if not all(isinstance(part, Text | Thinking) for part in reply.parts):
        return False
    return _UNSEEN.fullmatch(reply.text) is not None
