"""Filters as Chroma's `where`, over the marks that `records` makes.

Chroma has no `$not`, so a negation is carried down to the comparisons, whose complements it has:
`$ne` and `$nin` are true of records without the key. The complement of a range is the opposite
range or no number at all. `$and` and `$or` take two parts or more; a folded filter has them.
Source: https://docs.trychroma.com/docs/querying-collections/metadata-filtering
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from lib.vector.filter import And, Filter, Leaf, Not, Or
from lib.vector.filter.field import top_level
from lib.vector.filter.operands import Operand
from lib.vector.stores.chroma import records

Where: TypeAlias = dict[str, Any]

_OPPOSITE: Final = {"$gt": "$lte", "$gte": "$lt", "$lt": "$gte", "$lte": "$gt"}


def condition(filter: Filter, *, negated: bool = False) -> Where:
    """Return what is true of the records whose metadata passes the filter, and of no others.

    Args:
        filter: folded, and taken by `lib.vector.filter.refusals.checked`.
        negated: return the complement.
    """
    match filter:
        case And(parts):
            return _joined([condition(part, negated=negated) for part in parts], every=not negated)
        case Or(parts):
            return _joined([condition(part, negated=negated) for part in parts], every=negated)
        case Not(part):
            return condition(part, negated=not negated)
        case Leaf():
            return _leaf(filter, negated=negated)
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")


def _leaf(leaf: Leaf, *, negated: bool) -> Where:
    operand: Any = leaf.operand
    field = top_level(leaf.field)
    match leaf.operator:
        case "$eq" | "$in":
            return _one_of(leaf, negated=negated)
        case "$ne" | "$nin":
            return _one_of(leaf, negated=not negated)
        case "$exists":
            return _marked(records.present(field), there=operand != negated)
        case "$contains":
            return _marked(records.element(field, operand), there=not negated)
        case _ if negated:
            beyond = {records.value(field): {_OPPOSITE[leaf.operator]: float(operand)}}
            return _joined([beyond, _marked(records.number(field), there=False)], every=False)
        case _:
            return {records.value(field): {leaf.operator: float(operand)}}


def _one_of(leaf: Leaf, *, negated: bool) -> Where:
    field = top_level(leaf.field)
    values = leaf.operand if isinstance(leaf.operand, tuple) else (leaf.operand,)
    wanted = [value for value in values if value is not None]
    ways = [
        {records.value(field): {"$nin" if negated else "$in": same}} for same in _classes(wanted)
    ]
    if len(wanted) < len(values):
        ways.append(_marked(records.present(field), there=negated))
    return _joined(ways, every=negated)


def _classes(values: Sequence[Operand]) -> list[list[bool | float | str]]:
    """Return the values in lists of one class each, as Chroma wants them; numbers as floats."""
    bools: list[bool | float | str] = [value for value in values if isinstance(value, bool)]
    strings: list[bool | float | str] = [value for value in values if isinstance(value, str)]
    numbers: list[bool | float | str] = [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return [same for same in (bools, strings, numbers) if same]


def _marked(mark: str, *, there: bool) -> Where:
    return {mark: {"$eq" if there else "$ne": True}}


def _joined(parts: list[Where], *, every: bool) -> Where:
    return parts[0] if len(parts) == 1 else {"$and" if every else "$or": parts}
