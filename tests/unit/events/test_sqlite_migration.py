"""A store of an older layout becomes one of this release."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lib._util.sqlite import connect
from lib.events import SQLiteEventStore
from lib.events.store import LAYOUT_VERSION
from lib.events.stores.sqlite.layout import refuse_newer
from lib.events.verify import verify_store

RECORDED = Path(__file__).parents[2] / "replay" / "v0.2.0" / "store.db"
BLOB = "ab" * 32

CRASH = """
import os, sys
from lib._util.sqlite import connect
from lib.events.stores.sqlite.layout import MIGRATIONS, migrate

def dies(connection):
    MIGRATIONS[1][1](connection)
    os._exit(9)

migrate(connect(sys.argv[1]), "log", [MIGRATIONS[0], (2, dies)])
"""

OPEN = """
import asyncio, sys
from lib.events import SQLiteEventStore

async def main():
    store = SQLiteEventStore(sys.argv[1])
    await store.setup()
    await store.close()

sys.stdin.readline()
asyncio.run(main())
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a store of layout 1."""
    return Path(shutil.copyfile(RECORDED, tmp_path / "log.db"))


def tables(path: Path) -> set[str]:
    with closing(connect(str(path))) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def version(path: Path) -> int:
    with closing(connect(str(path))) as connection:
        return refuse_newer(connection, "log")


async def users_of_the_blob(path: Path) -> list[str]:
    async def main() -> list[str]:
        store = SQLiteEventStore(path)
        await store.setup()
        found = await store.blob_users(BLOB, limit=9)
        assert await store.schema_version() == LAYOUT_VERSION
        await store.close()
        return found

    return await main()


async def test_a_crash_in_the_middle_leaves_the_layout_before(old: Path) -> None:
    assert subprocess.run([sys.executable, "-c", CRASH, str(old)], check=False).returncode == 9

    assert version(old) == 1
    assert not {"lib_tombstones", "lib_blob_uses", "lib_runs_parent"} & tables(old)
    assert (await users_of_the_blob(old)) == ["parent"]
    assert version(old) == LAYOUT_VERSION


async def test_processes_that_race_migrate_once(old: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(old)]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"\n")
        racer.stdin.flush()
    for racer in racers:
        racer.communicate(timeout=200)

    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert (await users_of_the_blob(old)) == ["parent"]


@pytest.mark.parametrize(
    "data", ["'{\"$blob\": '", "CAST(x'ff' AS TEXT) || '\"$blob\"'", "'[\"$blob\"]'"]
)
async def test_a_payload_that_cannot_be_read_keeps_no_store_from_its_migration(
    old: Path, data: str
) -> None:
    statement = f"UPDATE lib_events SET data = {data} WHERE kind = 'acme.note'"
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount == 1

    assert (await users_of_the_blob(old)) == ["parent"]

    store = SQLiteEventStore(old, read_only=True)
    await store.setup()
    report = await verify_store(store)
    await store.close()
    assert "payload" in [fault.rule for fault in report.faults]
