"""Filters that a store cannot express: declared by its class, refused before any I/O.

A class declares `refusals`, a set of the words below; without one it has to take every filter. The
contract suite expects `UnsupportedFilter` for what is declared, and exact answers for the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, TypeAlias, cast, get_args

from lib.errors import UnsupportedFilter
from lib.vector.filter.field import Field, names_of
from lib.vector.filter.language import And, Filter, Leaf, Not, Or
from lib.vector.filter.operands import LeafOperator

Feature = Literal[
    "string order", "wide number", "quoted key", "complement", "nested", "nested presence"
]
"""What a store may be unable to say.

- string order: `$gt`, `$gte`, `$lt` or `$lte` with a string.
- wide number: an operand beyond 2**53 - 1 on either side, where 64-bit floats skip integers.
- quoted key: a field with a double quote or a backslash in its name, `$exists` apart.
- complement: `$ne`, `$nin`, `$not`, `$exists: false`, or None as an operand.
- nested: a field within an object.
- nested presence: `$exists` of such a field, or None as an operand of a condition on it.
"""

Refusal: TypeAlias = Feature | LeafOperator | Literal["$and", "$or", "$not"]
"""A feature, or an operator that a store does not have at all."""

FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)
REFUSALS: Final = frozenset[str](
    {*FEATURES, *get_args(LeafOperator), "$and", "$or", "$not"},
)
"""Every word that `refusals` may hold."""

_HINTS: Final[Mapping[Feature, str]] = {
    "string order": "it orders numbers only, so store a number, as epoch seconds for a date",
    "wide number": "it compares 64-bit floats, so keep within 2**53 or store a string",
    "quoted key": "it cannot address a key with a quote or a backslash",
    "complement": "what it answers for records without the field is not documented",
    "nested": "it filters by top-level fields alone, so store the value as one of them, too",
    "nested presence": "it cannot tell whether a key within an object is there, so store a mark "
    "as a top-level field",
}
_MAX_SAFE: Final = 2**53 - 1
_COMPLEMENTS: Final = {"$ne", "$nin"}
_ORDERS: Final = {"$gt", "$gte", "$lt", "$lte"}


def declared_refusals(store: object) -> frozenset[Refusal]:
    """Return what a store, or its class, declares that it cannot express; nothing by default.

    Raises:
        ValueError: `refusals` holds an unknown word.
    """
    declared: Collection[str] = getattr(store, "refusals", ())
    unknown = sorted(set(declared) - REFUSALS)
    if unknown:
        raise ValueError(
            f"refusals of {_class_name(store)} hold {unknown[0]!r}: known are "
            f"{', '.join(sorted(REFUSALS))}"
        )
    return cast(frozenset[Refusal], frozenset(declared))


def checked(filter: Filter, *, store: object) -> Filter:
    """Return the filter if the store can express it.

    Args:
        filter: folded: no constant parts.
        store: a store, or its class, which may declare `refusals`.

    Raises:
        UnsupportedFilter: it declares that it cannot.
    """
    refused = declared_refusals(store)
    if refused:
        for operator, field, need in _needs(filter):
            if need in refused:
                hint = _HINTS.get(cast(Feature, need), "")
                raise UnsupportedFilter(
                    store=_class_name(store), operator=operator, field=field, hint=hint
                )
    return filter


def features(filter: Filter) -> frozenset[Refusal]:
    """Return what a store must be able to express to take this folded filter."""
    return frozenset(need for _, _, need in _needs(filter))


def _class_name(store: object) -> str:
    return (store if isinstance(store, type) else type(store)).__name__


def _needs(filter: Filter) -> Iterator[tuple[str, Field, Refusal]]:
    """Yield operator, field and need of every operator and feature in the filter."""
    match filter:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _needs(part)
            operator = "$and" if isinstance(filter, And) else "$or"
            yield operator, _first_field(filter), operator
        case Not(part):
            field = _first_field(part)
            yield "$not", field, "complement"
            yield from _needs(part)
            yield "$not", field, "$not"
        case Leaf():
            for feature in FEATURES:
                if _leaf_needs(filter, feature):
                    yield filter.operator, filter.field, feature
            yield filter.operator, filter.field, filter.operator
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")


def _leaf_needs(leaf: Leaf, feature: Feature) -> bool:
    values = leaf.operand if isinstance(leaf.operand, tuple) else (leaf.operand,)
    match feature:
        case "string order":
            return leaf.operator in _ORDERS and isinstance(leaf.operand, str)
        case "wide number":
            return any(
                isinstance(value, int | float) and abs(value) > _MAX_SAFE for value in values
            )
        case "quoted key":
            names = "".join(names_of(leaf.field))
            return leaf.operator != "$exists" and ('"' in names or "\\" in names)
        case "complement":
            absence = leaf.operator == "$exists" and not leaf.operand
            return leaf.operator in _COMPLEMENTS or absence or None in values
        case "nested":
            return isinstance(leaf.field, tuple)
        case "nested presence":
            presence = leaf.operator == "$exists" or None in values
            return isinstance(leaf.field, tuple) and presence


def _first_field(filter: Filter) -> Field:
    match filter:
        case And(parts) | Or(parts):
            return _first_field(parts[0])
        case Not(part):
            return _first_field(part)
        case Leaf(field=field):
            return field
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")
