"""Kills the agent at every point, and again while it resumes; prints what came of each case.

Called as `matrix.py go` or `matrix.py delegate`: the agent acts itself, or has another one act.

Each attempt is a forked process of its own, so that the whole matrix takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

from agent import ALGORITHMS, DIED, CrashPlan, drive

from lib.engine.check import request_check
from lib.events import SQLiteEventStore
from lib.events.verify import verify_store

MAX_ATTEMPTS = 4
ORDER = sys.argv[1]
# Processes die here, machines do not: a file system in memory is as good, and faster.
WHERE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def in_child(work: Callable[[], Any]) -> tuple[int, Any]:
    """Run `work` in a forked process; return its exit status and what it returned."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w", encoding="utf-8") as out:
            json.dump(work(), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        text = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, json.loads(text) if text else None


def attempt(folder: Path, point: str, number: int) -> tuple[int, Any]:
    """Let one process drive the run until it ends or dies at the point."""

    def work() -> dict[str, Any]:
        plan = CrashPlan(point)
        result = asyncio.run(drive(folder, plan, attempt=number, order=ORDER))
        return {"outcome": result.outcome, "output": result.output, "seen": plan.seen}

    return in_child(work)


def verified(folder: Path) -> dict[str, Any]:
    """Return how many runs there are, and the faults that the deep check finds in their logs."""

    async def work() -> dict[str, Any]:
        store = SQLiteEventStore(folder / "runs.db", read_only=True)
        await store.setup()
        report = await verify_store(store, deep=True, checks=[request_check(ALGORITHMS)])
        await store.close()
        faults = [f"{fault.seq} {fault.rule}: {fault.message}" for fault in report.faults]
        return {"runs": report.runs, "faults": faults}

    return in_child(lambda: asyncio.run(work()))[1]


def case(points: list[str]) -> dict[str, Any]:
    """Run one case: die at each of the points in turn, then run to the end."""
    with tempfile.TemporaryDirectory(dir=WHERE) as name:
        folder = Path(name)
        (folder / "ledger").touch()
        died: list[str] = []
        for number in range(MAX_ATTEMPTS):
            point = points[number] if number < len(points) else ""
            status, answer = attempt(folder, point, number)
            if status == 0:
                ledger = (folder / "ledger").read_text(encoding="utf-8").split("\n")[:-1]
                return {"died": died, **answer, "ledger": ledger, **verified(folder)}
            if status != DIED:
                return {"died": died, "broken": f"exit status {status} at {point}"}
            died.append(point)
        return {"died": died, "broken": "never ended"}


def write(result: dict[str, Any]) -> None:
    """Write a line at once, so that those of several processes do not mix."""
    os.write(sys.stdout.fileno(), (json.dumps(result) + "\n").encode())


def main() -> None:
    """Play the undisturbed case, then share the first crashes among the processors."""
    undisturbed = case([])
    write(undisturbed)
    shares = os.cpu_count() or 1
    children = [os.fork() or share(undisturbed["seen"][n::shares]) for n in range(shares)]
    for child in children:
        os.waitpid(child, 0)


def tells_apart(point: str) -> bool:
    """Tell whether a store looks different there than at the point before: one is enough."""
    return not (point.startswith("append:") and point.endswith(":before"))


def share(points: list[str]) -> NoReturn:
    """Die at each of the points, and again at each point after that, then exit."""
    for first in points:
        once = case([first])
        write(once)
        for second in once.get("seen", []):
            if ORDER == "go" or tells_apart(second):
                write(case([first, second]))
    os._exit(0)


if __name__ == "__main__":
    main()
