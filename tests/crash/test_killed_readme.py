"""The program of the README refunds once, wherever it is killed."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kill_readme.py")
TIMEOUT_S = 1700


@pytest.mark.timeout(TIMEOUT_S + 100)
def test_the_readme_program_refunds_once_wherever_it_is_killed(unmeasured: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "6", "1"],
        env=unmeasured,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "6 rounds with seed 1, 0 went wrong" in done.stdout
