"""What tests of answers from memory share: records, and which queries memory did not answer."""

from typing import Any

import pytest

from lib.vector import Match, Record
from lib.vector.stores.sqlite.database import Database

RECORDS = [Record(str(row), [1.0, row], f"text {row}", {"x": row % 2}) for row in range(20)]


def noted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note each query that came to the thread, and whether memory had told what is near."""
    seen: list[bool] = []
    query = Database.query

    def noting(self: Database, asked: Any, near: Any) -> list[Match]:
        seen.append(near is not None)
        return query(self, asked, near)

    monkeypatch.setattr(Database, "query", noting)
    return seen
