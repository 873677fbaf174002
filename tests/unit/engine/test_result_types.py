"""Tests what a type checker knows of how a run has ended."""

from typing import get_type_hints

from lib.engine import Result
from lib.events import RunInfo
from lib.events.kinds import Outcome


def test_an_outcome_is_one_of_the_defined_words() -> None:
    for kind in (Result, RunInfo):
        assert get_type_hints(kind)["outcome"] == Outcome | None, kind
