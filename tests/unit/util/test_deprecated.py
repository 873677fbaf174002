"""Deprecated names work, and warn each line that uses them once."""

import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from lib._util.deprecated import Moved, deprecated, deprecated_attributes, deprecated_parameter


@deprecated(use="total()", removed_in="0.9")
def add(first: int, second: int = 0) -> int:
    return first + second


@deprecated(use="total()", removed_in="0.9")
async def add_later(first: int, second: int) -> int:
    return first + second


@deprecated_parameter("rounded", use="digits=0", removed_in="1.0")
def show(value: float, rounded: bool = False, *, digits: int = 2) -> str:
    return f"{value:.{0 if rounded else digits}f}"


@pytest.fixture
def seen() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings under the filter that Python has by default for a main program."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield caught


@pytest.fixture
def old_home() -> Iterator[Any]:
    module = ModuleType("old_home")
    moved = {"to_text": Moved("json:dumps", removed_in="0.8")}
    vars(module)["__getattr__"] = deprecated_attributes("old_home", moved)
    sys.modules["old_home"] = module
    yield module
    del sys.modules["old_home"]


def messages(seen: list[warnings.WarningMessage]) -> list[str]:
    assert {warning.category for warning in seen} <= {DeprecationWarning}
    assert {warning.filename for warning in seen} <= {__file__}
    return [str(warning.message) for warning in seen]


def test_a_function_warns_each_calling_line_once(seen: list[warnings.WarningMessage]) -> None:
    results = [add(number, second=1) for number in range(3)]
    results.append(add(5))

    assert results == [1, 2, 3, 5]
    assert messages(seen) == ["add() is deprecated and goes in 0.9: use total()"] * 2
    assert add.__name__ == "add"


async def test_a_coroutine_function_warns_where_it_is_called(
    seen: list[warnings.WarningMessage],
) -> None:
    assert await add_later(1, 2) == 3

    assert messages(seen) == ["add_later() is deprecated and goes in 0.9: use total()"]


def test_a_parameter_warns_only_when_it_is_passed(seen: list[warnings.WarningMessage]) -> None:
    assert show(1.25) == "1.25"
    assert seen == []

    assert show(1.25, rounded=True) == "1"
    assert show(1.25, True) == "1"  # noqa: FBT003 - by position, as old callers do

    parameter = "parameter 'rounded' of show()"
    assert messages(seen) == [f"{parameter} is deprecated and goes in 1.0: use digits=0"] * 2


def test_a_parameter_that_a_function_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="has no parameter 'round'"):
        deprecated_parameter("round", use="digits=", removed_in="1.0")(show)


def test_an_attribute_that_has_moved_warns_and_is_found(
    old_home: Any, seen: list[warnings.WarningMessage]
) -> None:
    assert old_home.to_text([1]) == "[1]"

    assert messages(seen) == ["old_home.to_text is deprecated and goes in 0.8: use json.dumps"]


def test_other_attributes_are_looked_up_elsewhere_or_missing(old_home: Any) -> None:
    get = deprecated_attributes("old_home", {}, otherwise=str.upper)

    assert get("name") == "NAME"
    with pytest.raises(AttributeError, match="module 'old_home' has no attribute 'name'"):
        old_home.name  # noqa: B018 - the access is the test
