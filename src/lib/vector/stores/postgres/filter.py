"""Filters as SQL over a `jsonb` column: every key and every value is a parameter.

Each condition is true or false and never NULL, so that NOT is its exact complement. Equality is
containment (`@>`), which tells the JSON types apart and which the GIN index on `meta` answers;
comparisons test the type first, since `jsonb` orders any string above any number. A nested key is
reached by `->`, name by name: unlike `#>`, it never takes a name for a place in an array.

Source: https://www.postgresql.org/docs/18/datatype-json.html, "jsonb Containment and Existence".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from lib._util.json import compact
from lib.vector.filter import And, Filter, Leaf, Not, Or
from lib.vector.filter.field import names_of
from lib.vector.stores.postgres.driver import sql

_ORDER: Final = {
    "$gt": sql.SQL(">"),
    "$gte": sql.SQL(">="),
    "$lt": sql.SQL("<"),
    "$lte": sql.SQL("<="),
}
_INDEXED_VALUES: Final = 10  # of an `$in`: more are compared by a hash table, without the index
_EXACT_FLOATS: Final = 2.0**53


def written(value: Any) -> str:
    """Return JSON that gives the value back as it was."""
    return compact(value)


def comparable(text: str, value: Any) -> str:
    """Return JSON that `jsonb`, whose numbers are decimal, compares as Python compares the value.

    From 2**53 on, the shortest decimal of a float is not always the float: it becomes an integer.

    Args:
        text: what `written` returns.
        value: what it was written from.
    """
    return compact(_decimal(value)) if "e+" in text else text


def condition(filter: Filter, parameters: dict[str, Any]) -> sql.Composable:
    """Return an expression over the column `meta` that is true where the filter passes.

    Args:
        filter: folded: no constant parts.
        parameters: by name; those of the filter are added.
    """
    match filter:
        case And(parts):
            return _joined(" AND ", [condition(part, parameters) for part in parts])
        case Or(parts):
            return _joined(" OR ", [condition(part, parameters) for part in parts])
        case Not(part):
            return _negated(condition(part, parameters))
        case Leaf():
            return _Leaf(filter, parameters).condition()
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")


class _Leaf:
    """One operator on one field."""

    def __init__(self, leaf: Leaf, parameters: dict[str, Any]) -> None:
        self._leaf, self._parameters = leaf, parameters

    def condition(self) -> sql.Composable:
        operand = self._leaf.operand
        match self._leaf.operator:
            case "$eq" | "$in":
                return self._one_of()
            case "$ne" | "$nin":
                return _negated(self._one_of())
            case "$exists":
                return self._present() if operand else _negated(self._present())
            case "$contains":
                return self._containing([operand])
            case _:
                return self._ordered()

    def _one_of(self) -> sql.Composable:
        operand = self._leaf.operand
        wanted = operand if isinstance(operand, tuple) else (operand,)
        values = [value for value in wanted if value is not None]
        ways: list[sql.Composable] = []
        if 0 < len(values) <= _INDEXED_VALUES:
            ways.extend(self._containing(value) for value in values)
        elif values:
            stored, _ = self._value()
            listed = self._named([compact(_decimal(value)) for value in values])
            equal = "coalesce(({}) = ANY({}::jsonb[]), false)"
            ways.append(sql.SQL(equal).format(stored, listed))
        if len(values) < len(wanted):
            ways.append(_negated(self._present()))
        return _joined(" OR ", ways)

    def _containing(self, value: Any) -> sql.Composable:
        part = _decimal(value)
        for name in reversed(names_of(self._leaf.field)):
            part = {name: part}
        return sql.SQL("meta @> {}::jsonb").format(self._named(compact(part)))

    def _present(self) -> sql.Composable:
        there = "coalesce(jsonb_typeof({}) <> 'null', false)"
        stored, _ = self._value()
        return sql.SQL(there).format(stored)

    def _ordered(self) -> sql.Composable:
        (stored, text), order = self._value(), _ORDER[self._leaf.operator]
        if isinstance(self._leaf.operand, str):
            test = "jsonb_typeof({0}) = 'string' AND ({1}) COLLATE \"C\" {2} {3}"
            value = self._named(self._leaf.operand)
        else:
            test = "jsonb_typeof({0}) = 'number' AND ({0}) {2} {3}::jsonb"
            value = self._named(compact(_decimal(self._leaf.operand)))
        compared = sql.SQL(test).format(stored, text, order, value)
        return sql.SQL("coalesce({}, false)").format(compared)

    def _value(self) -> tuple[sql.Composable, sql.Composable]:
        """Return the value of the field, as `jsonb` and as text; NULL where it is absent."""
        names = map(self._named, names_of(self._leaf.field))
        *outer, last = [sql.SQL("{}::text").format(name) for name in names]
        within = sql.SQL(" -> ").join([sql.SQL("meta"), *outer])
        return (
            sql.SQL("{} -> {}").format(within, last),
            sql.SQL("{} ->> {}").format(within, last),
        )

    def _named(self, value: Any) -> sql.Placeholder:
        name = f"filter_{len(self._parameters)}"
        self._parameters[name] = value
        return sql.Placeholder(name)


def _negated(part: sql.Composable) -> sql.Composable:
    return sql.SQL("NOT ({})").format(part)


def _joined(operator: Any, parts: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(operator).join(parts))


def _decimal(value: Any) -> Any:
    """Return JSON data with its large floats as the integers that they are."""
    if isinstance(value, float):
        return int(value) if abs(value) >= _EXACT_FLOATS else value
    if isinstance(value, dict):
        return {key: _decimal(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_decimal(item) for item in cast(list[Any], value)]
    return value
