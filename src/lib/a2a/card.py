"""The card of another agent: what is used of it, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from lib.content.hygiene import clean
from lib.errors import FetchBlocked, ToolError
from lib.tools.builtin.fetch.url import parse
from lib.tools.output import clip

WELL_KNOWN: Final = "/.well-known/agent-card.json"
Binding = Literal["JSONRPC", "HTTP+JSON"]

_VERSION: Final = "1.0"
_MAX_DESCRIPTION_CHARS: Final = 4_000
_MAX_SKILLS: Final = 50
_NAME_CHARS: Final = 64
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The description that another agent gives of itself, as far as it is used.

    Attributes:
        name: fit for a tool.
        description: for a model; written by strangers, cleaned and cut.
        url: where it takes messages, at the origin of its card.
        binding: how it takes them.
        streams: whether it can show what happens in a task.
    """

    name: str
    description: str
    url: str
    binding: Binding
    streams: bool


def card_url(url: str) -> str:
    """Return where the card of the agent at this URL is."""
    return url if url.endswith(".json") else url.rstrip("/") + WELL_KNOWN


def read_card(body: object, url: str) -> Card:
    """Read a card.

    Args:
        body: as it came.
        url: where it was.

    Raises:
        ToolError: it is no card, or the agent cannot be called.
    """
    card = mapping(body)
    name = card.get("name")
    if not isinstance(name, str):
        raise ToolError("unavailable", "not called: the agent's card cannot be read")
    capabilities = mapping(card.get("capabilities"))
    extensions = _mappings(capabilities.get("extensions"))
    if any(each.get("required") for each in extensions):
        raise ToolError("unsupported", "not called: the agent requires an extension")
    binding, target = _interface(_mappings(card.get("supportedInterfaces")), url)
    return Card(
        name=_UNFIT.sub("_", name).strip("_")[:_NAME_CHARS] or "agent",
        description=_description(card),
        url=target.rstrip("/"),
        binding=binding,
        streams=capabilities.get("streaming") is True,
    )


def _interface(interfaces: Sequence[Mapping[str, Any]], url: str) -> tuple[Binding, str]:
    """Return the first interface that is spoken here, at the origin of the card."""
    origin = parse(url).origin
    for each in interfaces:
        match each:
            case {
                "protocolBinding": "JSONRPC" | "HTTP+JSON" as binding,
                "protocolVersion": version,
                "url": str(target),
            } if version == _VERSION and _has_origin(target, origin):
                return binding, target
            case _:
                pass
    message = f"not called: the agent offers no interface of A2A {_VERSION} at the host of its card"
    raise ToolError("unsupported", message)


def _has_origin(url: str, origin: object) -> bool:
    try:
        return parse(url).origin == origin
    except FetchBlocked:
        return False


def _description(card: Mapping[str, Any]) -> str:
    lines = [str(card.get("description") or "")]
    for skill in _mappings(card.get("skills"))[:_MAX_SKILLS]:
        name, about = str(skill.get("name") or ""), str(skill.get("description") or "")
        lines.append(f"- {name}: {about}")
    return clip(clean("\n".join(lines)), _MAX_DESCRIPTION_CHARS)[0].strip()


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, empty if it is none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a JSON array, empty if it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [mapping(each) for each in items(value)]
