"""`reasoning_details`: what models have thought behind OpenRouter, in the form of each provider.

A list of texts with signatures, summaries and encrypted data, which goes back whole and in order to
the model that it came from: providers want it between a call and its result. In a stream it comes
in pieces. What Claude models have signed is bound to its place; see `lib.llm.api.prefixes`.

Source: OpenRouter, "Preserving reasoning blocks", and the types of openrouter 1.3.84.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lib.llm.api import fields
from lib.llm.api.conversation import Origin, of_another_model, own_block, provider_block
from lib.llm.api.prefixes import Prefix
from lib.llm.messages import Message
from lib.llm.parts import Opaque

DETAILS: Final = "reasoning_details"
_WIRE: Final = "chat"
_PIECES: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}
_BOUND: Final = "anthropic"


def add_detail(details: list[dict[str, Any]], piece: Mapping[str, Any]) -> str:
    """Add a piece to the list, and return the text that a reader may see of it."""
    kind = fields.text(piece, "type")
    if not kind or not fields.is_shallow(piece):
        return ""
    name = _PIECES.get(kind, "")
    text = fields.text(piece, name) if name else ""
    last = details[-1] if details else {}
    if name and last.get("type") == kind and last.get("index") == piece.get("index"):
        rest = {key: value for key, value in piece.items() if value is not None}
        last |= {**rest, name: fields.text(last, name) + text}
    else:
        details.append(dict(piece))
    return text


def kept_details(details: Sequence[Mapping[str, Any]], origin: Origin, prefix: str) -> Opaque:
    """Return the list as a part of the reply, with the digest of the request that it answers."""
    block = {DETAILS: [dict(each) for each in details], "prefix": prefix}
    return provider_block(_WIRE, origin, block)


def has_details(messages: Iterable[Message]) -> bool:
    """Return True if a message holds such a list, of whatever server."""
    return any(
        isinstance(part, Opaque) and DETAILS in part.data.get("block", ())
        for message in messages
        for part in message.parts
    )


def details_of(message: Message, origin: Origin, prefix: Prefix) -> list[Any]:
    """Return what goes back with a message of the model, nothing if another one has made it."""
    for part in message.parts:
        if not isinstance(part, Opaque) or of_another_model(origin, part):
            continue
        block = own_block(_WIRE, origin, part) or {}
        details = fields.mappings(block, DETAILS)
        moved = block.get("prefix") != prefix.digest()
        if details and not (moved and any(map(_is_bound, details))):
            return details
    return []


def _is_bound(detail: Mapping[str, Any]) -> bool:
    return fields.text(detail, "format").startswith(_BOUND)
