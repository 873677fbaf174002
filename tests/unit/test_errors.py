"""Errors carry facts, and every one of them is in the tree that stands on top of the file."""

import re
import tomllib
from pathlib import Path

import lib.errors
from lib.errors import LibError, MissingDriver, install_command

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_a_missing_driver_says_what_to_install() -> None:
    error = MissingDriver("PostgresVectorStore", driver="psycopg", extra="postgres")

    assert isinstance(error, ImportError)
    assert (error.what, error.driver, error.extra) == (
        "PostgresVectorStore",
        "psycopg",
        "postgres",
    )
    assert str(error).startswith("PostgresVectorStore needs psycopg: pip install 'psycopg[")


def test_every_extra_has_a_command_that_needs_no_index_with_this_package() -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    del extras["all"]  # made of the others
    for extra, brings in extras.items():
        names = [re.match(r"[\w.-]+", line) for line in brings]
        command = install_command(extra)

        assert command.startswith("pip install '"), extra
        assert all(name and name[0] in command for name in names), (extra, command)


def test_no_page_or_message_names_an_index_that_does_not_have_the_package() -> None:
    root = PROJECT.parent
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "src").rglob("*.py")]

    assert [
        str(page.relative_to(root))
        for page in pages
        if re.search(r"pip install '?lib-agents(?!\[\w+\] @ )", page.read_text(encoding="utf-8"))
    ] == []


def test_the_tree_shows_every_error_and_no_other() -> None:
    line = re.compile(r"^ *[│├└─ ]*([A-Z]\w+)(?: \(also \w+\))?$", re.MULTILINE)
    shown = set(line.findall(lib.errors.__doc__ or ""))
    defined = {
        name
        for name, value in vars(lib.errors).items()
        if isinstance(value, type) and issubclass(value, LibError)
    }

    assert shown == defined
