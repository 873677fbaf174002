"""Observers that start, stop, crash and compete while logs grow and backends fail.

At the end every backend has what the logs tell, once. All of it runs on one event loop whose time
is the clock's, so that the same steps go the same way.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable
from functools import partial
from random import Random
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.observe import trace_id_of
from lib.testing.clock import ManualClock
from lib.testing.logs import at

from .observed_truth import Truth
from .observed_world import GROUP, Backend, Growing, Process
from .process_kit import new_loop

LONG = bool(os.environ.get("LIB_TEST_LONG"))
MAX_ROOTS, MAX_RUNS, MAX_PROCESSES = 3, 6, 2
STEP_S = 4.0  # shorter than the margin of a claim

# -- the machine -------------------------------------------------------------------------------

TROUBLE = [
    "fails before",
    "fails after",
    "asks for time",
    "explodes before",
    "hangs before",
    "hangs after",
]
picks = st.integers(0, 5)


class Machine(RuleBasedStateMachine):
    """Does anything that can happen to observers, then compares."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(at(0))
        self.runner = asyncio.Runner(loop_factory=partial(new_loop, self.clock.monotonic))
        self.backends = [
            Backend("replaces", "replace", knows=False),
            Backend("keeps the first", "first", knows=False),
            Backend("keeps all", "first", knows=True),
        ]
        self.store = MemoryEventStore(clock=self.clock)
        self.growing = Growing(self.store, self.clock)
        self.truth = Truth(self.growing, self.backends, self.clock)
        self.processes: list[Process] = []
        self.calls: list[asyncio.Task[Any]] = []
        self.dice = Random(0)

    def do(self, work: Awaitable[Any]) -> Any:
        async def main() -> Any:
            return await work

        return self.runner.run(main())

    async def spin(self, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)  # noqa: TID251 - lets the processes run

    async def finish(self, task: asyncio.Task[Any]) -> Any:
        """Return what a call of a process returns, letting time pass if need be."""
        for count in range(3_000):
            if task.done():
                return task.result()
            await asyncio.sleep(0)  # noqa: TID251 - lets the processes run
            if count % 60 == 59:
                self.clock.advance(1)
        raise AssertionError(f"it never ends: {task}")

    # -- rules: processes

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.dice = Random(seed)
        self.do(self.store.setup())
        self.do(self._start(settle_s=0.2, room=100, at_once=1))

    async def _start(self, **options: Any) -> Process:
        process = Process(self.store, self.backends, clock=self.clock, dice=self.dice, **options)
        self.processes.append(process)
        await self.finish(process.call(process.start()))
        return process

    @precondition(lambda self: len(self.processes) < MAX_PROCESSES)
    @rule(settle_s=st.sampled_from([0, 0.2, 6]), room=st.sampled_from([1, 2, 100]), at_once=picks)
    def start(self, settle_s: float, room: int, at_once: int) -> None:
        self.do(self._start(settle_s=settle_s, room=room, at_once=1 if at_once < 3 else 3))

    @precondition(lambda self: self.processes)
    @rule(which=picks)
    def crash(self, which: int) -> None:
        async def main() -> None:
            process = self.processes.pop(which % len(self.processes))
            while process.tasks:
                process.die()
                await asyncio.sleep(0)  # noqa: TID251 - lets it die

        self.do(main())

    @precondition(lambda self: any(not process.closing for process in self.processes))
    @rule(wait=st.booleans())
    def stop(self, wait: bool) -> None:
        async def main() -> None:
            process = next(process for process in self.processes if not process.closing)
            closing = process.call(process.close())
            if wait:
                await self.finish(closing)
                self.processes.remove(process)

        self.do(main())

    def _living(self, which: int) -> Process | None:
        living = [process for process in self.processes if not process.closing]
        return living[which % len(living)] if living else None

    @precondition(lambda self: self.growing.logs and self._living(0))
    @rule(
        which=picks,
        root=picks,
        what=st.sampled_from(["flush", "flush", "backfill", "bit by bit", "again"]),
    )
    def ask_observer(self, which: int, root: int, what: str) -> None:
        process = cast(Process, self._living(which))
        run_id = self._some_root(root)
        observer = process.observer

        async def main() -> None:
            match what:
                case "flush":
                    call = process.call(observer.flush_open())
                case "backfill":
                    call = process.call(observer.backfill())
                case _:
                    final = what == "again"
                    call = process.call(observer.export_trace(run_id, final=final))
            self.calls.append(call)

        self.do(main())

    def _some_root(self, which: int) -> str:
        return self.growing.roots[which % len(self.growing.roots)]

    @rule(rounds=st.sampled_from([1, 3, 10, 40, 200]))
    def go_on(self, rounds: int) -> None:
        self.do(self.spin(rounds))

    @rule(steps=st.sampled_from([0, 1, 10]))
    def pass_time(self, steps: int) -> None:
        self.do(self._pass_time(steps))

    async def _pass_time(self, steps: int) -> None:
        self.clock.advance(0.3)
        await self.spin(20)
        for _ in range(steps):
            self.clock.advance(STEP_S)
            await self.spin(20)

    @precondition(lambda self: len(self.processes) < MAX_PROCESSES)
    @rule(which=picks)
    def deliver_again(self, which: int) -> None:
        """Let a process that starts later get some events for a second time."""
        mark = self.do(self.store.mark(f"bus/{GROUP}/0"))
        if mark:
            place = json.loads(mark)
            place["cursor"] = str(max(0, int(place["cursor"]) - which))
            self.do(self.store.set_mark(f"bus/{GROUP}/0", json.dumps(place)))

    # -- rules: backends

    @rule(which=picks, words=st.lists(st.sampled_from([*TROUBLE, "well"]), min_size=1, max_size=3))
    def trouble(self, which: int, words: list[str]) -> None:
        self.backends[which % 3].script = list(words)

    @precondition(lambda self: self.growing.logs)
    @rule(which=picks, root=st.none() | picks)
    def refuse(self, which: int, root: int | None) -> None:
        """Refuse one trace for good, or none any more."""
        refused = set[str]() if root is None else {trace_id_of(self._some_root(root))}
        self.backends[which % 3].refused = refused

    # -- rules: logs

    @precondition(lambda self: len(self.growing.roots) < MAX_ROOTS)
    @rule()
    def start_root(self) -> None:
        self.do(self.growing.start())

    @precondition(lambda self: self._open_runs())
    @rule(run=picks, what=st.sampled_from(["ask", "think", "answer", "answer badly", "child"]))
    def go_further(self, run: int, what: str) -> None:
        self._grow(run, what)

    @precondition(lambda self: self._open_runs())
    @rule(run=picks, what=st.sampled_from(["own", "resume"]))
    def take_over(self, run: int, what: str) -> None:
        self._grow(run, what)

    @precondition(lambda self: self._open_runs())
    @rule(run=picks, what=st.sampled_from(["end", "end", "end badly"]))
    def end(self, run: int, what: str) -> None:
        self._grow(run, what)

    def _grow(self, run: int, what: str) -> None:
        run_ids = self._open_runs()
        run_id, growing = run_ids[run % len(run_ids)], self.growing
        well = not what.endswith("badly")
        match what.partition(" ")[0]:
            case "ask":
                self.do(growing.ask(run_id))
            case "think":
                self.do(growing.think(run_id))
            case "answer":
                self.do(growing.answer(run_id, well=well))
            case "child" if len(growing.logs) < MAX_RUNS:
                self.do(growing.start_child(run_id))
            case "own":
                self.do(growing.own(run_id))
            case "resume":
                self.do(growing.resume(run_id))
            case "end":
                self.do(growing.end(run_id, well=well))
            case _:
                pass

    def _open_runs(self) -> list[str]:
        logs = self.growing.logs.items()
        return [run for run, log in logs if all(e.kind != k.RUN_COMPLETED for e in log)]

    @precondition(lambda self: self.growing.logs)
    @rule(run=picks, again=st.booleans(), of_span=st.booleans())
    def score(self, run: int, again: bool, of_span: bool) -> None:
        run_ids = list(self.growing.logs)
        self.do(self.growing.score(run_ids[run % len(run_ids)], again=again, of_span=of_span))

    # -- the end

    def teardown(self) -> None:
        try:
            if self.processes or self.growing.logs:
                self.do(self._end())
        finally:
            self.do(self._kill())
            self.runner.close()

    async def _kill(self) -> None:
        for process in self.processes:
            while process.tasks:
                process.die()
                await asyncio.sleep(0)  # noqa: TID251 - lets it die

    async def _end(self) -> None:
        for backend in self.backends:
            backend.script, backend.refused = [], set()
        last = await self._start(settle_s=0, room=100, at_once=1)
        await self._pass_time(15)
        await self.finish(last.call(last.observer.drain(timeout_s=100)))
        await self.truth.check_pending()
        for _ in range(2):
            await self.finish(last.call(last.observer.flush_open()))
            await self.finish(last.call(last.observer.backfill()))
            await self._pass_time(15)
        for task in self.calls:
            assert task.done()
            assert task.cancelled() or task.result() >= 0
        await self.finish(last.call(last.observer.flush_open()))
        await self.finish(last.call(last.observer.backfill()))
        await self.truth.check()
        calls = [backend.calls for backend in self.backends]
        assert await self.finish(last.call(last.observer.flush_open())) == 0
        assert await self.finish(last.call(last.observer.backfill())) == 0
        heir = await self._start(settle_s=0, room=100, at_once=1)
        assert await self.finish(heir.call(heir.observer.drain()))
        assert [backend.calls for backend in self.backends] == calls
        await self.truth.check_marks()


@pytest.mark.timeout(1800 if LONG else 900)
def test_every_backend_has_each_span_of_the_logs_exactly_once() -> None:
    logging.disable(logging.CRITICAL)  # a world full of failures has much to tell
    try:
        # Without threads, so that the same steps go the same way.
        with patch("lib.observe.trace._INLINE_EVENTS", 10**9):
            run_state_machine_as_test(
                Machine,
                settings=settings(max_examples=5_000 if LONG else 75, stateful_step_count=50),
            )
    finally:
        logging.disable(logging.NOTSET)
