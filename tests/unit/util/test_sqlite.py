"""Opening SQLite files, and what their errors say of them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lib._util import sqlite


class Reluctant(sqlite3.Connection):
    """Says "locked" a number of times when the journal mode is to be changed."""

    refusals = 0

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA journal_mode") and Reluctant.refusals:
            Reluctant.refusals -= 1
            raise sqlite3.OperationalError("database is locked")
        return super().execute(sql, *parameters)


def journal_mode(connection: sqlite3.Connection) -> str:
    return connection.execute("PRAGMA main.journal_mode").fetchone()[0]


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_the_log_is_used_even_if_others_open_the_file_at_the_same_moment(
    tmp_path: Path, refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reluctant, "refusals", refusals)
    connect = sqlite3.connect(tmp_path / "a.db", isolation_level=None, factory=Reluctant)
    with closing(connect) as connection:
        sqlite.use_write_ahead_log(connection)

        assert journal_mode(connection) == "wal"


def test_a_file_that_stays_locked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reluctant, "refusals", 1000)
    connect = sqlite3.connect(tmp_path / "a.db", isolation_level=None, factory=Reluctant)
    with closing(connect) as connection, pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite.use_write_ahead_log(connection)


def test_a_transaction_is_whole_or_nothing() -> None:
    def fail() -> None:
        with sqlite.transaction(connection):
            connection.execute("INSERT INTO t VALUES (2)")
            raise KeyError

    with closing(sqlite.connect(sqlite.MEMORY)) as connection:
        connection.execute("CREATE TABLE t (a)")
        with sqlite.transaction(connection):
            connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(KeyError):
            fail()
        with sqlite.transaction(connection, write=False):
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
        assert not connection.in_transaction


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = str(tmp_path / "ü ?#%.db")
    with closing(sqlite.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
    with closing(sqlite.connect_to_read(path)) as reader:
        assert reader.execute("SELECT a FROM t").fetchall() == []
        with pytest.raises(sqlite3.OperationalError) as caught:
            reader.execute("INSERT INTO t VALUES (1)")

    assert sqlite.failure(caught.value) == "unwritable"


def test_errors_say_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with pytest.raises(sqlite3.OperationalError) as missing:
        sqlite.connect_to_read(str(path))
    path.write_bytes(b"Dear diary, " * 100)
    with pytest.raises(sqlite3.DatabaseError) as damaged:
        sqlite.connect_to_read(str(path))
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY

    assert sqlite.failure(missing.value) == "unwritable"
    assert sqlite.failure(damaged.value) == "damaged"
    assert sqlite.failure(busy) == "other"
