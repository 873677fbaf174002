"""The table of requirements is complete in both directions: each has tests, and each test exists."""

import ast
from collections import Counter
from pathlib import Path

from .requirements import HEADINGS, REQUIREMENTS

ROOT = Path(__file__).parents[2]
TESTS = {test for requirement in REQUIREMENTS for test in requirement.tests}


def defined(path: Path) -> set[str]:
    """Return the node ids of the tests that a file defines, and of those that its classes inherit."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = path.relative_to(ROOT).as_posix()
    owners = [(file, tree.body)]
    owners += [(f"{file}::{n.name}", n.body) for n in tree.body if isinstance(n, ast.ClassDef)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        f"{owner}::{n.name}" for owner, body in owners for n in body if isinstance(n, functions)
    }


def test_each_id_stands_once() -> None:
    counted = Counter(requirement.id for requirement in REQUIREMENTS)

    assert [name for name, times in counted.items() if times > 1] == []


def test_each_requirement_has_tests_or_a_reason_for_having_none() -> None:
    assert [r.id for r in REQUIREMENTS if bool(r.tests) == bool(r.missing)] == []


def test_each_test_that_holds_a_requirement_exists() -> None:
    files = {ROOT / test.partition("::")[0] for test in TESTS}
    gone = [path for path in files if not path.is_file()]
    there = {test for path in files if path.is_file() for test in defined(path)}

    assert gone == []
    assert sorted(TESTS - there) == [], "rename them in tests/spec/requirements.py, too"


def test_each_heading_has_a_requirement_and_each_requirement_a_heading() -> None:
    assert set(HEADINGS) == {requirement.source for requirement in REQUIREMENTS}
