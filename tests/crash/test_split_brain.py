"""The owner of a run is stopped past its lease; another finishes the run; the owner continues."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from lib.algorithms import React
from lib.engine.api.check import request_check
from lib.events import SQLiteEventStore
from lib.events.verify import VerifyReport, verify_store

OWNER = Path(__file__).with_name("owner.py")


def worker(folder: Path, who: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(OWNER), str(folder), who],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )


async def test_the_old_owner_appends_nothing_more_and_begins_no_further_effect(
    tmp_path: Path,
) -> None:
    with worker(tmp_path, "first") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "working\n"
        os.kill(first.pid, signal.SIGSTOP)

        with worker(tmp_path, "second") as second:
            finished, _ = second.communicate(timeout=200)
        os.kill(first.pid, signal.SIGCONT)
        output, _ = first.communicate("go on\n", timeout=200)

    assert finished == "seen by second paid by second\n"
    assert output == finished  # the run is over, and every worker reads this result
    assert (tmp_path / "ledger").read_text(encoding="utf-8") == "paid by second\n"
    report, happened = await inspect(tmp_path / "runs.db")
    assert report.faults == []
    assert happened.count("lib.run.resumed") == 1
    assert happened[-1] == "lib.run.completed"


async def inspect(path: Path) -> tuple[VerifyReport, list[str]]:
    store = SQLiteEventStore(path, read_only=True)
    await store.setup()
    report = await verify_store(store, deep=True, checks=[request_check([React()])])
    (info,) = await store.runs()
    events = await store.read(info.run_id)
    await store.close()
    return report, [event.kind for event in events]
