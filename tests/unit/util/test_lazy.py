"""Lazily exported names: loaded on first use, listed before, and unknown ones refused."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from lib._util.lazy import lazy_exports


@pytest.fixture
def package() -> Iterator[Any]:
    module = ModuleType("a_package")
    sys.modules["a_package"] = module
    exports = {"loads": "json", "to_text": "json:dumps", "gone": "a_module_that_is_not_there"}
    load, names = lazy_exports("a_package", exports)
    vars(module).update(__getattr__=load, __dir__=names)
    yield module
    del sys.modules["a_package"]


def test_a_name_is_loaded_when_it_is_used_and_kept(package: Any) -> None:
    assert "loads" not in vars(package)

    assert package.loads("[1]") == [1]
    assert package.to_text([1]) == "[1]"
    assert "loads" in vars(package)


def test_all_names_are_listed_before_they_are_loaded(package: Any) -> None:
    assert {"loads", "to_text", "gone", "__name__"} <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error_that_names_the_package(package: Any) -> None:
    with pytest.raises(AttributeError, match="module 'a_package' has no attribute 'lods'"):
        package.lods  # noqa: B018 - the access is the test


def test_a_missing_module_is_an_import_error(package: Any) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        package.gone  # noqa: B018 - the access is the test
