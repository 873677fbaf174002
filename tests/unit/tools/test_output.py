from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from lib.errors import ToolError
from lib.tools.output import as_text, clip


@dataclass
class Point:
    x: int


class Place(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        ({"b": 1, "a": [True]}, '{"a":[true],"b":1}'),
        (Point(3), '{"x":3}'),
        (Place(name="Bonn"), '{"name":"Bonn"}'),
        ([Place(name="Bonn")], '[{"name":"Bonn"}]'),
        ({"day": date(2026, 1, 2)}, '{"day":"2026-01-02"}'),
        (7, "7"),
    ],
)
def test_results_become_text(value: Any, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize("value", [object(), b"\xff", {"x": float("nan")}, Point])
def test_what_is_no_plain_data_is_a_failure_of_the_tool(value: Any) -> None:
    with pytest.raises(ToolError) as caught:
        as_text(value)

    assert caught.value.code == "failed"


def test_long_output_is_cut_and_says_how_much() -> None:
    assert clip("abc", 3) == ("abc", 0)
    assert clip("abcdef", 4) == ("abcd\n[2 of 6 characters cut]", 2)
