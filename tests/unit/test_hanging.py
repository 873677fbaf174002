"""A test that hangs fails by its name, and the others go on."""

import subprocess
import sys
from pathlib import Path

HANGING = Path(__file__).with_name("hanging.py")


def test_a_test_in_whose_loop_the_time_out_is_lost_fails_with_its_stack(
    unmeasured: dict[str, str],
) -> None:
    options = ["-q", "-n", "1", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(HANGING)],
        env=unmeasured,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )

    assert "crashed while running" in done.stdout
    assert "hanging.py::test_a_callback_that_spins" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "in spin" in done.stderr
