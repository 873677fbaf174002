"""Filters as Qdrant's conditions on the payload that `points` writes.

A condition on `meta."x"` also looks into a list that stands there, which no operator but
`$contains` may: so it comes with its complement on `meta."x"[]`, which holds for lists alone.
`$exists` looks into `k`, the list of the keys that are there, since Qdrant's own tests
for null and for emptiness take an empty list for nothing; it names top-level keys alone, so the
presence of a nested one is refused. Numbers are compared as ranges, the one
condition that finds 1 where 1.0 was searched for.

An empty `should` would match every point, and so would an empty `must`: a folded filter has
neither. No field of `meta` may ever get a payload index: an integer index drops 1.5 from a range,
a keyword index changes what is excluded.

Source: https://qdrant.tech/documentation/concepts/filtering/, and the engine itself, by experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from qdrant_client import models

from lib.vector.filter import And, Filter, Leaf, Not, Or
from lib.vector.filter.field import Field, names_of, top_level
from lib.vector.filter.operands import Operand

NAMESPACE: Final = "ns"
META: Final = "meta"
KEYS: Final = "k"

_ORDER: Final = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


def within(namespace: str, *conditions: models.Condition) -> models.Filter:
    """Return the filter for the points of a namespace that meet the conditions."""
    wall = models.FieldCondition(key=NAMESPACE, match=models.MatchValue(value=namespace))
    return models.Filter(must=[wall, *conditions])


def condition(filter: Filter) -> models.Condition:
    """Return what is true of the points whose metadata passes the filter, and of no others.

    Args:
        filter: folded, and taken by `lib.vector.filter.refusals.checked`.
    """
    match filter:
        case And(parts):
            return models.Filter(must=[condition(part) for part in parts])
        case Or(parts):
            return _any([condition(part) for part in parts])
        case Not(part):
            return _not(condition(part))
        case Leaf():
            return _leaf(filter)
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")


def _leaf(leaf: Leaf) -> models.Condition:
    match leaf.operator:
        case "$eq" | "$in":
            return _one_of(leaf)
        case "$ne" | "$nin":
            return _not(_one_of(leaf))
        case "$exists":
            return _present(leaf.field) if leaf.operand else _not(_present(leaf.field))
        case "$contains":
            # both: the first alone finds a scalar, the second alone an element of a nested list
            (test,) = _equal([leaf.operand])
            return models.Filter(must=[_at(leaf.field, test), _at(leaf.field, test, "[]")])
        case _:
            return _scalar(leaf.field, {"range": _range(leaf.operator, leaf.operand)})


def _one_of(leaf: Leaf) -> models.Condition:
    values = leaf.operand if isinstance(leaf.operand, tuple) else (leaf.operand,)
    wanted = [value for value in values if value is not None]
    ways: list[models.Condition] = [_scalar(leaf.field, test) for test in _equal(wanted)]
    if len(wanted) < len(values):
        ways.append(_not(_present(leaf.field)))
    return _any(ways)


def _equal(values: Sequence[Operand]) -> list[dict[str, Any]]:
    """Return the tests of which one holds for a value that equals one of these."""
    strings = [value for value in values if isinstance(value, str)]
    tests: list[dict[str, Any]] = [{"match": models.MatchAny(any=strings)}] if strings else []
    for value in values:
        match value:
            case bool():
                tests.append({"match": models.MatchValue(value=value)})
            case int() | float():
                tests.append({"range": models.Range(gte=value, lte=value)})
            case _:
                pass
    return tests


def _range(operator: str, bound: Any) -> models.Range:
    return models.Range(**{_ORDER[operator]: bound})


def _scalar(field: Field, test: dict[str, Any]) -> models.Condition:
    return models.Filter(must=[_at(field, test)], must_not=[_at(field, test, "[]")])


def _present(field: Field) -> models.Condition:
    return models.FieldCondition(key=KEYS, match=models.MatchValue(value=top_level(field)))


def _at(field: Field, test: dict[str, Any], suffix: str = "") -> models.Condition:
    key = ".".join([META, *(f'"{name}"' for name in names_of(field))])
    return models.FieldCondition(key=key + suffix, **test)


def _any(ways: list[models.Condition]) -> models.Condition:
    return ways[0] if len(ways) == 1 else models.Filter(should=ways)


def _not(part: models.Condition) -> models.Condition:
    return models.Filter(must_not=[part])
