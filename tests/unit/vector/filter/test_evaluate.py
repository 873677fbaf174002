"""Tests what each operator says of each value: the reference, written out."""

from typing import Any

import numpy as np
import pytest

from lib.vector.filter import F, Filter, matches
from lib.vector.filter.columns import Column, Columns, mask

VALUES: dict[str, Any] = {
    "None": None,
    "True": True,
    "0": 0,
    "1": 1,
    "1.0": 1.0,
    "2": 2,
    "'1'": "1",
    "'a'": "a",
    "'B'": "B",
    "[]": [],
    "['a']": ["a"],
    "[1.0]": [1.0],
    "[True]": [True],
    "[[1]]": [[1]],
    "{}": {},
    "{'x': 1}": {"x": 1},
}
PASSING: list[tuple[Filter, set[str]]] = [
    (F("x") == 1, {"1", "1.0"}),
    (F("x") == True, {"True"}),  # noqa: E712 - builds a filter
    (F("x") == "1", {"'1'"}),
    (F("x") == None, {"None", "missing"}),  # noqa: E711 - builds a filter
    (F("x") != 1, {*VALUES, "missing"} - {"1", "1.0"}),
    (F("x") > 0, {"1", "1.0", "2"}),
    (F("x") >= 1.0, {"1", "1.0", "2"}),
    (F("x") < 1, {"0"}),
    (F("x") <= 1, {"0", "1", "1.0"}),
    (F("x") > "1", {"'a'", "'B'"}),
    (F("x") < "a", {"'1'", "'B'"}),
    (F("x").in_([0, "a", False]), {"0", "'a'"}),
    (F("x").in_([None]), {"None", "missing"}),
    (F("x").in_([]), set()),
    (F("x").not_in([1, None]), {*VALUES} - {"1", "1.0", "None"}),
    (F("x").not_in([]), {*VALUES, "missing"}),
    (F("x").exists(), {*VALUES} - {"None"}),
    (F("x").exists(present=False), {"None", "missing"}),
    (F("x").contains("a"), {"['a']"}),
    (F("x").contains(1), {"[1.0]"}),
    (F("x").contains(True), {"[True]"}),  # noqa: FBT003 - the value
    (~(F("x") > 0), {*VALUES, "missing"} - {"1", "1.0", "2"}),
    ((F("x") > 0) & (F("x") < 2), {"1", "1.0"}),
    ((F("x") == 2) | (F("x") == "a"), {"2", "'a'"}),
]
METAS: dict[str, dict[str, Any]] = {name: {"x": value} for name, value in VALUES.items()}
METAS["missing"] = {"y": 1}


def _name(part: Filter | set[str]) -> str:
    """Return the same name in every process, as test runners that share the work need it."""
    return repr(sorted(part) if isinstance(part, set) else part)[:60]


@pytest.mark.parametrize(("filter", "passing"), PASSING, ids=_name)
def test_each_operator_lets_through_what_its_rule_says(filter: Filter, passing: set[str]) -> None:
    assert {name for name, meta in METAS.items() if matches(filter, meta)} == passing


@pytest.mark.parametrize(("filter", "passing"), PASSING, ids=_name)
def test_the_columns_say_the_same(filter: Filter, passing: set[str]) -> None:
    metas = list(METAS.values())
    columns = Columns(lambda start, end: metas[start:end])

    mask = columns.mask(filter, len(metas))
    assert {name for name, passes in zip(METAS, mask, strict=True) if passes} == passing


def test_large_numbers_are_compared_exactly() -> None:
    metas = [{"x": value} for value in (2**53, 2**53 + 1, float(2**53), 2**63 - 1, float(2**63))]
    columns = Columns(lambda start, end: metas[start:end])

    for filter, expected in (
        (F("x") == 2**53, [True, False, True, False, False]),
        (F("x") > 2**53, [False, True, False, True, True]),
        (F("x") < float(2**63), [True, True, True, True, False]),
    ):
        assert [matches(filter, meta) for meta in metas] == expected
        assert columns.mask(filter, len(metas)).tolist() == expected


def test_columns_follow_the_rows_that_come() -> None:
    metas: list[dict[str, Any]] = []
    columns = Columns(lambda start, end: metas[start:end])
    filters = [
        F("x") >= 1_500,
        F("x") < 10,
        F("x") == 300,
        F("x").in_([5, 299, 2_001]),
        F("s") > "s5",
        F("s") <= "s1",
        ~F("x").exists(),
    ]

    for size in (3, 250, 260, 2000, 2001, 4000):
        metas += [{"x": row, "s": f"s{row}"} for row in range(len(metas), size)]
        for filter in filters:
            expected = [matches(filter, meta) for meta in metas]
            assert columns.mask(filter, size).tolist() == expected
            assert columns.mask(filter, 3).tolist() == expected[:3]
            assert columns.pending(filter, size) == 0
        assert columns.pending(filters[0] & (F("y") == 1), size + 2) == size + 2 + 2


def test_a_column_takes_as_many_values_as_there_are_rows() -> None:
    metas = [{"x": row} for row in range(70_000)]
    columns = Columns(lambda start, end: metas[start:end])

    for size in (60_000, 70_000):
        assert columns.mask(F("x") == size - 1, size).nonzero()[0].tolist() == [size - 1]
        assert columns.mask(F("x") >= size - 2, size).nonzero()[0].tolist() == [size - 2, size - 1]


def test_a_column_of_some_rows_says_the_same_of_them_and_forgets_the_values_of_others() -> None:
    values = [row if row % 3 else f"s{row}" if row % 2 else [row, "a"] for row in range(3_000)]
    column, kept = Column(), np.arange(0, 3_000, 7)
    column.extend(values)
    moved, left = column.moved(kept), [{"x": values[row]} for row in kept]
    moved.extend([5, "s9"])
    left += [{"x": 5}, {"x": "s9"}]

    for filter in (F("x") > 1_000, F("x") <= "s2", F("x").contains("a"), F("x") == 5, F("x") != 6):
        expected = [matches(filter, meta) for meta in left]
        assert mask(filter, {"x": moved}, len(left)).tolist() == expected
    assert moved.nbytes < column.nbytes / 4
