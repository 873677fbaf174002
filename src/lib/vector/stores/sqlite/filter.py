"""Filters as SQL over a JSON column: every key and every value is a parameter.

A key is compared with `json_each.key`, since a JSON path cannot address one that holds a quote;
and every comparison tests the JSON type first, since SQLite would order any text above any number.
A nested key is looked up in the object that the keys before it lead to.
Each condition is an EXISTS, so it is never NULL and NOT is its exact complement.

Source: https://www.sqlite.org/json1.html, "The json_each() and json_tree() table-valued functions".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from lib._util.json import compact
from lib.vector.filter import And, Filter, Leaf, Not, Or
from lib.vector.filter.field import Field, names_of
from lib.vector.filter.operands import Operand

Condition: TypeAlias = tuple[str, list[Any]]

_ORDER = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_TEXT, _NUMBER = "'text'", "'integer', 'real'"


def chosen(namespace: str, filter: Filter | None, ids: list[str] | None) -> Condition:
    """Return an expression over the columns of a row that is true where it may be chosen.

    Args:
        namespace: of the row.
        filter: what it has to pass, folded; None if all do.
        ids: what its id has to be one of; None if any will do.
    """
    tests, parameters = ["namespace = ?"], list[Any]([namespace])
    if ids is not None:
        tests.append("id IN (SELECT value FROM json_each(?))")
        parameters.append(compact(ids))
    if filter is not None:
        test, values = condition(filter)
        tests.append(test)
        parameters += values
    return " AND ".join(tests), parameters


def condition(filter: Filter) -> Condition:
    """Return an expression over the column `meta` that is true where the filter passes.

    Args:
        filter: folded: no constant parts.

    Returns:
        sql: an expression that is 0 or 1.
        parameters: one for each question mark in it.
    """
    match filter:
        case And(parts):
            return _joined(" AND ", [condition(part) for part in parts])
        case Or(parts):
            return _joined(" OR ", [condition(part) for part in parts])
        case Not(part):
            return _negated(condition(part))
        case Leaf():
            return _leaf(filter)
        case _:
            raise TypeError(f"not a filter: {type(filter).__name__}")


def _leaf(leaf: Leaf) -> Condition:
    match leaf.operator:
        case "$eq" | "$in":
            return _one_of(leaf)
        case "$ne" | "$nin":
            return _negated(_one_of(leaf))
        case "$exists":
            return _present(leaf.field) if leaf.operand else _negated(_present(leaf.field))
        case "$contains":
            element, parameters = _equal("e", [leaf.operand])
            # only fixed words stand in the SQL
            within = f"EXISTS(SELECT 1 FROM json_each(j.value) e WHERE {element})"  # noqa: S608 - see above
            return _field(leaf.field, (f"j.type = 'array' AND {within}", parameters))
        case _:
            order = f"j.atom {_ORDER[leaf.operator]} ?"
            compared = f"j.type IN ({_types(leaf.operand)}) AND {order}"
            return _field(leaf.field, (compared, [leaf.operand]))


def _one_of(leaf: Leaf) -> Condition:
    wanted = leaf.operand if isinstance(leaf.operand, tuple) else (leaf.operand,)
    values = [value for value in wanted if value is not None]
    ways: list[Condition] = []
    if values:
        ways.append(_field(leaf.field, _equal("j", values)))
    if len(values) < len(wanted):
        ways.append(_negated(_present(leaf.field)))
    return _joined(" OR ", ways)


def _equal(row: str, values: Sequence[Operand]) -> Condition:
    """Compare a row of `json_each` with values of any classes."""
    truths = [value for value in values if isinstance(value, bool)]
    ways: list[Condition] = [(f"{row}.type = '{str(truth).lower()}'", []) for truth in truths]
    for types in (_TEXT, _NUMBER):
        same = [value for value in values if not isinstance(value, bool) and _types(value) == types]
        if same:
            # `row` is one of two aliases
            listed = f"{row}.atom IN (SELECT atom FROM json_each(?))"  # noqa: S608 - see above
            ways.append((f"{row}.type IN ({types}) AND {listed}", [compact(same)]))
    return _joined(" OR ", ways)


def _types(value: Operand) -> str:
    return _TEXT if isinstance(value, str) else _NUMBER


def _present(field: Field) -> Condition:
    return _field(field, ("j.type <> 'null'", []))


def _field(field: Field, test: Condition) -> Condition:
    sql, parameters = test
    names, within = names_of(field), "meta"
    for _ in names[1:]:  # of an object that is missing, `json_each(NULL)` has no row
        # only fixed words stand in the SQL
        within = f"(SELECT value FROM json_each({within}) WHERE key = ? AND type = 'object')"  # noqa: S608 - see above
    # the test is made of fixed words
    exists = f"EXISTS(SELECT 1 FROM json_each({within}) j WHERE j.key = ? AND ({sql}))"  # noqa: S608 - see above
    return exists, [*names, *parameters]


def _negated(part: Condition) -> Condition:
    sql, parameters = part
    return f"NOT {sql}", parameters


def _joined(operator: str, parts: Sequence[Condition]) -> Condition:
    sql = operator.join(sql for sql, _ in parts)
    return f"({sql})", [value for _, parameters in parts for value in parameters]
