"""Conversations on their way to a provider: what they have in common on all wires."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from urllib.parse import quote

from lib.errors import LLMError, UnsupportedModality
from lib.llm.messages import Message
from lib.llm.parts import PROVIDER_BLOCK, Attachment, Opaque, Part, Text, ToolCall

# -- what only one server can read -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Origin:
    """The maker of a part of a conversation, who may get back what is sealed in it.

    Attributes:
        server: the host.
        model: as calls name it; "" where the server sorts out by itself what a model cannot read.
    """

    server: str
    model: str = ""


def sealed(wire: str, origin: Origin, name: str, content: str) -> str | None:
    """Return the signature of a part: its wire, server, a name, the model, and the seal itself.

    All of it is in the signature, which a redactor leaves as it is, or takes away. None where there
    is nothing to keep.
    """
    if not (name and content and "/" not in name):
        return None
    model = f"@{quote(origin.model, safe='')}" if origin.model else ""
    return f"{wire}/{origin.server}/{name}{model}/{content}"


def unsealed(wire: str, origin: Origin, signature: object) -> tuple[str, str] | None:
    """Return the name and the content of a signature, None for what is not of this origin.

    What names no model, as in older logs, is of any model of the server.
    """
    seal, rest = f"{wire}/{origin.server}/", signature if isinstance(signature, str) else ""
    name, _, content = rest.removeprefix(seal).partition("/")
    if origin.model:
        name, _, model = name.partition("@")
        if model and model != quote(origin.model, safe=""):
            return None
    return (name, content) if rest.startswith(seal) and name and content else None


def provider_block(wire: str, origin: Origin, block: Mapping[str, Any]) -> Opaque:
    """Return a block of a reply that has no part here as one that its server gets back."""
    model = {"model": origin.model} if origin.model else {}
    server = {"wire": wire, "server": origin.server, **model}
    return Opaque({"type": PROVIDER_BLOCK, **server, "block": dict(block)})


def own_block(wire: str, origin: Origin, part: Opaque) -> dict[str, Any] | None:
    """Return the block that this server wrote, None for one of another."""
    own = part.type == PROVIDER_BLOCK and part.data.get("wire") == wire
    block = part.data.get("block") if own and part.data.get("server") == origin.server else None
    return dict(block) if isinstance(block, dict) else None  # pyright: ignore[reportUnknownArgumentType] - keys of JSON are strings


def of_another_model(origin: Origin, part: Opaque) -> bool:
    """Return True if a block says that another model has made it."""
    return bool(origin.model) and part.data.get("model", origin.model) != origin.model


# -- messages ----------------------------------------------------------------------------------


def leading_system(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the system messages that open the conversation."""
    return [*takewhile(lambda message: message.role == "system", messages)]


def text_only(message: Message, wire: str) -> str:
    """Return the text of a message that can have nothing else.

    Raises:
        LLMError: it has something else.
    """
    for part in message.parts:
        if not isinstance(part, Text):
            raise misplaced(part, message.role, wire)
    return message.text


def merged(entries: Iterable[tuple[str, list[Any]]]) -> list[tuple[str, list[Any]]]:
    """Return (role, blocks) without empty ones, neighbours of one role as one."""
    out: list[tuple[str, list[Any]]] = []
    for role, blocks in entries:
        if not blocks:
            continue
        if out and out[-1][0] == role:
            out[-1][1].extend(blocks)
        else:
            out.append((role, [*blocks]))
    return out


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of an old call: servers fail on those that the model got wrong."""
    return call.arguments if call.invalid is None else {"INVALID_JSON": call.invalid}


def fitting_id(call_id: str, pattern: re.Pattern[str], length: int) -> str:
    """Return the id of a tool call as a wire takes it: of another provider, it may be too long."""
    if pattern.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:length]


def base64_of(part: Attachment, wire: str) -> str:
    """Return the bytes of an attachment.

    Raises:
        UnsupportedModality: there is only a URL.
        LLMError: they are still in a blob store.
    """
    if part.url is not None:
        supported = frozenset({f"{part.modality} as bytes"})
        raise UnsupportedModality(f"{part.modality} by URL", client=wire, supported=supported)
    if part.data is None:
        raise LLMError("an attachment's blob was not loaded before the call")
    return base64.b64encode(part.data).decode("ascii")


def data_url(part: Attachment, wire: str) -> str:
    """Return the bytes of an attachment with their type, as a URL; see `base64_of`."""
    return f"data:{part.media_type};base64,{base64_of(part, wire)}"


def misplaced(part: Part, role: str, wire: str) -> LLMError:
    """Return the error of a part that a wire does not carry in a message of that role."""
    return LLMError(f"{wire} has no {type(part).__name__} in a message of the {role}")
