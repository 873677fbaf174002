"""Commits of other connections are seen without waiting, where that is sure."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lib.vector.stores.sqlite.foreign import ForeignWrites


def connected(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE IF NOT EXISTS t (a)")
    return connection


def test_every_commit_changes_the_version_and_nothing_else_does(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with closing(connected(path, "wal")) as mine, closing(connected(path, "wal")) as yours:
        foreign = ForeignWrites(str(path))
        seen = {foreign.version()}
        for step in range(50):
            for connection in (mine, yours):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO t VALUES (?)", (step,))
                assert foreign.version() in seen
                connection.execute("ROLLBACK" if step % 5 else "COMMIT")
                assert (foreign.version() in seen) == bool(step % 5)
                seen.add(foreign.version())
                connection.execute("SELECT count(*) FROM t").fetchall()
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                seen.add(foreign.version())
        assert None not in seen
        foreign.close()
        assert foreign.version() is None


@pytest.mark.parametrize("mode", ["delete", "truncate"])
def test_a_file_without_a_write_ahead_log_has_no_version(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "file.db"
    with closing(connected(path, mode)):
        assert ForeignWrites(str(path)).version() is None


def test_memory_is_private() -> None:
    foreign = ForeignWrites(":memory:")
    assert foreign.version() == 0
    foreign.close()
