"""Fields of JSON that a server wrote: of the expected type, or as if they were not there."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from lib._util.json import canonical, parse

MAX_NESTING: Final = 100


def text(value: Mapping[str, Any], name: str) -> str:
    """Return a field that is a string, else ""."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def count(value: Mapping[str, Any], name: str) -> int:
    """Return a field that is a positive integer, else 0."""
    found = value.get(name)
    return found if type(found) is int and found > 0 else 0


def amount(value: Mapping[str, Any], name: str) -> float | None:
    """Return a field that is a finite number from 0, else None."""
    found: Any = value.get(name)
    usable = type(found) in {int, float} and 0 <= found <= sys.float_info.max
    return float(found) if usable else None


def mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field that is an object, else an empty one."""
    found = value.get(name)
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else {}


def mappings(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a field that is a list."""
    found = value.get(name)
    items = cast(list[Any], found) if isinstance(found, list) else []
    return [item for item in items if isinstance(item, dict)]


def is_shallow(value: Any) -> bool:
    """Return True if a value is nested so little that it can be stored."""
    level = [value]
    for _ in range(MAX_NESTING):
        level = [child for item in level for child in _children(item)]
        if not level:
            return True
    return False


def _children(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list) else ()


def read_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments, or none and the text that is not a JSON object."""
    if not text.strip():
        return {}, None
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        return {}, text
    if isinstance(value, dict) and is_shallow(cast(Any, value)):
        return cast(dict[str, Any], value), None
    return {}, text


def arguments_text(value: Any) -> str:
    """Return arguments as text, which those of some servers are not."""
    if value is None or isinstance(value, str):
        return value or ""
    return canonical(value) if is_shallow(value) else "(nested too deeply)"
