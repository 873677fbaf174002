"""A reader who begins at the index finds every page that says how to do something."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_index_names_every_how_to() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.glob("how-to/*.md")]

    assert pages
    assert [page for page in pages if f"({page})" not in index] == []
