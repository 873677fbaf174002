"""Numbers, bools and strings of numpy mean in filters what those of Python mean."""

from typing import Any

import numpy as np
import pytest

from lib.errors import InvalidFilter
from lib.vector import F, Filter

VALUES: list[tuple[Any, object]] = [
    (np.int64(3), 3),
    (np.uint8(3), 3),
    (np.float32(0.5), 0.5),
    (np.float64(0.5), 0.5),
    (np.bool_(1), True),
    (np.str_("x"), "x"),
]


def test_values_of_numpy_make_the_filters_of_their_python_values() -> None:
    for value, plain in VALUES:
        assert Filter.parse({"x": value}) == Filter.parse({"x": plain}), value
        assert (F("x") == value) == Filter.parse({"x": plain}), value
        assert F("x").in_([value]) == Filter.parse({"x": {"$in": [plain]}}), value
        assert F("x").contains(value) == Filter.parse({"x": {"$contains": plain}}), value
    numbers: Any = np.array([1, 2])
    assert F("x").in_(numbers) == Filter.parse({"x": {"$in": [1, 2]}})
    assert F("x").exists(VALUES[4][0]) == F("x").exists()


def test_a_number_of_numpy_on_the_left_is_compared_with_the_field() -> None:
    three: Any = np.int64(3)
    assert (three < F("x")) == (F("x") > 3)
    assert (three == F("x")) == (F("x") == 3)


def test_what_numpy_has_and_json_has_not_is_refused() -> None:
    values: list[Any] = [
        np.float32("nan"),
        np.float64("inf"),
        np.datetime64("2026-01-01"),
        np.bytes_(b"x"),
        np.complex64(1),
        np.longdouble(1),
        np.array(3),
        np.array([3]),
        np.ma.masked,
        np.uint64(2**63),
    ]
    for value in values:
        with pytest.raises(InvalidFilter):
            Filter.parse({"x": value})
