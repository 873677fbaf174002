"""The meaning of filters: the reference that every store's translation agrees with.

Written to be read, not to be fast; `lib.vector.filter.columns` is the fast one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any, Literal, cast

from lib.vector.filter.field import value_at
from lib.vector.filter.language import And, Filter, Leaf, Not, Or
from lib.vector.filter.operands import Operand

_ORDER: dict[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def matches(filter: Filter, meta: Mapping[str, Any]) -> bool:
    """Return True if metadata (JSON, as `Record.meta` holds it) passes the filter."""
    match filter:
        case And(parts):
            return all(matches(part, meta) for part in parts)
        case Or(parts):
            return any(matches(part, meta) for part in parts)
        case Not(part):
            return not matches(part, meta)
        case Leaf(field, operator, operand):
            return _holds(value_at(meta, field), operator, operand)
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")


def _holds(value: object, operator: str, operand: Operand) -> bool:
    match operator:
        case "$eq" | "$in":
            return _is_one_of(value, operand)
        case "$ne" | "$nin":
            return not _is_one_of(value, operand)
        case "$exists":
            return (value is not None) == operand
        case "$contains":
            return isinstance(value, list) and any(
                _equal(element, operand) for element in cast(list[object], value)
            )
        case _:
            return _kind(value) == _kind(operand) and _ORDER[operator](value, operand)


def _is_one_of(value: object, operand: Operand) -> bool:
    wanted = operand if isinstance(operand, tuple) else (operand,)
    return any(_equal(value, one) for one in wanted)


def _equal(value: object, wanted: object) -> bool:
    return _kind(value) == _kind(wanted) and value == wanted


def _kind(value: object) -> Literal["absent", "bool", "number", "string", "list", "object"]:
    """Return the value's class: values of two classes are neither equal nor ordered (R3)."""
    match value:
        case None:
            return "absent"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "object"
