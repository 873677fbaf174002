import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lib.tools.builtin.files import resolved, steps
from lib.tools.builtin.files.found import Judge

sys.path.insert(0, str(Path(__file__).parent))

import path_walk

TREES = 200 if os.environ.get("LIB_TEST_LONG") else 10


def test_no_path_into_a_random_tree_reads_what_it_must_not() -> None:
    outcomes = path_walk.main(seed=20_261_121, trees=TREES)

    assert outcomes["trees"] == TREES
    assert outcomes["read"] > TREES
    assert outcomes["refused"] > TREES


def nothing_judged(_judge: Judge, _names: Sequence[bytes]) -> None:
    """Judge no name."""


def everything_inside(_tree: resolved.ResolvedTree, _path: str) -> list[bytes]:
    """Take every path for one inside."""
    return []


@pytest.mark.parametrize("careless", ["following links", "judging no place", "judging no name"])
def test_a_careless_walk_is_found_out(monkeypatch: pytest.MonkeyPatch, careless: str) -> None:
    match careless:
        case "following links":
            monkeypatch.setattr(steps, "_O_NOFOLLOW", 0)
        case "judging no place":
            monkeypatch.setattr(resolved.ResolvedTree, "_below", everything_inside)
        case _:
            monkeypatch.setattr(resolved, "_judge_each", nothing_judged)

    with pytest.raises(AssertionError):
        path_walk.main(seed=1, trees=50)
