"""The filter language: mappings or `F`, the frozen tree of both, and its folding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, NoReturn, cast

from lib.errors import InvalidFilter
from lib.vector.filter.field import Field, checked_field, names_of
from lib.vector.filter.operands import LEAF_OPERATORS, LeafOperator, Operand, checked_operand
from lib.vector.values import Scalar

MAX_DEPTH = 16
MAX_LEAVES = 256


class Filter:
    """A condition on metadata: one `Leaf`, or `And`, `Or`, `Not` of filters.

    Frozen; two filters are equal when they are written alike, 1 and True and 1.0 being different.
    A filter has no truth value, so that `and`, `or`, `not` and chained comparisons fail loudly
    where `&`, `|` and `~` were meant.
    """

    __slots__ = ()

    @staticmethod
    def parse(spec: Filter | Mapping[str, Any] | Mapping[Field, Any] | None) -> Filter | None:
        """Return the filter that a mapping describes; None for None and for an empty mapping.

        Args:
            spec: a filter (returned as it is), a mapping or None.

        Raises:
            InvalidFilter: the mapping is not in the filter language.
        """
        if spec is None or isinstance(spec, Filter):
            return spec
        tree = _limited(_Reader().conjunction(spec, depth=0))
        return None if isinstance(tree, And) and not tree.parts else tree

    def __and__(self, other: Filter) -> Filter:
        return (
            _combined(And, self, other)
            if isinstance(cast(object, other), Filter)
            else NotImplemented
        )

    def __or__(self, other: Filter) -> Filter:
        return (
            _combined(Or, self, other)
            if isinstance(cast(object, other), Filter)
            else NotImplemented
        )

    def __invert__(self) -> Filter:
        return _limited(Not(self))

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other) if isinstance(other, Filter) else NotImplemented

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride] - a set of filters is a mistake

    def __bool__(self) -> NoReturn:
        raise TypeError("a filter has no truth value: combine filters with '&', '|' and '~'")


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(Filter):
    """One operator on one field of the metadata; the operand fits the operator."""

    field: Field
    operator: LeafOperator
    operand: Operand


@dataclass(frozen=True, slots=True, eq=False)
class And(Filter):
    """All of the parts; without parts it is always true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or(Filter):
    """At least one of the parts, of which there are some."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not(Filter):
    """The exact complement of the part."""

    part: Filter


EVERYTHING: Filter = And(())


class F:
    """Builds filters on one metadata field: `(F("year") >= 2020) & F("tags").contains("x")`.

    `F("author", "name")` is the key `name` of the object `author`.
    """

    __slots__ = ("_field",)
    __array_ufunc__ = None  # so that a number of numpy on the left leaves the comparison to us

    def __init__(self, field: str, *nested: str) -> None:
        """Take the name of a top-level key, literally: dots, `$` and quotes mean nothing.

        Args:
            field: the name.
            nested: the names of keys of the object that stands there, from the outside in.

        Raises:
            InvalidFilter: a name is not a string that can be a key, or there are more than 16.
        """
        self._field = checked_field((field, *nested))

    def __eq__(self, value: Scalar | None) -> Filter:  # type: ignore[override] - a builder
        return self._leaf("$eq", value)

    def __ne__(self, value: Scalar | None) -> Filter:  # type: ignore[override] - a builder
        return self._leaf("$ne", value)

    def __gt__(self, value: float | str) -> Filter:
        return self._leaf("$gt", value)

    def __ge__(self, value: float | str) -> Filter:
        return self._leaf("$gte", value)

    def __lt__(self, value: float | str) -> Filter:
        return self._leaf("$lt", value)

    def __le__(self, value: float | str) -> Filter:
        return self._leaf("$lte", value)

    def in_(self, values: Iterable[Scalar | None]) -> Filter:
        """The field equals one of the values; of none, if there are none."""
        return self._leaf("$in", values)

    def not_in(self, values: Iterable[Scalar | None]) -> Filter:
        """The field equals none of the values, or is absent."""
        return self._leaf("$nin", values)

    def exists(self, present: bool = True) -> Filter:
        """The field is there and not None; with False, the contrary."""
        return self._leaf("$exists", present)

    def contains(self, value: Scalar) -> Filter:
        """The field is a list with an element that equals the value."""
        return self._leaf("$contains", value)

    def _leaf(self, operator: LeafOperator, operand: object) -> Filter:
        return Leaf(self._field, operator, checked_operand(self._field, operator, operand))

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride] - it has no equality either

    def __bool__(self) -> NoReturn:
        raise TypeError("a field has no truth value: compare it, or ask `.exists()`")

    def __repr__(self) -> str:
        return f"F({', '.join(map(repr, names_of(self._field)))})"


class _Reader:
    """Reads one mapping, and stops early: a small mapping can describe a huge tree."""

    def __init__(self) -> None:
        self._leaves = 0

    def conjunction(self, spec: object, depth: int) -> Filter:
        """Read a mapping: several keys, or several operators on one key, are an `$and` (R9)."""
        if isinstance(spec, Filter):
            self._count(_size(spec)[1])
            return spec
        if not isinstance(spec, Mapping):
            raise InvalidFilter(f"a filter is a mapping, got {type(spec).__name__}", rule="R9")
        if depth > MAX_DEPTH:
            raise _too_deep()
        entries = cast(Mapping[object, object], spec).items()
        parts = tuple(part for key, value in entries for part in self._entry(key, value, depth))
        if not parts:
            self._count()
        return parts[0] if len(parts) == 1 else And(parts)

    def _entry(self, key: object, value: object, depth: int) -> Iterator[Filter]:
        match key:
            case "$and":
                yield And(self._parts("$and", value, depth))
            case "$or":
                yield Or(self._parts("$or", value, depth))
            case "$not":
                yield Not(self.conjunction(value, depth + 1))
            case str() if key.startswith("$"):
                raise _unknown_operator(key, "$and", "$or", "$not")
            case _:
                yield from self._conditions(checked_field(key), value)

    def _parts(self, operator: str, value: object, depth: int) -> tuple[Filter, ...]:
        if not isinstance(value, list | tuple) or not value:
            raise InvalidFilter(
                f"filter operator {operator!r} takes a list of one or more filters",
                rule="R9",
                operator=operator,
            )
        return tuple(self.conjunction(part, depth + 1) for part in cast(list[object], value))

    def _conditions(self, field: Field, value: object) -> Iterator[Filter]:
        conditions = cast(object, value) if isinstance(value, Mapping) else {"$eq": value}
        if not conditions:
            raise InvalidFilter(
                f"no operator in the condition on {field!r}", rule="R9", field=field
            )
        for operator, operand in cast(Mapping[object, object], conditions).items():
            if operator not in LEAF_OPERATORS:
                raise _unknown_operator(operator, *LEAF_OPERATORS, field=field)
            self._count()
            yield Leaf(field, operator, checked_operand(field, operator, operand))

    def _count(self, leaves: int = 1) -> None:
        self._leaves += leaves
        if self._leaves > MAX_LEAVES:
            raise _too_many()


def _combined(kind: type[And | Or], left: Filter, right: Filter) -> Filter:
    """Join two filters; a chain of the same operator stays flat."""
    parts = [side.parts if isinstance(side, kind) else (side,) for side in (left, right)]
    return _limited(kind((*parts[0], *parts[1])))


def _limited(tree: Filter) -> Filter:
    depth, leaves = _size(tree)
    if depth > MAX_DEPTH:
        raise _too_deep()
    if leaves > MAX_LEAVES:
        raise _too_many()
    return tree


def _size(tree: Filter) -> tuple[int, int]:
    """Return how deep the operators nest, and how many conditions there are."""
    match tree:
        case And(parts) | Or(parts) if parts:
            depths, leaves = zip(*map(_size, parts), strict=True)
            return 1 + max(depths), sum(leaves)
        case Not(part):
            depth, leaves = _size(part)
            return 1 + depth, leaves
        case _:
            return 0, 1


def _unknown_operator(
    operator: object, *operators: str, field: Field | None = None
) -> InvalidFilter:
    place = f" on {field!r}" if field is not None else ""
    close = get_close_matches(str(operator), operators, n=1, cutoff=0.5)
    way_out = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(operators)}"
    return InvalidFilter(
        f"unknown filter operator {operator!r}{place}: {way_out}",
        rule="R11",
        field=field,
        operator=str(operator),
    )


def _too_deep() -> InvalidFilter:
    return InvalidFilter(f"a filter nests at most {MAX_DEPTH} operators", rule="R11")


def _too_many() -> InvalidFilter:
    return InvalidFilter(f"a filter has at most {MAX_LEAVES} conditions", rule="R11")


def fold(filter: Filter | None) -> Filter | bool:
    """Return True where every record passes, False where none does, else a filter to translate.

    The result has no empty `$in`, `$nin`, `$and` or `$or`, no `$and` or `$or` of one part and no
    double negation, so a translator never meets the constructs that backends read differently.
    """
    match filter:
        case None:
            return True
        case Leaf(operator="$in" | "$nin", operand=()):
            return filter.operator == "$nin"
        case Not(part):
            return _complement(fold(part))
        case And(parts):
            return _junction(And, parts, neutral=True)
        case Or(parts):
            return _junction(Or, parts, neutral=False)
        case _:
            return filter


def _complement(part: Filter | bool) -> Filter | bool:
    match part:
        case bool():
            return not part
        case Not(inner):
            return inner
        case _:
            return Not(part)


def _junction(kind: type[And | Or], parts: tuple[Filter, ...], *, neutral: bool) -> Filter | bool:
    folded = [fold(part) for part in parts]
    if any(part is (not neutral) for part in folded):
        return not neutral
    kept = tuple(part for part in folded if isinstance(part, Filter))
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else kind(kept)
