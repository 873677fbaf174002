"""Workers are killed and paused at random while they drive runs: nothing is lost or done twice.

A short round on every store that processes can share; `LIB_TEST_LONG=1` makes it two minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LONG = bool(os.environ.get("LIB_TEST_LONG"))
RUNS, SECONDS = (200, 120) if LONG else (24, 8)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_every_run_ends_exactly_once_when_workers_are_killed(
    store: str, unmeasured: dict[str, str]
) -> None:
    program = Path(__file__).with_name("chaos.py")
    command = [sys.executable, str(program), "--store", store]
    command += ["--runs", str(RUNS), "--seconds", str(SECONDS)]
    process = subprocess.run(
        command, env=unmeasured, capture_output=True, encoding="utf-8", check=False
    )
    assert process.returncode == 0, process.stderr
    found: dict[str, Any] = json.loads(process.stdout)
    assert found["all_ended"], found
    assert (found["roots"], found["runs"]) == (RUNS, 2 * RUNS), found
    assert found["outcomes"] == {"COMPLETED": 2 * RUNS}, found
    assert found["killed"] > 0, found
    assert found["paid_twice"] == found["paid_and_not_done"] == [], found
    assert found["booked_and_not_done"] == [], found
    assert found["bookings"] == 2 * RUNS, found
    assert found["faults"] == [], found
    assert found["untold"] == {"audit": 0, "billing": 0}, found
    assert found.get("gave_up", 0) <= 4 * found.get("restarts", 0), found
    assert found["exit"] == [0, 0, 0, 0], found
