"""JSON schemas as OpenAI's strict mode wants them.

Strict mode guarantees the shape of a reply, for schemas in which objects are closed and every
property is required. Most schemas can be brought into that form without allowing a value that
they refuse, but for a few bounds that strict mode does not know; the reply is checked against the
original schema anyway.

Source: OpenAI, "Structured model outputs", supported schemas (platform.openai.com, 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from lib.llm.schema import resolve

Schema: TypeAlias = dict[str, Any]

_KEPT: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum"}
    | {"exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems", "maximum"}
    | {"minItems", "minimum", "multipleOf", "pattern", "properties", "required", "title", "type"}
)
_DROPPED: Final = frozenset(
    {"$schema", "default", "deprecated", "discriminator", "examples", "maxLength", "minLength"}
    | {"readOnly", "uniqueItems", "writeOnly"}
)
_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)


class _NotStrict(Exception):
    """The schema needs what strict mode cannot express."""


def strict_schema(schema: Schema) -> Schema | None:
    """Return the schema in strict form, or None where it has none.

    Properties become required, so that a reply cannot leave out an optional one. Objects with free
    keys, `allOf` of several, `not` and conditions have no strict form, and nothing but an object
    has.
    """
    try:
        strict = _strict(schema, schema, ())
    except (_NotStrict, ValueError):
        return None
    return strict if strict.get("type") == "object" else None


def _strict(node: Any, root: Schema, inlined: tuple[str, ...]) -> Schema:
    if not isinstance(node, Mapping) or not node:
        raise _NotStrict  # true, false or {}: anything or nothing
    out = _rewritten(cast(Mapping[str, Any], node))
    reference = out.get("$ref")
    if reference and len(out) > 1:  # a reference stands alone
        del out["$ref"]
        if reference not in inlined:
            return _strict({**resolve(reference, root), **out}, root, (*inlined, reference))
        out = {"$ref": reference}
    if not out.keys() <= _KEPT:
        raise _NotStrict
    if "object" in out.get("type", ()) or "properties" in out:  # a type, or a list of types
        _close(out)
    return _inside(out, root, inlined)


def _rewritten(node: Mapping[str, Any]) -> Schema:
    """Return the node with other words for what strict mode has no word for, or none."""
    out = {key: value for key, value in node.items() if key not in _DROPPED}
    if out.get("format") not in _FORMATS:
        out.pop("format", None)
    if len(out.get("allOf", ())) == 1:
        out = {**out.pop("allOf")[0], **out}
    if "oneOf" in out:
        out["anyOf"] = out.pop("oneOf")
    return out


def _close(out: Schema) -> None:
    if "properties" not in out or out.get("additionalProperties", False) is not False:
        raise _NotStrict
    out["additionalProperties"] = False
    out["required"] = list(out["properties"])


def _inside(out: Schema, root: Schema, inlined: tuple[str, ...]) -> Schema:
    for name in ("properties", "$defs"):
        if name in out:
            out[name] = {key: _strict(one, root, inlined) for key, one in out[name].items()}
    if "items" in out:
        out["items"] = _strict(out["items"], root, inlined)
    if "anyOf" in out:
        out["anyOf"] = [_strict(one, root, inlined) for one in out["anyOf"]]
    return out
