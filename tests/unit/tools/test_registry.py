from operator import attrgetter
from typing import Any

import pytest

from lib.errors import ToolError
from lib.tools import ToolRegistry, tool


@tool
def search(query: str) -> str:
    return query


@tool
def send(text: str) -> str:
    return text


def test_tools_are_kept_in_order_and_found_by_name() -> None:
    registry = ToolRegistry([send, search])

    assert (len(registry), list(registry)) == (2, [send, search])
    assert registry.get("search") is search
    assert "search" in registry
    assert "fetch" not in registry


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named 'send'"):
        ToolRegistry([send, send])


def test_what_is_no_tool_is_refused_with_a_way_out() -> None:
    plain: Any = [len]
    single: Any = send

    with pytest.raises(
        TypeError, match=r"expected a Tool, got .*: write @tool before the function"
    ):
        ToolRegistry(plain)
    with pytest.raises(TypeError, match=r"expected tools as a list, got a tool: write \[send\]"):
        ToolRegistry(single)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("serch", "no tool is named 'serch': did you mean 'search'?"),
        ("xyz", "no tool is named 'xyz': there is send, search"),
    ],
)
def test_the_error_of_an_unknown_name_lists_the_known_ones(name: str, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        ToolRegistry([send, search]).get(name)

    assert (caught.value.code, caught.value.message) == ("not_found", message)


def test_a_name_that_may_not_be_used_is_as_unknown_as_any_other() -> None:
    registry = ToolRegistry([send, search])

    assert registry.get("search", among=["search"]) is search
    with pytest.raises(ToolError) as caught:
        registry.get("send", among=["search"])
    assert caught.value.message == "no tool is named 'send': there is search"
    with pytest.raises(ToolError) as none:
        registry.get("x" * 1_000, among=[])
    assert none.value.message == f"no tool is named {'x' * 64!r}: there is none"


def test_a_tool_tells_a_model_its_name_description_and_schema() -> None:
    spec = search.spec

    assert (spec.name, spec.description) == ("search", "")
    assert spec.input_schema["required"] == ["query"]
    assert search.needs_approval({}) is False


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    import lib.tools

    with pytest.raises(AttributeError, match="has no attribute 'fetch'"):
        attrgetter("fetch")(lib.tools)
