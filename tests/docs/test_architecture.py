"""The walk through the code names files and functions that exist, in ten steps or fewer."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
SOURCE = ROOT / "src" / "lib"
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`: .+\.$")
FILE = re.compile(r"`([\w/]+\.py)`")


def names(path: Path) -> set[str]:
    """Return the functions, classes and methods of a module, methods as `Class.method`."""
    found = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [
                each.name
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            found |= {f"{node.name}.{method}" for method in methods}
    return found


def test_each_named_file_and_function_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [name for name in FILE.findall(text) if not (SOURCE / name).is_file()]
    for line in text.splitlines():
        if step := STEP.match(line):
            file, name = step.groups()
            if file not in missing and name not in names(SOURCE / file):
                missing.append(f"{file} {name}")

    assert missing == []


def test_each_walk_has_ten_steps_or_fewer() -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]

    assert len(sections) >= 4
    for section in sections:
        numbered = [line for line in section.splitlines() if re.match(r"\d+\. ", line)]
        assert all(STEP.match(line) for line in numbered), section
        assert 1 <= len(numbered) <= 10, section
