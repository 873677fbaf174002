"""The header of a WAL index: it tells of every commit, and reading it takes no lock away."""

import gc
import mmap
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib.vector.stores.sqlite import walindex
from lib.vector.stores.sqlite.walindex import file_header, let_go

DEAD_MAN_SWITCH = 128
"""The byte of `-shm` that every connection has locked, to tell the others that it is there.

Source: https://sqlite.org/src/file/src/os_unix.c, `UNIX_SHM_DMS`.
"""

IS_FREE = """
import fcntl, sys
with open(sys.argv[1], "r+b", buffering=0) as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))
    except OSError:
        print("held")
    else:
        print("free")
"""

KEEPS_IT_OPEN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM t").fetchall()
print("open", flush=True)
sys.stdin.readline()
connection.close()
"""


def connected(path: Path, mode: str = "wal") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE IF NOT EXISTS t (a)")
    return connection


def lock(path: Path) -> str:
    command = [sys.executable, "-c", IS_FREE, f"{path}-shm", str(DEAD_MAN_SWITCH)]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout.strip()


@contextmanager
def kept_open(path: Path) -> Generator[None]:
    """Let another process have a connection meanwhile."""
    command = [sys.executable, "-c", KEEPS_IT_OPEN, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        yield
        other.communicate(b"\n")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no paths are wanted


def test_every_commit_changes_the_header_and_nothing_else_does(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with closing(connected(path)) as mine, closing(connected(path)) as yours:
        header = file_header(str(path))
        assert header is not None
        seen = {header()}
        for step in range(50):
            for connection in (mine, yours):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO t VALUES (?)", (step,))
                connection.execute("ROLLBACK" if step % 5 else "COMMIT")
                assert (header() in seen) == bool(step % 5)
                seen.add(header())
                connection.execute("SELECT count(*) FROM t").fetchall()
                connection.execute("PRAGMA wal_checkpoint").fetchall()
                assert header() in seen
        assert len(seen) == 21


def test_the_log_begins_anew_and_the_header_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with closing(connected(path)) as mine:
        header = file_header(str(path))
        assert header is not None
        seen = {header()}
        for _ in range(20):
            mine.execute("UPDATE t SET a = 1")
            mine.execute("INSERT INTO t VALUES (1)")
            mine.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            assert header() not in seen
            seen.add(header())


def test_links_lead_to_the_file_that_they_name(tmp_path: Path) -> None:
    path, link = tmp_path / "file.db", tmp_path / "link.db"
    link.symlink_to(path)
    with closing(connected(link)) as mine:
        header = file_header(str(link))
        assert header is not None
        before = header()
        mine.execute("INSERT INTO t VALUES (1)")
        assert header() != before


def test_there_is_none_where_sqlite_maps_none(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    assert file_header(str(path)) is None
    with closing(connected(path, "delete")):
        assert file_header(str(path)) is None
        Path(f"{path}-shm").write_bytes(bytes(32_768))
        assert file_header(str(path)) is None


def test_in_memory_no_other_connection_can_write() -> None:
    header = file_header(":memory:")

    assert header is not None
    assert header() == header()


def test_no_lock_of_sqlite_is_lost_by_any_close(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with closing(connected(path)):
        assert lock(path) == "held"
        for _ in range(3):
            with closing(connected(path)):
                assert file_header(str(path)) is not None
                gc.collect()
                assert lock(path) == "held"
            let_go()
            gc.collect()
            assert lock(path) == "held"


def test_no_lock_of_sqlite_is_lost_where_there_is_no_room_for_a_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "file.db", mmap.mmap
    limits = resource.getrlimit(resource.RLIMIT_AS)

    def without_room(*args: Any, **options: Any) -> mmap.mmap:
        resource.setrlimit(resource.RLIMIT_AS, (mmap.PAGESIZE, limits[1]))
        try:
            return real(*args, **options)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)

    with closing(connected(path)):
        with monkeypatch.context() as patch:
            patch.setattr(mmap, "mmap", without_room)
            assert file_header(str(path)) is None
        assert lock(path) == "held"


def test_files_are_closed_once_they_have_no_name(tmp_path: Path) -> None:
    let_go()
    before = open_files()
    for number in range(20):
        path = tmp_path / f"{number}.db"
        with closing(connected(path)):
            header = file_header(str(path))
            assert header is not None
            assert len(header()) == 96
            del header
        let_go()
    assert open_files() == before


def test_files_that_others_use_stay_open_and_are_not_opened_twice(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    let_go()
    before = open_files()
    with closing(connected(path)), kept_open(path):
        pass
    with kept_open(path):
        for _ in range(5):
            with closing(connected(path)):
                assert file_header(str(path)) is not None
            let_go()
            assert open_files() == before + 4  # and the pipes
    let_go()
    assert open_files() == before


def test_an_index_is_not_closed_while_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with closing(connected(path)):
        header = file_header(str(path))
        assert header is not None
        before = header()
    let_go()
    assert header() == before


def test_not_more_than_so_many_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go()
    monkeypatch.setattr(walindex, "_MOST_HELD", len(walindex._held) + 1)  # pyright: ignore[reportPrivateUsage] - others may be open
    with closing(connected(tmp_path / "a.db")), closing(connected(tmp_path / "b.db")):
        assert file_header(str(tmp_path / "a.db")) is not None
        assert file_header(str(tmp_path / "b.db")) is None
        assert file_header(str(tmp_path / "a.db")) is not None
    let_go()
