"""Records for the tests of answers from memory, and the queries that memory did not answer."""

from typing import Any

import pytest

from lib.vector import Match, Record
from lib.vector.stores.sqlite.database import Database

RECORDS = [Record(str(row), [1.0, row], f"text {row}", {"x": row % 2}) for row in range(20)]


def noted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record each query that reached the thread: True if memory held the nearest ids."""
    seen: list[bool] = []
    nearest = Database.nearest

    async def noting(self: Database, plan: Any, near: Any) -> list[Match]:
        seen.append(near is not None)
        return await nearest(self, plan, near)

    monkeypatch.setattr(Database, "nearest", noting)
    return seen
