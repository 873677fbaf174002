"""Which store cannot say which filter: one table, read by the stores and by their contract.

A store calls `checked` before any I/O; what the table does not name, it has to say exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, get_args

from lib.errors import UnsupportedFilter
from lib.vector.filter.language import And, Filter, Leaf, Not, Or

Feature = Literal["string order", "wide number", "quoted key", "complement"]
"""What a store may be unable to say.

- string order: `$gt`, `$gte`, `$lt` or `$lte` with a string.
- wide number: an operand beyond 2**53 - 1 on either side, where 64-bit floats skip integers.
- quoted key: a field with a double quote or a backslash in its name, `$exists` apart.
- complement: `$ne`, `$nin`, `$not`, `$exists: false`, or None as an operand.
"""

FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)

REFUSALS: Final[Mapping[str, frozenset[Feature]]] = {
    "InMemoryVectorStore": frozenset(),
    "SQLiteVectorStore": frozenset(),
    "PostgresVectorStore": frozenset(),
    "LanceDBVectorStore": frozenset(),
    "QdrantVectorStore": frozenset({"string order", "wide number", "quoted key"}),
    "ChromaVectorStore": frozenset({"string order", "wide number"}),
    "PineconeVectorStore": frozenset({"string order", "wide number", "complement"}),
}

_HINTS: Final[Mapping[Feature, str]] = {
    "string order": "it orders numbers only, so store a number, as epoch seconds for a date",
    "wide number": "it compares 64-bit floats, so keep within 2**53 or store a string",
    "quoted key": "it cannot address a key with a quote or a backslash",
    "complement": "what it answers for records without the field is not documented",
}
_MAX_SAFE: Final = 2**53 - 1
_COMPLEMENTS: Final = {"$ne", "$nin"}
_ORDERS: Final = {"$gt", "$gte", "$lt", "$lte"}


def checked(filter: Filter, *, store: str) -> Filter:
    """Return the filter if the store can say it.

    Args:
        filter: folded: no constant parts.
        store: the name of its class.

    Raises:
        UnsupportedFilter: the table says that it cannot.
    """
    for operator, field, feature in _needs(filter):
        if feature in REFUSALS[store]:
            raise UnsupportedFilter(
                store=store, operator=operator, field=field, hint=_HINTS[feature]
            )
    return filter


def features(filter: Filter) -> frozenset[Feature]:
    """Return what a store must be able to say to take this folded filter."""
    return frozenset(feature for _, _, feature in _needs(filter))


def _needs(filter: Filter) -> Iterator[tuple[str, str, Feature]]:
    """Yield operator, field and feature of everything in the filter that needs one."""
    match filter:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _needs(part)
        case Not(part):
            yield "$not", _first_field(part), "complement"
            yield from _needs(part)
        case Leaf():
            for feature in FEATURES:
                if _leaf_needs(filter, feature):
                    yield filter.operator, filter.field, feature
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
            return leaf.operator != "$exists" and ('"' in leaf.field or "\\" in leaf.field)
        case "complement":
            absence = leaf.operator == "$exists" and not leaf.operand
            return leaf.operator in _COMPLEMENTS or absence or None in values


def _first_field(filter: Filter) -> str:
    match filter:
        case And(parts) | Or(parts):
            return _first_field(parts[0])
        case Not(part):
            return _first_field(part)
        case Leaf(field=field):
            return field
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")
