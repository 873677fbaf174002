"""Errors carry facts, and every one of them is in the tree that stands on top of the file."""

import re

import lib.errors
from lib.errors import LibError, MissingDriver


def test_a_missing_driver_says_what_to_install() -> None:
    error = MissingDriver("PostgresVectorStore", driver="psycopg", extra="postgres")

    assert isinstance(error, ImportError)
    assert (error.what, error.driver, error.extra) == (
        "PostgresVectorStore",
        "psycopg",
        "postgres",
    )
    assert str(error) == "PostgresVectorStore needs psycopg: pip install 'lib-agents[postgres]'"


def test_the_tree_shows_every_error_and_no_other() -> None:
    line = re.compile(r"^ *[│├└─ ]*([A-Z]\w+)(?: \(also \w+\))?$", re.MULTILINE)
    shown = set(line.findall(lib.errors.__doc__ or ""))
    defined = {
        name
        for name, value in vars(lib.errors).items()
        if isinstance(value, type) and issubclass(value, LibError)
    }

    assert shown == defined
