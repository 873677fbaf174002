"""A worker: claims ready runs of a store and drives them with its engine.

Any number of workers share a store. Each claims ready runs, among them those of dead workers whose
leases have expired. A worker polls the store after a wake-up, and every `poll_s`, since no wake-up
comes when a lease expires. Between polls it pauses, longer each time while there is nothing to do,
so that a busy store is not polled at each append.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest
from typing import Final

from lib.engine.api.engine import Engine
from lib.errors import RunAbandoned, StoreClosed, StoreError
from lib.events import Lease
from lib.events.wakeups import Listener

_log = logging.getLogger("lib.engine")

_SHORTEST_S: Final = 0.02
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
_LONGEST_OUTAGE_PAUSE_S: Final = 30.0
_LONGEST_COOLDOWN_S: Final = 60.0
_COOLDOWN_FACTOR: Final = 19.0
"""How long to pause after a claim that met many runs in backoff, as a multiple of its duration: one
part in twenty of the time goes into runs that are claimed only to be released."""
_MANY_BACKED_OFF: Final = 32


def _log_line(line: str) -> None:
    _log.info("%s", line)


class Worker:
    """Drives runs that no worker holds: `async with engine: await Worker(engine).run()`.

    Attributes:
        max_runs: how many runs it drives at once. What they start themselves is not counted, nor
            are those that only wait for runs that they have started.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_runs: int = 32,
        poll_s: float = 1.0,
        drain_s: float = 30.0,
        report: Callable[[str], None] = _log_line,
        max_failures: int = 10_000,
        max_skipped: int = 1_000,
    ) -> None:
        """Put the parts together; nothing happens before `run`.

        Args:
            engine: what drives the runs, those of its algorithms only; entered by the caller.
            max_runs: see above.
            poll_s: seconds between polls of the store when no wake-up comes.
            drain_s: how long runs under way may go on after `drain`.
            report: is called with each change of state as a line of text; by default the log.
            max_failures: above so many failed runs it forgets those whose backoff is over.
            max_skipped: how many runs in backoff a claim passes over, which takes a store 1 to
                5 ms for a thousand. More of them are claimed and released.

        Raises:
            ValueError: a number is out of its range, or the engine was made not to drive.
        """
        if max_runs < 1 or poll_s <= 0 or drain_s < 0:
            raise ValueError("a worker needs max_runs >= 1, poll_s > 0 and drain_s >= 0")
        if not engine.hosting.drives:
            raise ValueError("this engine drives nothing: make it without drive=False")
        self.max_runs = max_runs
        self._engine = engine
        self._hosting = engine.hosting
        self._poll_s = poll_s
        self._drain_s = drain_s
        self._report = report
        self._max_failures = max_failures
        self._max_skipped = max_skipped
        self._draining = asyncio.Event()
        self._stopped = self._interrupts = self._left = False
        self._wake: Listener | None = None
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        self._outage = 0
        self._cooldown_s = 0.0

    @property
    def under_way(self) -> int:
        """The number of runs that it drives now."""
        return len(self._under_way)

    def drain(self) -> None:
        """Claim nothing more, and let `run` end when what is under way has ended or waits."""
        self._draining.set()
        if self._wake is not None:
            self._wake.wake()

    def stop(self) -> None:
        """Let `run` end at once; runs under way are interrupted, and any worker may resume them."""
        self._stopped = True
        self.drain()
        self._interrupt()

    async def run(self) -> None:
        """Work until `drain` or `stop` is called.

        Cancelled, it claims nothing more, and leaves what is under way to the engine.

        Raises:
            StoreClosed: the engine has not been entered, or was left meanwhile.
        """
        self._report(
            f"working: up to {self.max_runs} runs of {', '.join(self._hosting.algorithms)}"
        )
        with self._engine.store.wakeups.listen() as wake:
            self._wake = wake
            try:
                await self._work(wake)
                await self._finish()
            finally:
                self._wake, self._left = None, True
                for run_id, task in self._under_way.items():
                    if run_id in self._hosting:  # else it is about to be, and its task ends then
                        task.cancel()
        self._report("stopped")

    # -- claiming --------------------------------------------------------------------------

    async def _work(self, wake: Listener) -> None:
        rest_s = _SHORTEST_S
        while not self._draining.is_set():
            found = await self._look()
            rest_s = _SHORTEST_S if found else min(rest_s * 2, self._poll_s / 2)
            pause_s = max(rest_s, self._cooldown_s)
            await self._rest(_jittered(pause_s))
            if not found:
                await wake.wait(_jittered(max(self._poll_s - pause_s, 0.0)))
            await self._room()

    async def _look(self) -> int:
        """Claim what is ready; return the number of runs begun."""
        try:
            found = await self._take()
        except StoreClosed:
            raise
        except StoreError as error:
            return await self._wait_out_outage(error)
        if self._outage:
            self._outage = 0
            self._report("the store answers again")
        return found

    async def _wait_out_outage(self, error: StoreError) -> int:
        """Pause while the store fails, and report it once; return 0 runs found."""
        self._outage += 1
        if self._outage == 1:
            self._report(f"the store fails, trying again: {error}")
        pause_s = min(_SHORTEST_S * 2 ** min(self._outage, 20), _LONGEST_OUTAGE_PAUSE_S)
        await self._rest(_jittered(pause_s))
        return 0

    async def _take(self) -> int:
        """Claim what there is room for; runs that failed here lately stay in backoff."""
        found, backed_off, began = 0, list[Lease](), self._engine.clock.monotonic()
        try:
            while room := self._free():
                leases = await self._hosting.claim_some(room, skip=self._longest_backed_off())
                for lease in leases:
                    if self._draining.is_set() or self._is_backed_off(lease.run_id):
                        backed_off.append(lease)
                    else:
                        self._begin(lease)
                        found += 1
                if len(leases) < room:
                    break
        finally:  # only now, or they would come again
            await self._give_back(backed_off)
            took_s = self._engine.clock.monotonic() - began
            share = min(len(backed_off) / _MANY_BACKED_OFF, 1.0)
            self._cooldown_s = min(took_s * _COOLDOWN_FACTOR * share, _LONGEST_COOLDOWN_S)
        return found

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        """Release them all at once, so that the store can write them together."""
        release = self._engine.store.release
        done = await asyncio.gather(*map(release, leases), return_exceptions=True)
        for error in filter(None, done):
            raise error

    def _free(self) -> int:
        if self._draining.is_set():
            return 0
        at_work = sum(not self._hosting.waits(run_id) for run_id in self._under_way)
        return max(self.max_runs - at_work, 0)

    async def _room(self) -> None:
        """Wait until another run can be taken, or none is to be."""
        while self._under_way and not self._free() and not self._draining.is_set():
            draining = asyncio.create_task(self._draining.wait())
            try:
                await asyncio.wait(
                    [draining, *self._under_way.values()],
                    timeout=self._poll_s,  # no wake-up comes when a run only waits
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                draining.cancel()

    async def _rest(self, seconds: float) -> None:
        """Pause for these seconds, or until `drain` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._draining.wait()

    # -- driving ---------------------------------------------------------------------------

    def _begin(self, lease: Lease) -> None:
        task = asyncio.create_task(self._drive(lease), name=f"lib.worker {lease.run_id}")
        self._under_way[lease.run_id] = task
        task.add_done_callback(partial(self._ended, lease.run_id))

    async def _drive(self, lease: Lease) -> None:
        await self._hosting.begin(lease)
        if self._interrupts:  # it was not driven yet when the others were interrupted
            self._hosting.interrupt(lease.run_id)
        while lease.run_id in self._hosting and not self._left:
            await self._hosting.wait_stopped(lease.run_id)

    def _ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        if self._under_way.get(run_id) is task:  # else it has been claimed again meanwhile
            del self._under_way[run_id]
        if task.cancelled():
            return
        error = task.exception()
        if error is None or isinstance(error, RunAbandoned):
            self._failures.pop(run_id, None)
        else:
            self._back_off(run_id, error)

    def _back_off(self, run_id: str, error: BaseException) -> None:
        """Leave a run that cannot go on here, such as for a missing handler, for a while."""
        failures = self._failures.get(run_id, (0, 0.0))[0] + 1
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 20), _LONGEST_PAUSE_S)
        now = self._engine.clock.monotonic()
        self._failures[run_id] = (failures, now + pause_s)
        if len(self._failures) > self._max_failures:
            self._failures = {key: put for key, put in self._failures.items() if put[1] > now}
        self._report(f"run {run_id} stopped here: {type(error).__name__}; again in {pause_s:g} s")

    def _is_backed_off(self, run_id: str) -> bool:
        _, until = self._failures.get(run_id, (0, 0.0))
        return self._engine.clock.monotonic() < until

    def _longest_backed_off(self) -> list[str]:
        now = self._engine.clock.monotonic()
        backed_off = [(put[1], run_id) for run_id, put in self._failures.items() if put[1] > now]
        return [run_id for _, run_id in nlargest(self._max_skipped, backed_off)]

    # -- the end ---------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Let what is under way end by itself for a while, then interrupt it.

        A run that only waits, as for a person, is not waited for; its child runs at work here are.
        """
        if self._under_way and not self._stopped:
            self._report(f"draining: {self.under_way} runs under way")
            await self._hosting.wait_idle(self._drain_s, self._under_way)
        if not self._stopped:
            self._interrupt()
        if self._under_way:
            await asyncio.wait(self._under_way.values())

    def _interrupt(self) -> None:
        self._interrupts = True
        if self._under_way:
            self._report(f"interrupting {self.under_way} runs")
        for run_id in self._under_way:
            self._hosting.interrupt(run_id)


def _jittered(seconds: float) -> float:
    """Return about so many seconds, so that workers do not ask all at once."""
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
