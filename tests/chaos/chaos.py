"""Kills, pauses and restarts workers while they drive runs, then looks at what is left.

    python tests/chaos/chaos.py --store postgres --runs 200 --seconds 120

Starts PostgreSQL or Redis by itself, prints what it did to whom, and what came of it as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import workload

from lib._util.clock import SYSTEM_CLOCK
from lib.engine import Engine
from lib.engine.api.check import request_check
from lib.errors import StoreError
from lib.events import EventStore, RunQuery, open_store
from lib.events import kinds as k
from lib.events.verify import verify_store

SETTLING_S = 600.0
DOWN_S = 1.0
DRAIN_S = 120.0


@dataclass
class Place:
    """A store to put under strain: its URL, and how its server is restarted, if it has one."""

    url: str
    restart: Callable[[], None] | None = None


def sqlite(world: Path) -> Place:
    return Place(f"sqlite:///{world}/runs.db")


def postgres(_world: Path) -> Place:
    from servers.postgres import PostgresServer

    server = PostgresServer(durable=True)

    def restart() -> None:
        server.stop("immediate")
        time.sleep(DOWN_S)
        server.start()

    return Place(server.url, restart)


def redis(_world: Path) -> Place:
    from servers.redis import own_server

    server = own_server("--appendfsync", "always")

    def restart() -> None:
        server.stop(signal.SIGKILL)
        time.sleep(DOWN_S)
        server.start()

    return Place(server.url, restart)


PLACES: dict[str, Callable[[Path], Place]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "redis": redis,
}


@dataclass
class Workers:
    """The processes that drive runs; a dead one is replaced."""

    count: int
    environment: dict[str, str]
    logs: Path
    started: int = 0
    running: list[subprocess.Popen[bytes]] = field(default_factory=list[Any])
    done: Counter[str] = field(default_factory=Counter[str])

    def fill(self) -> None:
        while len(self.running) < self.count:
            self.started += 1
            with (self.logs / f"log-{self.started}").open("ab") as log:
                command = [sys.executable, "-m", "lib.cli", "worker", "workload:engine"]
                process = subprocess.Popen(
                    command, env=self.environment, cwd=Path(__file__).parent, stderr=log
                )
            self.running.append(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.running.remove(process)
        self.done["killed"] += 1
        self.fill()

    def replace(self) -> None:
        """Start others for those that gave up because the server was away while they started."""
        for process in [each for each in self.running if each.poll() == 1]:
            self.running.remove(process)
            self.done["gave_up"] += 1
        self.fill()

    async def pause(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        process.send_signal(signal.SIGSTOP)
        await SYSTEM_CLOCK.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        self.done["paused"] += 1

    def drain(self) -> list[int | str]:
        """Ask all to end, and return how they did.

        One that has just been started does not listen yet, and would be ended by the signal.
        """
        for process in self.running:
            until = time.monotonic() + DRAIN_S
            while process.poll() is None and time.monotonic() < until:
                if (self.logs / f"up-{process.pid}").exists():
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        return [ended(process) for process in self.running]


def ended(process: subprocess.Popen[bytes]) -> int | str:
    """Return the exit status of a process, which tells what it waits for if it does not end."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(DRAIN_S)
    process.send_signal(signal.SIGUSR1)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(1)
    return "hangs"


async def start_runs(engine: Engine, count: int, within_s: float) -> None:
    """Start the runs bit by bit, again where the store did not answer."""
    for number in range(count):
        while True:
            try:
                key = f"order-{number}"
                await engine.start("go", algorithm=workload.AGENT, idempotency_key=key)
                break
            except StoreError:
                await SYSTEM_CLOCK.sleep(0.1)
        await SYSTEM_CLOCK.sleep(within_s / count)


async def disturb(workers: Workers, place: Place, seconds: float, chance: random.Random) -> None:
    """Do harm until the time is over; the database is restarted once, half-way."""
    began, restart = time.monotonic(), place.restart
    pauses: set[asyncio.Task[None]] = set()
    while (passed := time.monotonic() - began) < seconds:
        if restart is not None and passed > seconds / 2:
            await asyncio.to_thread(restart)
            workers.done["restarts"] += 1
            restart = None
        workers.replace()
        victim = chance.choice(workers.running)
        if chance.random() < 0.5:
            workers.kill(victim)
        else:
            pause_s = chance.uniform(0.2, 2 * workload.LEASE_S)
            pauses.add(asyncio.create_task(paused(workers, victim, pause_s)))
        await SYSTEM_CLOCK.sleep(chance.uniform(0.1, 1.2))
    await asyncio.gather(*pauses)
    workers.replace()


async def paused(workers: Workers, process: subprocess.Popen[bytes], seconds: float) -> None:
    """Pause a process, which may be killed meanwhile."""
    if process in workers.running:
        await workers.pause(process, seconds)


async def settled(store: EventStore, roots: int) -> bool:
    """Wait until every run has ended; False if that takes too long."""
    until = time.monotonic() + SETTLING_S
    while time.monotonic() < until:
        infos = await store.runs(RunQuery())
        ended = sum(info.status == "closed" for info in infos)
        if ended == len(infos) and sum(info.parent_id is None for info in infos) == roots:
            return True
        await SYSTEM_CLOCK.sleep(0.2)
    return False


async def findings(store: EventStore, engine: Engine, world: Path, runs: int) -> dict[str, Any]:
    """Check the logs, the world and the lines of the groups against the rules."""
    algorithms = [engine.algorithm(workload.AGENT), engine.algorithm(workload.HELPER)]
    report = await verify_store(store, deep=True, checks=[request_check(algorithms)])
    infos = await store.runs(RunQuery())
    events = [event for info in infos for event in await store.read(info.run_id)]
    payments = Counter(lines(world / "payments"))
    booked = {path.name for path in (world / "bookings").iterdir()}
    requested = {(e.run_id, e.data["key"]): e for e in events if e.kind == k.TOOL_REQUESTED}
    done = [requested[e.run_id, e.data["key"]] for e in events if e.kind == k.TOOL_COMPLETED]
    evidence = {
        name: [e.data["idempotency_key"] for e in done if e.data["name"] == name]
        for name in ("pay", "book")
    }
    everything = {f"{event.run_id} {event.seq}" for event in events}
    seen_lines = {group: lines_seen(world, group) for group in workload.GROUPS}
    return {
        "roots": sum(info.parent_id is None for info in infos),
        "runs": len(infos),
        "events": len(events),
        "expected_roots": runs,
        "outcomes": Counter(info.outcome for info in infos),
        "takeovers": sum(event.kind == k.RUN_RESUMED for event in events),
        "unknown": sum(event.data.get("reason") == "unknown" for event in events),
        "paid_twice": [key for key, times in payments.items() if times > 1],
        "paid_and_not_done": [key for key in evidence["pay"] if payments[key] != 1],
        "booked_and_not_done": [
            key for key in evidence["book"] if key.replace("/", "_") not in booked
        ],
        "booking_attempts": len(lines(world / "attempts")),
        "bookings": len(booked),
        "faults": [f"{f.run_id} {f.seq} {f.rule}: {f.message}" for f in report.faults],
        "untold": {group: len(everything - seen_lines[group]) for group in workload.GROUPS},
    }


def lines_seen(world: Path, group: str) -> set[str]:
    return {line for path in world.glob(f"seen-{group}-*") for line in lines(path)}


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


async def chaos(world: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run it all, and return what came of it."""
    place = PLACES[options.store](world)
    (world / "bookings").mkdir()
    os.environ |= {"CHAOS_STORE": place.url, "CHAOS_WORLD": str(world)}
    workers = Workers(options.workers, dict(os.environ), world)
    chance = random.Random(options.seed)
    async with workload.make(drive=False) as engine:
        workers.fill()
        try:
            starting = asyncio.create_task(start_runs(engine, options.runs, options.seconds * 0.8))
            await disturb(workers, place, options.seconds, chance)
            await starting
            store = open_store(place.url, read_only=True)
            await store.setup()
            all_ended = await settled(store, options.runs)
            await until_recorded(store, world)
            statuses = workers.drain()
            found = await findings(store, engine, world, options.runs)
            await store.close()
        finally:
            for process in workers.running:
                process.kill()
    return {"all_ended": all_ended, "exit": statuses, **workers.done, **found, "logs": logs(world)}


def logs(world: Path) -> dict[str, str]:
    """Return the end of what each worker said."""
    return {path.name: path.read_text(encoding="utf-8")[-3000:] for path in world.glob("log-*")}


async def until_recorded(store: EventStore, world: Path) -> None:
    """Give the bus the time to tell of the last events."""
    until = time.monotonic() + SETTLING_S
    infos = await store.runs(RunQuery())
    expected = sum(info.head for info in infos)
    while time.monotonic() < until:
        if min(len(lines_seen(world, group)) for group in workload.GROUPS) >= expected:
            return
        await SYSTEM_CLOCK.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=list(PLACES), default="postgres")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    with tempfile.TemporaryDirectory(prefix="lib-chaos-") as folder:
        found = asyncio.run(chaos(Path(folder), parser.parse_args()))
    sys.stdout.write(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
