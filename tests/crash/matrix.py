"""Kills the agent at every point, and again while it resumes; prints what came of each case.

Called as `matrix.py STORE [URL]`, with the URL of a running server if the store has one. The
scenarios: `go` (the agent acts itself), `delegate` (it has another one act), `client` (its client
makes a call), `session` (two turns are sent before anything is driven), `remember` (what the user
says enters a memory), `summarize` (of two turns the first is summed up), and `reflexion`, `debate`
and `swarm`, each a kind of team.

Every point of a scenario is a first crash, on every store. Each point that is passed after a first
crash can be a second one; of those, a store takes each n-th as its line in `places.py` says,
beginning elsewhere after each first crash, so that in the end each stretch of a run has been died
in twice. On servers, every append is also one at which the connection dies and not the process.
Teams, memories and summaries are left out there, for no store meets anything new in them. With
LIB_TEST_LONG=1 every store plays all scenarios, with all second crashes; of those three without
cut connections.

Each attempt is a forked process of its own, so that the whole matrix takes seconds; but see
`places.py` on memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

from agent import (
    ALGORITHMS,
    CUTS,
    DIED,
    REMEMBER,
    SUMMARIZE,
    TEAMS,
    CrashPlan,
    LaterClock,
    drive,
    facts_of,
)
from places import STORES, Place

from lib.algorithms import by_config
from lib.engine.api.check import StoreCheck
from lib.events import EventStore
from lib.events.verify import verify_store

MAX_ATTEMPTS = 4
KIND = STORES[sys.argv[1]]
URL = sys.argv[2] if len(sys.argv) > 2 else KIND.start()
LONG = bool(os.environ.get("LIB_TEST_LONG"))
SHORT = (REMEMBER, SUMMARIZE, *TEAMS)
"""The scenarios in which a store meets nothing new, with fewer second crashes and no cuts."""
SCENARIOS = ("go", "delegate", "client", "session", *(SHORT if LONG or not KIND.breaker else ()))
# Processes die here, machines do not: a file system in memory is as good, and faster.
WHERE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

graves: list[Any] = []
"""What dead processes held that never were processes: collected, it would run on to its end."""


async def play(place: Place, plan: CrashPlan, number: int, order: str) -> dict[str, Any]:
    """Drive the order until it ends or the plan strikes; then look at the logs."""
    async with KIND.crashing(place, plan, number) as store:
        result = await drive(store, place.ledger, plan, attempt=number, order=order)
    facts = await facts_of(place.ledger) if order == REMEMBER else []
    return {**result, "seen": plan.seen, "facts": facts, **await verified(place, number)}


async def verified(place: Place, number: int) -> dict[str, Any]:
    """Return how many runs there are, and the faults that the deep check finds in their logs."""
    store: EventStore = KIND.open(place, LaterClock(number), read_only=True)
    await store.setup()
    check = StoreCheck(ALGORITHMS, store, by_config=by_config)
    report = await verify_store(store, deep=True, checks=[check])
    await store.close()
    faults = [f"{fault.seq} {fault.rule}: {fault.message}" for fault in report.faults]
    return {"runs": report.runs, "faults": faults}


def forked(work: Callable[[CrashPlan], Coroutine[Any, Any, Any]], point: str) -> tuple[int, Any]:
    """Run `work` in a process of its own; return its exit status and what it returned."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w", encoding="utf-8") as out:
            json.dump(asyncio.run(work(CrashPlan(point))), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        text = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, json.loads(text) if text else None


def looped(work: Callable[[CrashPlan], Coroutine[Any, Any, Any]], point: str) -> tuple[int, Any]:
    """Run `work` in an event loop of its own, which stops for good where the plan says."""
    loop = asyncio.new_event_loop()

    async def stop() -> None:
        loop.stop()
        await asyncio.Future()

    plan = CrashPlan(point, die=stop)
    task = loop.create_task(work(plan))
    task.add_done_callback(lambda _: loop.stop())
    loop.run_forever()
    if plan.dead:
        graves.append((loop, asyncio.all_tasks(loop)))
        return DIED, None
    loop.close()
    return 0, task.result()


def case(order: str, points: list[str], name: str) -> dict[str, Any]:
    """Run one case: die at each of the points in turn, then run to the end."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=WHERE) as folder:
        place = Place(Path(folder), URL, name)
        place.ledger.touch()
        KIND.empty(place)
        attempt = forked if KIND.survives else looped
        died: list[str] = []
        common: dict[str, Any] = {"scenario": order, "died": died}
        for number in range(MAX_ATTEMPTS):
            point = points[number] if number < len(points) else ""
            status, answer = attempt(
                lambda plan, number=number: play(place, plan, number, order), point
            )
            if status == 0:
                ledger = place.ledger.read_text(encoding="utf-8").split("\n")[:-1]
                cut = point if point.endswith(CUTS) else ""
                took_s = round(time.perf_counter() - began, 3)
                return {**common, "cut": cut, **answer, "ledger": ledger, "took_s": took_s}
            if status != DIED:
                return {**common, "broken": f"exit status {status} at {point}"}
            died.append(point)
        return {**common, "broken": "never ended"}


def write(result: dict[str, Any]) -> dict[str, Any]:
    """Write a line at once, so that those of several processes do not mix."""
    os.write(sys.stdout.fileno(), (json.dumps(result) + "\n").encode())
    return result


def main() -> None:
    """Play each scenario undisturbed, then share the first crashes among the processors."""
    warm_up()
    shares = os.cpu_count() or 1
    for order in SCENARIOS:
        began = time.perf_counter()
        seen = write(case(order, [], "crash"))["seen"]
        children = [os.fork() or share(order, seen, n, shares) for n in range(shares)]
        for child in children:
            os.waitpid(child, 0)
        took_s = time.perf_counter() - began
        sys.stderr.write(f"{sys.argv[1]} {order}: {took_s:.1f} s\n")


def warm_up() -> None:
    """Import before forking what every process would import, and let none of them collect it.

    Nothing connects here: what a process imports, another process tells.
    """
    with tempfile.TemporaryDirectory(dir=WHERE) as folder:
        place = Place(Path(folder), URL, "crash")
        place.ledger.touch()

        async def imported(plan: CrashPlan) -> list[str]:
            before = set(sys.modules)
            await play(place, plan, 0, "go")
            return sorted(set(sys.modules) - before)

        for name in forked(imported, "")[1]:
            import_module(name)
    gc.collect()
    gc.freeze()
    gc.disable()


def share(order: str, seen: list[str], number: int, shares: int) -> NoReturn:
    """Die at each n-th of the points, and again at points after that, then exit."""
    name = f"crash_{number}"
    cuts = KIND.breaker is not None and order not in SHORT
    for place, first in list(enumerate(seen))[number::shares]:
        once = write(case(order, [first], name))
        for second in spread(order, once.get("seen", []), place):
            write(case(order, [first, second], name))
        if cuts and first.startswith("append:") and first.endswith(":after"):
            for how in CUTS:
                write(case(order, [first.removesuffix("after") + how], name))
    os._exit(0)


def spread(order: str, seen: list[str], place: int) -> Iterator[str]:
    """Yield the second crashes after the first crash of this place in the order of all."""
    candidates = [point for point in seen if order == "go" or tells_apart(point)]
    every = 1 if LONG else KIND.every.get(order, KIND.every["session"])
    yield from candidates[place % every :: every]


def tells_apart(point: str) -> bool:
    """Tell whether a store looks different there than at the point before: one is enough."""
    return not (point.startswith("append:") and point.endswith(":before"))


if __name__ == "__main__":
    main()
