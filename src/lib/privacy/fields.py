"""The fields of events that are content, and a walk over them. Pure.

A field that `PLAIN` does not name is content, in kinds that are added later, too: then a developer
has to say that it is none. Within content every text is redacted, at any depth, and so are the
keys of mappings and whole numbers of twelve digits or more (a card number may be sent as one).

Left as they are: keys, ids, digests, and the names of tools, models and algorithms; the roles and
types of messages and their parts; the bytes of attachments, inline or in a blob store, which need
a redactor that understands their format; the digest in what is a reference to a blob and has no
other key; the provider's handle on a conversation. A seal on
thinking fits no other text: where the text changes, it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from lib.events import kinds as k
from lib.events.blobs import reference_of

Redact = Callable[[str], str]
Walk = Callable[[Any, Redact], Any]

_EVERYWHERE: Final = frozenset(
    {"key", "signal_id", "run_id", "call_id", "span_id", "mcp", "provider", "model", "usage"}
)
_FOREIGN: Final = frozenset({"key", "signal_id", "run_id", "call_id", "span_id"})

PLAIN: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        kind: _EVERYWHERE | frozenset(fields.split())
        for kind, fields in {
            k.RUN_STARTED: "algorithm budget parent root request upto depth traceparent",
            k.RUN_RESUMED: "worker epoch",
            k.LEASE_LOST: "worker epoch",
            k.RUN_COMPLETED: "outcome",
            k.CANCEL_REQUESTED: "",
            k.CLOSE_REQUESTED: "",
            k.LLM_REQUESTED: "upto digest tools_digest agent epoch",
            k.LLM_COMPLETED: "attempts empty",
            k.LLM_FAILED: "reason attempts",
            k.TOOL_REQUESTED: "name effects idempotency_key unstarted version agent epoch",
            k.TOOL_CHECKED: "answer",
            k.TOOL_COMPLETED: "truncated",
            k.TOOL_FAILED: "reason code",
            k.TOOL_AWAITED: "name agent",
            k.TOOL_ANSWERED: "failed",
            k.APPROVAL_REQUESTED: "name reason repeats version agent",
            k.APPROVAL_DECIDED: "approved",
            k.CALL_SETTLED: "happened",
            k.CHILD_REQUESTED: "name algorithm budget effects unstarted agent epoch",
            k.CHILD_COMPLETED: "outcome spend unstarted",
            k.TURN_REQUESTED: "",
            k.TURN_STARTED: "algorithm upto budget epoch",
            k.TURN_COMPLETED: "outcome spend",
            k.CONTEXT_REQUESTED: "upto digest covers messages agent epoch",
            k.CONTEXT_SUMMARY: "covers messages attempts reused",
            k.CONTEXT_FAILED: "reason attempts",
            k.MEMORY_REQUESTED: "operation store record_id unstarted epoch",
            k.MEMORY_COMPLETED: "count attempts",
            k.MEMORY_FAILED: "reason attempts",
            k.GUARD_VERDICT: "guard stage verdict content_hash",
            k.EVAL_SCORE: "name source",
            k.SWARM_HANDOFF: "source target",
            k.REFLEXION_FEEDBACK: "trial",
            k.DEBATE_TURN: "agent round outcome",
        }.items()
    }
)
"""Fields that are no content, by kind."""

_NUMBER_DIGITS: Final = 12


def walk(kind: str, data: dict[str, Any], redact: Redact) -> dict[str, Any]:
    """Return the payload of an event with its content redacted.

    Events of kinds outside `lib.` are content but for `key`, `signal_id`, `run_id`, `call_id` and
    `span_id`.
    """
    if not kind.startswith(k.PREFIX):
        plain = {name: value for name, value in data.items() if name in _FOREIGN}
        rest = {name: value for name, value in data.items() if name not in plain}
        return {**_mapping(rest, redact), **plain}
    plain_fields = PLAIN.get(kind, _EVERYWHERE)
    return {
        name: value if name in plain_fields else _SHAPES.get(name, anything)(value, redact)
        for name, value in data.items()
    }


def anything(value: Any, redact: Redact) -> Any:
    """Return plain data with every text in it redacted, keys and long numbers included.

    A whole number that is redacted becomes a text: a number would not look like a placeholder.
    """
    if isinstance(value, str):
        return redact(value)
    if type(value) is int and abs(value) >= 10 ** (_NUMBER_DIGITS - 1):
        return value if redact(str(value)) == str(value) else redact(str(value))
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[str, Any]", value), redact)
    if isinstance(value, list | tuple):
        return [anything(item, redact) for item in cast("list[Any]", value)]
    return value


def _mapping(value: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    """Redact keys and values; keys that become equal are numbered, in the order of the old ones.

    Of what is a reference to a blob, and nothing more, the digest stays.
    """
    if reference_of(value) is not None:
        rest = {name: anything(item, redact) for name, item in value.items() if name != "$blob"}
        return {"$blob": value["$blob"], **rest}
    renamed = {key: redact(key) for key in value}
    taken = {key for key, new in renamed.items() if key == new}
    for key in sorted(key for key, new in renamed.items() if key != new):
        renamed[key] = _free(renamed[key], taken)
        taken.add(renamed[key])
    return {renamed[key]: anything(item, redact) for key, item in value.items()}


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted} ({number})"
    return name


def _but(*plain: str, **shapes: Walk) -> Walk:
    """Return how to walk a mapping of which some fields are plain and others have a shape."""

    def shaped(value: Any, redact: Redact) -> Any:
        if not isinstance(value, Mapping):
            return anything(value, redact)
        return {
            name: item if name in plain else shapes.get(name, anything)(item, redact)
            for name, item in cast("Mapping[str, Any]", value).items()
        }

    return shaped


def _each(walk_one: Walk) -> Walk:
    def listed(value: Any, redact: Redact) -> Any:
        if not isinstance(value, list | tuple):
            return anything(value, redact)
        return [walk_one(item, redact) for item in cast("Iterable[Any]", value)]

    return listed


def _url(value: Any, redact: Redact) -> Any:
    """Return a URL redacted, unless it holds the bytes themselves."""
    return (
        value
        if isinstance(value, str) and value[:5].lower() == "data:"
        else anything(value, redact)
    )


_ATTACHMENT: Final = _but("type", "data", "media_type", url=_url)
_PART: Final[Mapping[str, Walk]] = MappingProxyType(
    {
        "text": _but("type", "signature"),
        "thinking": _but("type", "signature"),
        "tool_call": _but("type", "id", "name", "signature"),
        "tool_result": _but("type", "call_id"),
        "image": _ATTACHMENT,
        "audio": _ATTACHMENT,
        "file": _ATTACHMENT,
    }
)
_UNKNOWN_PART: Final = _but("type", "id", "signature")


def _part(value: Any, redact: Redact) -> Any:
    if not isinstance(value, Mapping):
        return anything(value, redact)
    part = cast("Mapping[str, Any]", value)
    part_type = part.get("type")
    walk_part = _PART.get(part_type, _UNKNOWN_PART) if isinstance(part_type, str) else _UNKNOWN_PART
    redacted = walk_part(part, redact)
    if part_type == "thinking" and redacted.get("text") != part.get("text"):
        redacted.pop("signature", None)
    return redacted


_MESSAGES: Final = _each(_but("role", parts=_each(_part)))
_SHAPES: Final[Mapping[str, Walk]] = MappingProxyType(
    {
        "input": _MESSAGES,
        "reply": _but("usage", "stop", "model", "id", "state", parts=_each(_part)),
        "config": _but("model", "tools", "name", "algorithm"),
        "error": _but("type", "status", "stop"),
        "client_tools": _each(_but("name")),
        "records": _each(_but("id", "key")),
    }
)
