"""Checks values against a JSON schema, and writes schemas in the form of OpenAI's strict mode.

Covers what schemas of tools and outputs use: types, constants, bounds, strings, arrays, objects,
combinations, and references inside the schema. Other keywords, and `format`, are annotations here.

Strict mode guarantees the shape of a reply, for schemas in which objects are closed and every
property is required. Most schemas can be brought into that form without allowing a value that
they refuse, but for a few bounds that strict mode does not know; the reply is checked against the
original schema anyway.

Sources: JSON Schema draft 2020-12, Core and Validation (json-schema.org, 2022-06-16); OpenAI,
"Structured model outputs", supported schemas (platform.openai.com, 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote

from lib._util.json import canonical

MAX_DEPTH: Final = 100
_NAME_CHARS: Final = 40

Schema: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a check: the whole schema, the path to the value, and the depth."""

    root: Any
    path: str = ""
    depth: int = 0

    def into(self, step: str) -> _Position:
        return _Position(self.root, f"{self.path}{step}", self.depth + 1)

    def again(self) -> _Position:
        return _Position(self.root, self.path, self.depth + 1)

    def problem(self, text: str) -> str:
        return f"{self.path.lstrip('.') or 'the value'} {text}"


def violations(value: Any, schema: Any) -> Iterator[str]:
    """Yield what is wrong with a value of plain JSON; nothing when it fits.

    The texts name places, rules and property names, never values.

    Raises:
        ValueError: the schema refers to something that is not in it.
    """
    return _check(value, schema, _Position(schema))


def _check(value: Any, schema: Any, position: _Position) -> Iterator[str]:
    if schema is False:
        yield position.problem("is not allowed")
    if position.depth > MAX_DEPTH:
        yield position.problem(f"is nested deeper than {MAX_DEPTH}")
        return
    if not isinstance(schema, Mapping):
        return
    keywords = cast(Schema, schema)
    for keyword, operand in keywords.items():
        rule = _RULES.get(keyword)
        if rule is not None:
            yield from rule(value, operand, keywords, position)


# -- any value ---------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value % 1 == 0,
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _type(value: Any, wanted: str | Sequence[str], _: Schema, position: _Position) -> Iterator[str]:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(_TYPES[name](value) for name in names if name in _TYPES):
        yield position.problem(f"must be of type {' or '.join(names)}")


def _plain(value: Any) -> str:
    """Return a text that is the same for JSON values that are equal: 1 and 1.0 are."""
    return canonical(_whole(value))


def _whole(value: Any) -> Any:
    match value:
        case float() if value % 1 == 0:
            return int(value)
        case list():
            return [_whole(item) for item in cast(list[Any], value)]
        case dict():
            return {key: _whole(item) for key, item in cast(dict[str, Any], value).items()}
        case _:
            return value


def _enum(value: Any, allowed: Sequence[Any], _: Schema, position: _Position) -> Iterator[str]:
    if _plain(value) not in [_plain(one) for one in allowed]:
        yield position.problem(f"must be one of {canonical(list(allowed))}")


def _const(value: Any, wanted: Any, _: Schema, position: _Position) -> Iterator[str]:
    if _plain(value) != _plain(wanted):
        yield position.problem(f"must be {canonical(wanted)}")


# -- numbers and sizes -------------------------------------------------------------------------

Rule: TypeAlias = Callable[[Any, Any, Schema, _Position], Iterator[str]]


def _bound(holds: Callable[[Any, Any], bool], words: str) -> Rule:
    def rule(value: Any, limit: Any, _: Schema, position: _Position) -> Iterator[str]:
        if _is_number(value) and not holds(value, limit):
            yield position.problem(f"must be {words} {limit}")

    return rule


def _divides(value: Any, step: Any) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    return value / step % 1 == 0  # the remainder of floats would call 0.3 no multiple of 0.1


def _size(kind: type, holds: Callable[[int, int], bool], words: str) -> Rule:
    def rule(value: Any, limit: int, _: Schema, position: _Position) -> Iterator[str]:
        if isinstance(value, kind) and not holds(len(cast(Sequence[Any], value)), limit):
            yield position.problem(words.format(limit))

    return rule


def _at_least(got: Any, limit: Any) -> bool:
    return got >= limit


def _at_most(got: Any, limit: Any) -> bool:
    return got <= limit


def _pattern(value: Any, pattern: str, _: Schema, position: _Position) -> Iterator[str]:
    if isinstance(value, str) and not _finds(pattern, value):
        yield position.problem(f"must match the pattern {pattern!r}")


def _finds(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True  # ECMAScript's syntax, which Python does not have: not ours to judge


# -- arrays ------------------------------------------------------------------------------------


def _items(value: Any, each: Any, schema: Schema, position: _Position) -> Iterator[str]:
    if isinstance(value, list):
        first = len(schema.get("prefixItems", ()))
        for number, item in enumerate(cast(list[Any], value)[first:], first):
            yield from _check(item, each, position.into(f"[{number}]"))


def _prefix_items(value: Any, each: Sequence[Any], _: Schema, position: _Position) -> Iterator[str]:
    if isinstance(value, list):
        for number, (item, one) in enumerate(zip(cast(list[Any], value), each, strict=False)):
            yield from _check(item, one, position.into(f"[{number}]"))


def _unique(value: Any, wanted: bool, _: Schema, position: _Position) -> Iterator[str]:
    if wanted and isinstance(value, list):
        items = [_plain(item) for item in cast(list[Any], value)]
        if len(set(items)) < len(items):
            yield position.problem("must not repeat an item")


# -- objects -----------------------------------------------------------------------------------


def _required(value: Any, names: Sequence[str], _: Schema, position: _Position) -> Iterator[str]:
    if isinstance(value, dict):
        for name in names:
            if name not in value:
                yield position.problem(f"lacks the property {name!r}")


def _properties(value: Any, each: Schema, _: Schema, position: _Position) -> Iterator[str]:
    if isinstance(value, dict):
        for name, schema in each.items():
            if name in value:
                yield from _check(value[name], schema, position.into(f".{name}"))


def _pattern_properties(value: Any, each: Schema, _: Schema, position: _Position) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in cast(dict[str, Any], value).items():
            for pattern, schema in each.items():
                if _finds(pattern, name):
                    yield from _check(item, schema, position.into(f".{name[:_NAME_CHARS]}"))


def _additional(value: Any, rest: Any, schema: Schema, position: _Position) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, item in cast(dict[str, Any], value).items():
        if name in named or any(_finds(pattern, name) for pattern in patterns):
            continue
        if rest is False:
            yield position.problem(f"has the unknown property {name[:_NAME_CHARS]!r}")
        else:
            yield from _check(item, rest, position.into(f".{name[:_NAME_CHARS]}"))


# -- combinations and references ---------------------------------------------------------------


def _fits(value: Any, schema: Any, position: _Position) -> bool:
    return next(_check(value, schema, position.again()), None) is None


def _all_of(value: Any, each: Sequence[Any], _: Schema, position: _Position) -> Iterator[str]:
    for schema in each:
        yield from _check(value, schema, position.again())


def _any_of(value: Any, each: Sequence[Any], _: Schema, position: _Position) -> Iterator[str]:
    telling: list[list[str]] = []  # each is checked once: twice would double with every level
    for schema in each:
        problems = [*_check(value, schema, position.again())]
        if not problems:
            return
        if schema != {"type": "null"}:
            telling.append(problems)
    if len(telling) == 1:  # an optional value: say what is wrong with it
        yield from telling[0]
    else:
        yield position.problem(f"fits none of its {len(each)} alternatives")


def _one_of(value: Any, each: Sequence[Any], _: Schema, position: _Position) -> Iterator[str]:
    fitting = sum(_fits(value, schema, position) for schema in each)
    if fitting != 1:
        yield position.problem(f"must fit one of its {len(each)} alternatives, it fits {fitting}")


def _not(value: Any, refused: Any, _: Schema, position: _Position) -> Iterator[str]:
    if _fits(value, refused, position):
        yield position.problem("is of a refused form")


def _ref(value: Any, reference: str, _: Schema, position: _Position) -> Iterator[str]:
    return _check(value, resolve(reference, position.root), position.again())


def resolve(reference: str, root: Any) -> Any:
    """Return the part of a schema that a `$ref` such as "#/$defs/Name" means.

    Raises:
        ValueError: it points outside the schema, or nowhere.
    """
    start, *steps = reference.split("/")
    found: Any = {"#": root}
    try:
        for step in (start, *steps):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            found = cast(Any, found[int(name)] if isinstance(found, list) else found[name])
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"the JSON schema has no {reference!r}") from None
    return found


_RULES: Final[Mapping[str, Rule]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(_at_least, "at least"),
    "maximum": _bound(_at_most, "at most"),
    "exclusiveMinimum": _bound(lambda got, limit: got > limit, "above"),
    "exclusiveMaximum": _bound(lambda got, limit: got < limit, "below"),
    "multipleOf": _bound(_divides, "a multiple of"),
    "minLength": _size(str, _at_least, "must have at least {} characters"),
    "maxLength": _size(str, _at_most, "must have at most {} characters"),
    "pattern": _pattern,
    "items": _items,
    "prefixItems": _prefix_items,
    "minItems": _size(list, _at_least, "must have at least {} items"),
    "maxItems": _size(list, _at_most, "must have at most {} items"),
    "uniqueItems": _unique,
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "minProperties": _size(dict, _at_least, "must have at least {} properties"),
    "maxProperties": _size(dict, _at_most, "must have at most {} properties"),
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "$ref": _ref,
}


# -- strict mode --------------------------------------------------------------------------------


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


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
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


def _strict(node: Any, root: dict[str, Any], inlined: tuple[str, ...]) -> dict[str, Any]:
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


def _rewritten(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node with other words for what strict mode has no word for, or none."""
    out = {key: value for key, value in node.items() if key not in _DROPPED}
    if out.get("format") not in _FORMATS:
        out.pop("format", None)
    if len(out.get("allOf", ())) == 1:
        out = {**out.pop("allOf")[0], **out}
    if "oneOf" in out:
        out["anyOf"] = out.pop("oneOf")
    return out


def _close(out: dict[str, Any]) -> None:
    if "properties" not in out or out.get("additionalProperties", False) is not False:
        raise _NotStrict
    out["additionalProperties"] = False
    out["required"] = list(out["properties"])


def _inside(out: dict[str, Any], root: dict[str, Any], inlined: tuple[str, ...]) -> dict[str, Any]:
    for name in ("properties", "$defs"):
        if name in out:
            out[name] = {key: _strict(one, root, inlined) for key, one in out[name].items()}
    if "items" in out:
        out["items"] = _strict(out["items"], root, inlined)
    if "anyOf" in out:
        out["anyOf"] = [_strict(one, root, inlined) for one in out["anyOf"]]
    return out


_BOUNDS: Final = frozenset(
    {"exclusiveMaximum", "exclusiveMinimum", "maxItems", "maximum", "minItems", "minimum"}
    | {"multipleOf", "pattern"}
)


def strict_shape(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema in strict form and without bounds of values, or None; see `strict_schema`.

    For providers that constrain the shape of a reply and refuse schemas with bounds.
    """
    strict = strict_schema(schema)
    return None if strict is None else _unbounded(strict)


def _unbounded(node: Mapping[str, Any]) -> dict[str, Any]:
    out = {key: value for key, value in node.items() if key not in _BOUNDS}
    for name in ("properties", "$defs"):
        if name in out:
            out[name] = {key: _unbounded(one) for key, one in out[name].items()}
    if "items" in out:
        out["items"] = _unbounded(out["items"])
    if "anyOf" in out:
        out["anyOf"] = [_unbounded(one) for one in out["anyOf"]]
    return out
