"""The table of refusals in the documentation is the one that the stores obey."""

from pathlib import Path

import lib.vector
from lib.vector.filter.refusals import FEATURES, REFUSALS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "filters.md"


def test_the_documented_refusals_are_those_of_the_code() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    (features,) = (row[1:] for row in table if row[0] == "store")
    shown = {row[0]: row[1:] for row in table if row[0] in REFUSALS}

    assert features == list(FEATURES)
    assert {
        store: {name for name, said in zip(features, cells, strict=True) if said == "refused"}
        for store, cells in shown.items()
    } == REFUSALS


def test_every_store_is_in_the_table() -> None:
    stores = {name for name in lib.vector.__all__ if name.endswith("VectorStore")}
    classes = {getattr(lib.vector, name).__name__ for name in stores - {"TenantVectorStore"}}

    assert classes - {"VectorStore"} <= REFUSALS.keys()
