"""The programs of the README are as short as it claims, in statements and in lines."""

import ast
from pathlib import Path

PROGRAMS = Path(__file__).parents[2] / "docs_src"


def read(name: str) -> tuple[str, ast.Module]:
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    return text, ast.parse(text)


def imports(tree: ast.Module) -> list[ast.stmt]:
    return [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]


def lines_of_code(text: str, tree: ast.Module) -> int:
    """Count the lines that hold code or a docstring: no blank lines, comments or imports."""
    imported = {
        line
        for node in imports(tree)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in imported
        for number, line in enumerate(text.splitlines(), 1)
    )


def test_hello_world_has_one_import_and_five_lines() -> None:
    text, tree = read("hello")

    assert [ast.unparse(node) for node in imports(tree)] == ["from lib import Agent"]
    assert len(text.splitlines()) <= 5
    assert lines_of_code(text, tree) == 3


def test_crash_safe_refund_has_at_most_fifteen_lines_with_its_check() -> None:
    text, tree = read("readme")
    keywords = {
        keyword.arg: ast.unparse(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    }

    assert lines_of_code(text, tree) <= 15
    assert (keywords["effects"], keywords["check"]) == ("'once'", "was_refunded")
    assert (keywords["store"], keywords["key"]) == ("'runs.db'", "'ticket-1234'")
