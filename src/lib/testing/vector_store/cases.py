"""Metadata and filters that have broken stores, put together at random."""

from __future__ import annotations

from random import Random
from typing import Any

from lib.vector.filter import And, F, Filter, Or, fold, refusals
from lib.vector.filter.operands import LEAF_OPERATORS, LeafOperator
from lib.vector.filter.refusals import Refusal

KEYS = (
    "a", "b", "naïve", "日本", "", " ", "a.b", "a[0]", "$x", "$eq", "#x", "it's", 'say "x"',
    "back\\slash", "new\nline", "x' OR '1'='1", "%", "null", "x" * 300,
)  # fmt: skip
STEPS = ("a", "b", "a.b", 'say "x"', "back\\slash", "$x", "", "0")
"""Keys of objects that stand within each other; no name is a place in a list."""
SCALARS: tuple[bool | float | str, ...] = (
    True, False, 0, 1, -1, 2, 10, 9, 0.0, -0.0, 1.0, 1.5, -1.5, 0.1, 1e308, -1e308, 5e-324,
    2**53 - 1, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), float(2**63),
    "", "a", "A", "b", "ab", "Z", "é", "e\u0301", "日", "\uffff", "\U0001f600", "1", "1.0", "10",
    "9", "true", "null", "[]", "it's", 'say "x"', "a\\b", "a\nb", "%", "a%", "2024-01-31",
)  # fmt: skip


def random_meta(random: Random) -> dict[str, Any]:
    """Return metadata of up to six fields: scalars, None, lists and objects."""
    return {key: _value(random) for key in random.sample(KEYS, random.randint(0, 6))}


def random_nested_meta(random: Random, depth: int = 3) -> dict[str, Any]:
    """Return metadata of objects within each other, so deep at most, and of other values."""
    return {
        key: random_nested_meta(random, depth - 1)
        if depth > 1 and random.random() < 0.6
        else _value(random)
        for key in random.sample(STEPS, random.randint(1, len(STEPS)))
    }


def random_filter(random: Random, depth: int = 3, *, nested: bool = False) -> Filter:
    """Return a filter that nests so deep at most, perhaps on fields of nested objects."""
    shape = random.random() if depth else 1.0
    if shape < 0.15:
        return ~random_filter(random, depth - 1, nested=nested)
    if shape < 0.5:
        kind = And if shape < 0.33 else Or
        count = random.randint(1, 3)
        return kind(tuple(random_filter(random, depth - 1, nested=nested) for _ in range(count)))
    if nested:
        return _leaf(random, F(*random.choices(STEPS, k=random.randint(1, 3))))
    return _leaf(random, F(random.choice(KEYS[:6] if random.random() < 0.7 else KEYS)))


def features(filter: Filter) -> frozenset[Refusal]:
    """Return what a store must be able to express to take the filter, once it is folded."""
    folded = fold(filter)
    return frozenset() if isinstance(folded, bool) else refusals.features(folded)


def _value(random: Random) -> Any:
    shape = random.random()
    if shape < 0.1:
        return None
    if shape < 0.3:
        return [_element(random) for _ in range(random.randint(0, 3))]
    if shape < 0.35:
        return {random.choice(KEYS): random.choice(SCALARS)}
    return random.choice(SCALARS)


def _element(random: Random) -> Any:
    shape = random.random()
    if shape < 0.1:
        return random.choice([None, [], ["a"], {}, {"a": "a"}])
    return random.choice(SCALARS)


def _leaf(random: Random, field: F) -> Filter:
    operator = random.choice(LEAF_OPERATORS)
    match operator:
        case "$in" | "$nin":
            values = random.sample((*SCALARS, None), random.randint(0, 4))
            return field.in_(values) if operator == "$in" else field.not_in(values)
        case "$exists":
            return field.exists(random.random() < 0.5)
        case "$contains":
            return field.contains(random.choice(SCALARS))
        case "$eq" | "$ne":
            value = random.choice((*SCALARS, None))
            return field == value if operator == "$eq" else field != value
        case _:
            return _ordered(field, operator, random)


def _ordered(field: F, operator: LeafOperator, random: Random) -> Filter:
    value = random.choice([scalar for scalar in SCALARS if not isinstance(scalar, bool)])
    match operator:
        case "$gt":
            return field > value
        case "$gte":
            return field >= value
        case "$lt":
            return field < value
        case _:
            return field <= value
