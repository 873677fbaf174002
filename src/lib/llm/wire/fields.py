"""Fields of JSON that a stranger wrote: of the expected type, or as if they were not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def text(value: Mapping[str, Any], name: str) -> str:
    """Return a field that is a string, else ""."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def count(value: Mapping[str, Any], name: str) -> int:
    """Return a field that is a positive integer, else 0."""
    found = value.get(name)
    return found if type(found) is int and found > 0 else 0


def mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field that is an object, else an empty one."""
    found = value.get(name)
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else {}


def mappings(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a field that is a list."""
    found = value.get(name)
    items = cast(list[Any], found) if isinstance(found, list) else []
    return [item for item in items if isinstance(item, dict)]
