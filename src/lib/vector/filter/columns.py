"""Filters over many records at once: metadata fields as columns of codes.

Two values that no filter can tell apart share a code (1 and 1.0; any two objects; two lists with
the same elements), so a condition is decided once per code and looked up per row. A column is
filled when a filter first names its field, and extended by the rows that have come since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import ge, gt, le, lt
from sys import getsizeof
from types import NoneType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lib.vector.filter.field import Field, values_at
from lib.vector.filter.language import And, Filter, Leaf, Not, Or
from lib.vector.filter.operands import Operand

Mask = NDArray[np.bool_]

_ORDER: dict[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_ABSENT = 0  # the code of every field that is missing or None
_VALUE_BYTES = 150  # what Python keeps beside a distinct value


class Columns:
    """The columns of records that are only ever appended; one caller at a time."""

    def __init__(self, read: Callable[[int, int], Iterable[Mapping[str, Any]]]) -> None:
        """Take what reads the metadata of rows, from one to before another; rows never change."""
        self._read = read
        self._columns: dict[Field, Column] = {}

    def pending(self, filter: Filter, n: int) -> int:
        """Return how many values must be read before `mask` can answer."""
        return sum(max(0, n - len(self._columns.get(field, ()))) for field in fields(filter))

    def mask(self, filter: Filter, n: int) -> Mask:
        """Return for each of the first n rows whether it passes: what `matches` says of each."""
        for field in fields(filter):
            column = self._columns.setdefault(field, Column())
            if len(column) < n:
                column.extend(values_at(self._read(len(column), n), field))
        return mask(filter, self._columns, n)


def mask(filter: Filter, columns: Mapping[Field, Column], n: int) -> Mask:
    """Return for each of the first n rows whether it passes, by the columns of its fields."""

    def masks(parts: tuple[Filter, ...]) -> Iterator[Mask]:
        return (mask(part, columns, n) for part in parts)

    match filter:
        case And(parts):
            return reduce(np.logical_and, masks(parts), np.ones(n, np.bool_))
        case Or(parts):
            return reduce(np.logical_or, masks(parts), np.zeros(n, np.bool_))
        case Not(part):
            return ~mask(part, columns, n)
        case Leaf(field, operator, operand):
            return columns[field].mask(operator, operand, n)
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")


class Column:
    """One field: a code for each row, and what each code stands for.

    One thread may extend it while others read the rows that were there before.

    Attributes:
        nbytes: how much memory it takes, about.
    """

    def __init__(self) -> None:
        """Start without rows."""
        self._codes: NDArray[np.unsignedinteger[Any]] = np.empty(0, np.uint8)
        self._size = 0
        self._code_of: dict[Hashable, int] = {None: _ABSENT}
        self._numbers = _Ordered()
        self._strings = _Ordered()
        self._containing: dict[Hashable, list[int]] = {}
        self._values_bytes = 0

    def __len__(self) -> int:
        """Return how many rows it has."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, about."""
        return self._codes.nbytes + self._values_bytes

    def extend(self, values: Sequence[object]) -> None:
        """Append the field's values in the rows that follow."""
        code_of, codes = self._code_of, list[int]()
        for value in values:
            key = _key(value)
            code = code_of.get(key)
            codes.append(self._new_code(key) if code is None else code)
        self._append(codes)

    def moved(self, kept: NDArray[np.intp]) -> Column:
        """Return the column of these rows alone, without values that they do not have."""
        codes, keys, column = self._codes[kept], list(self._code_of), Column()
        used: list[int] = np.unique(codes).tolist()
        places = np.zeros(len(keys), np.intp)
        for code in used:
            if code != _ABSENT:
                places[code] = column._new_code(keys[code])
        column._append(places[codes])
        return column

    def _append(self, codes: Sequence[int] | NDArray[np.intp]) -> None:
        start, end = self._size, self._size + len(codes)
        # As narrow as the codes allow: what a filter costs is reading them.
        kind = np.min_scalar_type(len(self._code_of) - 1)
        if end > len(self._codes) or kind != self._codes.dtype:
            grown = np.empty(max(end, start + start // 2), kind)
            grown[:start] = self._codes[:start]
            self._codes = grown
        self._codes[start:end] = codes
        self._size = end
        for ordered in (self._numbers, self._strings):
            ordered.settle()

    def mask(self, operator: str, operand: Operand, n: int) -> Mask:
        """Return which of the first n rows the operator accepts."""
        match operator:
            case "$eq" | "$in":
                return self._coded(self._equal(operand), n)
            case "$ne" | "$nin":
                return ~self._coded(self._equal(operand), n)
            case "$exists":
                return (self._codes[:n] != _ABSENT) == operand
            case "$contains":
                return self._coded(self._containing.get(_key(operand), ()), n)
            case _:
                ordered = self._strings if isinstance(operand, str) else self._numbers
                return self._coded(ordered.codes(operator, operand), n)

    def _equal(self, operand: Operand) -> list[int]:
        wanted = operand if isinstance(operand, tuple) else (operand,)
        codes = (self._code_of.get(_key(value)) for value in wanted)
        return [code for code in codes if code is not None]

    def _coded(self, accepted: Sequence[int] | NDArray[np.int32], n: int) -> Mask:
        """Return which rows have one of the codes."""
        if len(accepted) == 1:
            return self._codes[:n] == accepted[0]
        codes = np.asarray(accepted, np.intp)  # first: a writer may add codes meanwhile
        table = np.zeros(len(self._code_of), np.bool_)
        table[codes] = True
        return np.take(table, self._codes[:n], mode="clip")

    def _new_code(self, key: Hashable) -> int:
        code = self._code_of[key] = len(self._code_of)
        self._values_bytes += _VALUE_BYTES + getsizeof(key)
        match key:
            case str():
                self._strings.add(key, code)
            case int() | float():
                self._numbers.add(key, code)
            case _List():
                self._values_bytes += len(key.elements) * _VALUE_BYTES
                for element in key.elements:
                    self._containing.setdefault(element, []).append(code)
            case _:
                pass  # a bool or an object, which has no order and no elements
        return code


class _Ordered:
    """The distinct values of one class: a sorted run, and the few that have come since.

    A value may be in both for a moment, and is never in neither: others read meanwhile.
    """

    def __init__(self) -> None:
        self._run: tuple[list[Any], NDArray[np.int32]] = [], np.empty(0, np.int32)
        self._fresh: list[tuple[Any, int]] = []

    def add(self, value: object, code: int) -> None:
        """Remember what a code stands for."""
        self._fresh.append((value, code))

    def settle(self) -> None:
        """Sort the values, once many have come since."""
        values, codes = self._run
        if len(self._fresh) <= 1000 + len(values) // 8:
            return
        merged = sorted([*zip(values, codes.tolist(), strict=True), *self._fresh])
        self._run = (
            [value for value, _ in merged],
            np.array([code for _, code in merged], np.int32),
        )
        self._fresh = []

    def codes(self, operator: str, operand: object) -> NDArray[np.int32]:
        """Return the codes of the values that compare so with the operand."""
        compare = _ORDER[operator]
        fresh = [code for value, code in self._fresh if compare(value, operand)]
        values, codes = self._run  # read last: see `settle`
        return np.concatenate([codes[_range(values, operator, operand)], np.array(fresh, np.int32)])


def _range(values: list[Any], operator: str, operand: Any) -> slice:
    match operator:
        case "$gt":
            return slice(bisect_right(values, operand), None)
        case "$gte":
            return slice(bisect_left(values, operand), None)
        case "$lt":
            return slice(bisect_left(values, operand))
        case _:
            return slice(bisect_right(values, operand))


def fields(filter: Filter) -> set[Field]:
    """Return the fields that a filter names."""
    match filter:
        case And(parts) | Or(parts):
            return set[Field]().union(*map(fields, parts))
        case Not(part):
            return fields(part)
        case Leaf(field):
            return {field}
        case _:
            return set()


# Keys of values that Python would take for numbers, or cannot hash.
_FALSE, _TRUE, _OBJECT = object(), object(), object()
_OWN_KEY = frozenset({NoneType, int, float, str})


@dataclass(frozen=True, slots=True)
class _List:
    """The key of a list: what it contains, since no filter sees order or number."""

    elements: frozenset[Hashable]


def _key(value: object) -> Hashable:
    """Return what values have in common that no filter can tell apart (rules R3 and R6)."""
    if type(value) in _OWN_KEY:
        return value
    match value:
        case bool():
            return _TRUE if value else _FALSE
        case list():
            return _List(frozenset(map(_key, cast(list[object], value))))
        case _:
            return _OBJECT
