"""The values of a metadata field, and the number of records that have each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from lib.vector.filter.field import Field, values_at
from lib.vector.records import Facet
from lib.vector.values import Scalar

_Kind: TypeAlias = Literal["bool", "number", "string"]
_KINDS: Final[tuple[_Kind, ...]] = ("bool", "number", "string")


class Tally:
    """Counts the values of one field, record by record.

    Values of two classes are two values, as filters tell them apart: True is not 1, but 1 is 1.0.
    """

    def __init__(self, field: Field) -> None:
        """Start with no record."""
        self._field = field
        self._counts: dict[_Kind, Counter[Scalar]] = {kind: Counter() for kind in _KINDS}

    def add(self, metas: Iterable[Mapping[str, Any]]) -> None:
        """Count the metadata of some records."""
        for stored in values_at(metas, self._field):
            for kind, value in _values(stored):
                self._counts[kind][value] += 1

    def facet(self, limit: int) -> Facet:
        """Return what was counted, with so many values at most."""
        values = [
            (value, count)
            for kind in _KINDS
            for value, count in sorted(cast(dict[Any, int], self._counts[kind]).items())
        ]
        values.sort(key=lambda one: -one[1])  # which keeps the order of equal counts
        numbers = cast(Counter[int | float], self._counts["number"])
        return Facet(
            values=values[:limit],
            distinct=len(values),
            minimum=min(numbers, default=None),
            maximum=max(numbers, default=None),
        )


def _values(value: object) -> set[tuple[_Kind, Scalar]]:
    """Return the scalars that stand in a field, alone or in a list, each once."""
    elements = cast(list[object], value) if isinstance(value, list) else [value]
    return {(_kind(one), one) for one in elements if isinstance(one, bool | int | float | str)}


def _kind(value: Scalar) -> _Kind:
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"
