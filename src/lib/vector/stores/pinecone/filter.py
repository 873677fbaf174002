"""Filters in Pinecone's language, over the metadata that `records` makes.

Only what its documentation defines is used: `$eq`, `$in`, `$gt` to `$lte`, `$and`, `$or`. What its
negations do with records that lack the field changed in 2024 and is not written down; they are
refused. No condition asks for a list where a scalar may stand, since an equation finds any element.
Source: https://docs.pinecone.io/guides/search/filter-by-metadata (2026-11).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from lib.vector.filter import And, Filter, Leaf, Or
from lib.vector.filter.field import top_level
from lib.vector.stores.pinecone import records

Condition: TypeAlias = dict[str, Any]


def condition(filter: Filter) -> Condition:
    """Return what is true of the records whose metadata passes the filter, and of no others.

    Args:
        filter: folded, and taken by `lib.vector.filter.refusals.checked`.
    """
    match filter:
        case And(parts):
            return {"$and": [condition(part) for part in parts]}
        case Or(parts):
            return {"$or": [condition(part) for part in parts]}
        case Leaf():
            return _leaf(filter)
        case _:
            raise TypeError(
                f"expected a filter that Pinecone supports, got {type(filter).__name__}"
            )


def _leaf(leaf: Leaf) -> Condition:
    operand: Any = leaf.operand
    field = top_level(leaf.field)
    match leaf.operator:
        case "$eq":
            return {records.value(field): {"$eq": _plain(operand)}}
        case "$in":
            return _one_of(field, operand)
        case "$exists":
            return {records.KEYS: {"$eq": records.key(field)}}
        case "$contains":
            return {records.elements(field): {"$eq": records.token(operand)}}
        case _:
            return {records.value(field): {leaf.operator: float(operand)}}


def _one_of(field: str, values: tuple[Any, ...]) -> Condition:
    strings = [value for value in values if isinstance(value, str)]
    bools = [value for value in values if isinstance(value, bool)]
    numbers = [float(value) for value in values if not isinstance(value, str | bool)]
    ways = [{records.value(field): {"$in": same}} for same in (strings, numbers) if same]
    ways += [{records.value(field): {"$eq": one}} for one in dict.fromkeys(bools)]
    return ways[0] if len(ways) == 1 else {"$or": ways}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | bool) else float(value)
