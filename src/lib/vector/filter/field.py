"""Fields of metadata: a top-level key, or the keys of nested objects from the outside in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

from lib.errors import InvalidFilter
from lib.vector.values import plain_text

Field: TypeAlias = str | tuple[str, ...]
"""The name of a top-level key, or two names or more: `("a", "b")` is the key b of the object a.

A name is taken literally: "a.b" is one key. Where a step is missing, or is no object, the field is
absent; a list is no object, so no name looks into it.
"""

MAX_NAMES: Final = 16


def checked_field(field: object) -> Field:
    """Return the field as plain, immutable data; a tuple of one name is that name.

    Raises:
        InvalidFilter: it has no name, too many, or one that cannot be a key.
    """
    if not isinstance(field, tuple):
        return _checked_name(field, field)
    names = cast(tuple[object, ...], field)
    if not names:
        raise InvalidFilter("a field has at least one name, got ()", rule="R1")
    if len(names) > MAX_NAMES:
        raise InvalidFilter(f"a field has at most {MAX_NAMES} names, got {len(names)}", rule="R11")
    return field_of(tuple(_checked_name(name, names) for name in names))


def field_of(names: tuple[str, ...]) -> Field:
    """Return the field of these names."""
    return names[0] if len(names) == 1 else names


def names_of(field: Field) -> tuple[str, ...]:
    """Return the names of a field, from the outside in."""
    return field if isinstance(field, tuple) else (field,)


def top_level(field: Field) -> str:
    """Return the name of a field that cannot be nested, as the store refuses such a filter."""
    if isinstance(field, tuple):
        raise TypeError(f"expected a top-level field, got {field!r}: declare a refusal")
    return field


def value_at(meta: Mapping[str, Any], field: Field) -> Any:
    """Return the value of a field, None where it is absent."""
    if isinstance(field, str):
        return meta.get(field)
    outer, *inner = field
    value = meta.get(outer)
    for name in inner:
        if not isinstance(value, dict):
            return None
        value = cast(dict[str, Any], value).get(name)
    return value


def values_at(metas: Iterable[Mapping[str, Any]], field: Field) -> list[Any]:
    """Return the value of a field in each of the metadata, None where it is absent."""
    if isinstance(field, str):
        return [meta.get(field) for meta in metas]
    return [value_at(meta, field) for meta in metas]


def _checked_name(name: object, field: object) -> str:
    if not isinstance(name, str):
        raise InvalidFilter(f"a field name is a str, got {type(name).__name__}", rule="R1")
    try:
        return plain_text(name)
    except ValueError as fault:
        raise InvalidFilter(
            f"field name {name!r}: {fault}", rule="R2", field=cast(Field, field)
        ) from None
