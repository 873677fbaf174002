"""Worker processes share a store: what one of them leaves, however it ends, another finishes."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from lib.algorithms import React
from lib.engine import Engine, Run
from lib.engine.api.check import request_check
from lib.events.store import end_lease
from lib.events.verify import verify_store

sys.path.insert(0, str(Path(__file__).parent))

from worker_agent import open_engine

HERE = Path(__file__).parent


class Crew:
    """A folder with a store, and the worker processes over it."""

    def __init__(self, folder: Path, env: dict[str, str], engine: Engine) -> None:
        self.folder, self.engine = folder, engine
        self.env = {**env, "WORKER_FOLDER": str(folder), "WORKER_LEASE_S": "3600"}
        self.alive: list[asyncio.subprocess.Process] = []

    async def hire(
        self, *more: str, factory: str = "make_engine", supervised: bool = False
    ) -> asyncio.subprocess.Process:
        """Start a worker, and wait until it works."""
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            *(["worker_agent.py"] if supervised else ["-m", "lib.cli"]),
            "worker",
            f"worker_agent:{factory}",
            *more,
            stderr=asyncio.subprocess.PIPE,
            env=self.env,
            cwd=HERE,
        )
        self.alive.append(worker)
        assert "working: up to" in await next_line(worker)
        return worker

    async def fire(self) -> None:
        for worker in self.alive:
            if worker.returncode is None:
                worker.kill()
            await worker.communicate()

    async def end_leases(self) -> None:
        """Let the time of all leases be over."""
        for info in await self.engine.store.runs():
            await end_lease(self.engine.store, info)

    def ledger(self) -> list[list[str]]:
        path = self.folder / "ledger"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [line.split() for line in text.splitlines()]

    async def noted(self, what: str, *, count: int = 1) -> None:
        while sum(entry[0] == what for entry in await asyncio.to_thread(self.ledger)) < count:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)  # noqa: TID251 - see above

    def go(self) -> None:
        (self.folder / "go").touch()

    async def start(self, *inputs: str) -> list[Run]:
        return [await self.engine.start(each) for each in inputs]

    async def faults(self) -> list[str]:
        checks = [request_check([React()])]
        report = await verify_store(self.engine.store, deep=True, checks=checks)
        return [f"{fault.run_id} {fault.rule}: {fault.message}" for fault in report.faults]


async def next_line(worker: asyncio.subprocess.Process) -> str:
    assert worker.stderr is not None
    return (await worker.stderr.readline()).decode().strip()


@asynccontextmanager
async def crew(folder: Path, env: dict[str, str]) -> AsyncGenerator[Crew]:
    engine = await asyncio.to_thread(open_engine, folder, drive=False)
    async with AsyncExitStack() as stack:
        some = Crew(folder, env, await stack.enter_async_context(engine))
        stack.push_async_callback(some.fire)
        yield some


async def outcomes(runs: Sequence[Run]) -> Counter[str | None]:
    return Counter([(await each.result()).outcome for each in runs])


async def test_two_workers_share_30_runs_and_no_effect_happens_twice(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    async with crew(tmp_path, unmeasured) as some:
        more = ("--max-runs", "4")
        await asyncio.gather(some.hire(*more), some.hire(*more, factory="make_engine_later"))
        runs = await some.start(*["once wait idempotent once"] * 30)
        await some.noted("wait", count=8)
        await asyncio.to_thread(some.go)
        assert await outcomes(runs) == {"COMPLETED": 30}
        assert await some.faults() == []

        ledger = await asyncio.to_thread(some.ledger)
        keys = Counter(key for _, key, _ in ledger)
        assert len(keys) == 120
        assert set(keys.values()) == {1}
        assert len({pid for _, _, pid in ledger}) == 2


async def test_another_worker_takes_over_the_runs_of_a_killed_worker(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    async with crew(tmp_path, unmeasured) as some:
        first, second = await some.hire(), await some.hire("--max-runs", "1")
        runs = await some.start(*["once wait once"] * 5)
        await some.noted("wait", count=5)
        first.kill()
        second.kill()
        await asyncio.gather(first.wait(), second.wait())
        await some.end_leases()
        await some.hire()
        await some.noted("wait", count=10)
        await asyncio.to_thread(some.go)

        assert await outcomes(runs) == {"COMPLETED": 5}
        assert await some.faults() == []
        ledger = await asyncio.to_thread(some.ledger)
        once = Counter(key for what, key, _ in ledger if what == "once")
        assert sorted(once.values()) == [1] * 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_first_signal_lets_a_worker_finish_its_calls(
    number: signal.Signals, tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    async with crew(tmp_path, unmeasured) as some:
        worker = await some.hire()
        runs = await some.start("wait once")
        await some.noted("wait")
        worker.send_signal(number)
        assert await next_line(worker) == "lib worker: draining: 1 runs under way"
        late = await some.start("once")
        await asyncio.to_thread(some.go)

        assert await worker.wait() == 0
        assert await next_line(worker) == "lib worker: stopped"
        assert await outcomes(runs) == {"COMPLETED": 1}
        assert (await late[0].info()).head == 1


async def test_a_second_signal_stops_at_once_and_releases_the_leases(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    async with crew(tmp_path, unmeasured) as some:
        worker = await some.hire("--drain-s", "60")
        runs = await some.start("wait")
        await some.noted("wait")
        worker.terminate()
        assert "draining" in await next_line(worker)
        worker.terminate()
        assert await next_line(worker) == "lib worker: interrupting 1 runs"
        assert await worker.wait() == 0

        info = await runs[0].info()
        assert (info.owner, info.status, info.ready) == (None, "open", True)
        await asyncio.to_thread(some.go)
        await some.hire()
        assert await outcomes(runs) == {"COMPLETED": 1}
        assert await some.faults() == []


@pytest.mark.timeout(900)
async def test_a_tool_that_kills_its_worker_ends_its_run_and_no_other(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    """Ten takeovers without a result are enough."""

    async with crew(tmp_path, unmeasured) as some:
        some.env["WORKER_LEASE_S"] = "0.3"
        (deadly,) = await some.start("die")
        supervisor = await some.hire(supervised=True)
        assert await outcomes([deadly]) == {"FAILED": 1}
        (sound,) = await some.start("once")

        result = await deadly.result()
        assert (result.outcome, result.reason) == ("FAILED", "poison")
        assert await outcomes([sound]) == {"COMPLETED": 1}
        assert await some.faults() == []
        ledger = await asyncio.to_thread(some.ledger)
        # A worker that was stopped for longer than its lease may not have got that far.
        assert 1 < sum(what == "die" for what, *_ in ledger) <= 10
        supervisor.terminate()
        assert await supervisor.wait() == 0
