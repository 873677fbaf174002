"""Tests what `lib.vector` offers, and what it loads."""

import subprocess
import sys

import pytest

import lib.vector
from lib.vector import Doc, FileVectorStore, Hit, Match, Record, SQLiteVectorStore


def test_every_name_is_there() -> None:
    for name in lib.vector.__all__:
        assert getattr(lib.vector, name) is not None


def test_what_the_specification_names_is_the_same_class() -> None:
    assert FileVectorStore is SQLiteVectorStore


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(lib.vector, "Nothing")  # noqa: B009 - a name that is not there


def test_importing_it_loads_neither_numpy_nor_a_driver() -> None:
    program = (
        "import sys; before = set(sys.modules); import lib.vector; "
        "print(sorted({'numpy', 'sqlite3', 'httpx2'} & (sys.modules.keys() - before)))"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True
    )
    assert loaded.stdout == "[]\n"


def test_records_matches_documents_and_hits_take_their_fields_by_position() -> None:
    assert Record("a", [1.0]) == Record(id="a", vector=[1.0], text="", meta={})
    assert Match("a", 0.5) == Match(id="a", score=0.5, text="", meta={}, vector=None)
    assert Record("a", [1.0]).meta is not Record("b", [1.0]).meta


def test_a_hit_shows_its_document() -> None:
    hit = Hit(Doc("a", "text", {"x": 1}), 0.5, "rrf", higher_is_better=True)

    assert (hit.id, hit.text, hit.meta) == ("a", "text", {"x": 1})
    assert Hit(Doc("a", "text"), 0.5) == Hit(Doc("a", "text", {}), 0.5, "cosine", True)  # noqa: FBT003 - by position
