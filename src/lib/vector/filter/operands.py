"""The operands of each operator (rules R2, R4 to R7 and R11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Literal, TypeAlias, cast, get_args

from lib.errors import InvalidFilter
from lib.vector.filter.field import Field
from lib.vector.values import Scalar, plain_scalar, python_value

LeafOperator = Literal[
    "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$contains"
]
Operand: TypeAlias = Scalar | tuple[Scalar | None, ...] | None

LEAF_OPERATORS: tuple[LeafOperator, ...] = get_args(LeafOperator)
MAX_VALUES = 10_000


def checked_operand(field: Field, operator: LeafOperator, operand: object) -> Operand:
    """Return the operand as plain, immutable data.

    Raises:
        InvalidFilter: the operator does not take it.
    """
    try:
        return _CHECKS[operator](operand)
    except ValueError as fault:
        raise InvalidFilter(
            f"filter operator {operator!r} on {field!r}: {fault}",
            rule=fault.rule if isinstance(fault, _UnfitOperand) else "R2",
            field=field,
            operator=operator,
        ) from None


class _UnfitOperand(ValueError):
    """The operand is fine data, but not for this operator."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        super().__init__(message)


def _equal(operand: object) -> Operand:
    if isinstance(operand, list | tuple | dict | set | frozenset):
        raise _UnfitOperand(
            "R4",
            "a list or an object cannot be compared: "
            "use '$in' for one of several values, '$contains' for an element of a list",
        )
    return plain_scalar(operand)


def _ordered(operand: object) -> Operand:
    value = plain_scalar(operand)
    if value is None or isinstance(value, bool):
        raise _UnfitOperand("R5", f"only numbers and strings have an order, got {value}")
    return value


def _one_of(operand: object) -> Operand:
    if isinstance(operand, str | bytes | dict) or not isinstance(operand, Iterable):
        raise _UnfitOperand("R4", "takes a list of values")
    values = tuple(islice(cast(Iterable[object], operand), MAX_VALUES + 1))
    if len(values) > MAX_VALUES:
        raise _UnfitOperand("R11", f"takes at most {MAX_VALUES} values")
    return tuple(map(plain_scalar, values))


def _element(operand: object) -> Operand:
    value = plain_scalar(operand)
    if value is None:
        raise _UnfitOperand("R6", "takes a bool, a number or a string, got None")
    return value


def _truth(operand: object) -> Operand:
    value = python_value(operand)
    if not isinstance(value, bool):
        raise _UnfitOperand("R7", f"takes True or False, got {type(operand).__name__}")
    return value


_CHECKS: dict[LeafOperator, Callable[[object], Operand]] = {
    "$eq": _equal,
    "$ne": _equal,
    "$gt": _ordered,
    "$gte": _ordered,
    "$lt": _ordered,
    "$lte": _ordered,
    "$in": _one_of,
    "$nin": _one_of,
    "$exists": _truth,
    "$contains": _element,
}
