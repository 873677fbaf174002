"""The table of refusals in the documentation is the one that the stores obey."""

from pathlib import Path

import lib.vector
from lib.vector.filter.refusals import FEATURES, declared_refusals

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "filters.md"


def test_the_documented_refusals_are_those_of_the_code() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    (features,) = (row[1:] for row in table if row[0] == "store")
    shown = {row[0]: row[1:] for row in table if row[0] in stores()}

    assert features == list(FEATURES)
    assert {
        store: {name for name, cell in zip(features, cells, strict=True) if cell == "refused"}
        for store, cells in shown.items()
    } == {name: declared_refusals(store) for name, store in stores().items()}


def stores() -> dict[str, type]:
    """Return the classes of all stores before a place of their own."""
    names = {name for name in lib.vector.__all__ if name.endswith("VectorStore")}
    classes = {getattr(lib.vector, name) for name in names - {"VectorStore", "TenantVectorStore"}}
    return {kind.__name__: kind for kind in classes}
