"""Kills the program of the README at random moments and runs it again: `kill_readme.py [N] [SEED]`.

N times, 200 by default, in a new folder each: the program is killed by SIGKILL at a random moment,
sometimes a second time while it is taken up again, and then runs to its end. Each time it must have
refunded once, or wait for a person and say so. The text of the program is changed in one place: the
lease is short, so that a dead process does not keep its run for half a minute.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

README = Path(__file__).parents[2] / "docs_src" / "readme.py"
LEASE = (
    "from lib import Agent, tool\n",
    "from lib import Agent, Engine, tool\n\nEngine.__init__.__kwdefaults__['lease_s'] = 1.0\n",
)
ANSWER = "Done, order 7.\n"
WAITS = "needs a person"
HANGS_S = 600


def program() -> str:
    """Return the program with a short lease."""
    text = README.read_text(encoding="utf-8")
    if text.count(LEASE[0]) != 1:
        raise ValueError(f"expected {LEASE[0]!r} once in {README.name}: change LEASE")
    return text.replace(*LEASE)


class Attempt:
    """A process that runs the program in a folder."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "runs.db"
        self._process = subprocess.Popen(
            [sys.executable, "readme.py"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def wait_for_log(self) -> None:
        """Wait until the log is there, or the process has ended."""
        while self._process.poll() is None and not self._log.exists():
            time.sleep(0.001)

    def kill_after(self, delay_s: float) -> int:
        """Kill the process unless it ends before; return its exit status."""
        try:
            self._process.communicate(timeout=delay_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        return self._process.returncode

    def end(self) -> tuple[int, str, str]:
        """Return the exit status of the process and what it has printed."""
        out, err = self._process.communicate(timeout=HANGS_S)
        return self._process.returncode, out, err


def kill_somewhere(folder: Path, rng: random.Random, work_s: float) -> int:
    """Run the program and kill it at some moment; return its exit status.

    Most of its time it only imports: two of three kills come after the log is there.
    """
    attempt = Attempt(folder)
    if rng.random() < 2 / 3:
        attempt.wait_for_log()
        return attempt.kill_after(rng.uniform(0, work_s))
    return attempt.kill_after(rng.uniform(0, 4 * work_s))


def stage(folder: Path) -> str:
    """Tell how far the program had come when it was killed."""
    if not (folder / "runs.db").exists():
        return "before its log"
    return "after the refund" if (folder / "refunds.txt").exists() else "with a log"


def play(folder: Path, rng: random.Random, work_s: float) -> tuple[str, str]:
    """Kill the program once or twice, run it to its end; return where it died, and any fault."""
    (folder / "readme.py").write_text(program(), encoding="utf-8")
    died = ""
    for _ in range(rng.choice((1, 1, 2))):
        status = kill_somewhere(folder, rng, work_s)
        died = stage(folder) if status else "not at all"
    status, out, err = Attempt(folder).end()
    ledger = folder / "refunds.txt"
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    if status == 0 and out == ANSWER and lines == ["7"]:
        return died, ""
    if len(lines) <= 1 and WAITS in err:
        return f"{died}, waits for a person", ""
    return died, f"died {died}, exit status {status}, {out!r}, ledger {lines}, {err[-500:]}"


def main(rounds: int, seed: int) -> int:
    """Play the rounds; return how many went wrong."""
    rng = random.Random(seed)
    died: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "readme.py").write_text(program(), encoding="utf-8")
        undisturbed = Attempt(Path(folder))
        undisturbed.wait_for_log()
        began = time.perf_counter()
        undisturbed.end()
        work_s = time.perf_counter() - began
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            where, fault = play(Path(folder), rng, work_s)
        died[where] += 1
        wrong += [fault] if fault else []
    report = [f"killed {where}: {times}" for where, times in died.most_common()]
    report += [*wrong, f"{rounds} rounds with seed {seed}, {len(wrong)} went wrong"]
    sys.stdout.write("".join(f"{line}\n" for line in report))
    return len(wrong)


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    count = numbers[0] if numbers else 200
    seed = numbers[1] if len(numbers) > 1 else int.from_bytes(os.urandom(4))
    sys.exit(1 if main(count, seed) else 0)
