"""The runs that an engine drives in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK
from lib._util.tasks import whole
from lib.engine.core.algorithm import Algorithm
from lib.engine.core.state import RunState
from lib.engine.handlers.registry import AlgorithmRegistry
from lib.engine.logs import log_store_errors
from lib.engine.runtime.deltas import DeltaHub
from lib.engine.runtime.driver import Driver
from lib.engine.runtime.services import Services
from lib.errors import MissingHandler, RunAbandoned, StoreClosed, UnknownAlgorithm
from lib.events import Event, Lease

_log = logging.getLogger("lib.engine")
_LOOK_S: Final = 0.05
_IDLE_LOOKS: Final = 2


class Hosting:
    """Claims runs and drives them, each in a task of its own.

    Attributes:
        drives: whether it drives anything; False leaves that to other processes.
        closing: whether the engine is about to end, so that nothing is begun any more.
        on_end: is called with the name of the algorithm and the last state of each run that ends
            here; None for nothing.
    """

    def __init__(
        self,
        services: Services,
        algorithms: AlgorithmRegistry,
        hub: DeltaHub,
        on_rest: Callable[[str], Awaitable[None]],
        *,
        drives: bool,
    ) -> None:
        """Begin without a run.

        Args:
            services: parts of the engine that drivers share.
            algorithms: how runs go on.
            hub: where pieces of replies go.
            on_rest: is called with a run that waits, in case a signal has come meanwhile.
            drives: see above.
        """
        self.drives = drives
        self.closing = False
        self.on_end: Callable[[str, RunState[Any]], None] | None = None
        self._services = services
        self._algorithms = algorithms
        self._hub = hub
        self._on_rest = on_rest
        self._runs: dict[str, tuple[Driver, asyncio.Task[RunState[Any]]]] = {}

    def __contains__(self, run_id: str) -> bool:
        """Return True if the run is driven here."""
        return run_id in self._runs

    @property
    def count(self) -> int:
        """The number of runs that are driven here."""
        return len(self._runs)

    def __getitem__(self, run_id: str) -> asyncio.Task[RunState[Any]]:
        """Return the task that drives the run."""
        return self._runs[run_id][1]

    def waits(self, run_id: str) -> bool:
        """Return True if the run is driven here and only waits for its child runs."""
        hosted = self._runs.get(run_id)
        return hosted is not None and hosted[0].waits

    @property
    def algorithms(self) -> list[str]:
        """The names of the algorithms whose runs can be driven here."""
        return list(self._algorithms)

    async def claim_some(self, limit: int, *, skip: Collection[str] = ()) -> list[Lease]:
        """Claim up to so many ready runs that no worker holds, oldest first; see `begin`."""
        return await self._services.store.claim(
            self._services.worker,
            ttl_s=self._services.lease_s,
            limit=limit,
            algorithms=self.algorithms,
            skip=skip,
        )

    async def begin(self, lease: Lease) -> bool:
        """Drive a run that has been claimed; return whether it is driven here now.

        What fails before it is driven gives the lease back.
        """
        try:
            info = await self._services.store.run(lease.run_id)
            # Nothing is left to drive of a run that was erased meanwhile.
            if info is None:
                return False
            return await self._take(lease, self._algorithms.require(info.algorithm))
        except BaseException:
            with log_store_errors(lease, "its lease was not given back"):
                await whole(self._services.store.release(lease))
            raise

    async def claim(
        self, run_id: str, algorithm: Algorithm[Any], log: Sequence[Event] = ()
    ) -> bool:
        """Drive the run if no worker does; return True if it is driven here now.

        A caller that is cancelled waits for the store's answer: else it might leave a lease without
        an owner.
        """
        if not self.drives:
            return False
        returned = asyncio.Event()
        try:
            return await whole(self._claim(run_id, algorithm, log, returned))
        finally:
            returned.set()

    async def _claim(
        self, run_id: str, algorithm: Algorithm[Any], log: Sequence[Event], returned: asyncio.Event
    ) -> bool:
        store, worker = self._services.store, self._services.worker
        leases = await store.claim(worker, ttl_s=self._services.lease_s, run_id=run_id)
        return bool(leases) and await self._take(leases[0], algorithm, log, returned)

    async def _take(
        self,
        lease: Lease,
        algorithm: Algorithm[Any],
        log: Sequence[Event] = (),
        returned: asyncio.Event | None = None,
    ) -> bool:
        if self.closing or lease.run_id in self._runs:
            with suppress(StoreClosed):  # then it ends by itself
                await self._services.store.release(lease)
            return False
        # An epoch above 1 means that the log may have grown.
        self._host(lease, algorithm, log if lease.epoch == 1 else (), returned)
        return True

    def _host(
        self,
        lease: Lease,
        algorithm: Algorithm[Any],
        log: Sequence[Event],
        returned: asyncio.Event | None,
    ) -> None:
        handlers = self._services.handlers.for_algorithm(algorithm.name)
        services = replace(self._services, handlers=handlers)
        driver = Driver(services, algorithm, lease, self._hub, log=log)
        task = asyncio.create_task(
            self._drive(driver, lease.run_id, algorithm, returned), name=f"lib.run {lease.run_id}"
        )
        self._runs[lease.run_id] = (driver, task)
        self._hub.begin(lease.run_id)
        task.add_done_callback(lambda done: self._ended(lease.run_id, driver, done))

    def _ended(self, run_id: str, driver: Driver, task: asyncio.Task[RunState[Any]]) -> None:
        self._forget(run_id, driver)  # a task that is cancelled at once does not do it itself
        _log_end(run_id, task)

    def _forget(self, run_id: str, driver: Driver) -> None:
        if run_id in self._runs and self._runs[run_id][0] is driver:
            del self._runs[run_id]
            self._hub.end(run_id)

    async def _drive(
        self,
        driver: Driver,
        run_id: str,
        algorithm: Algorithm[Any],
        returned: asyncio.Event | None,
    ) -> RunState[Any]:
        try:
            # Else it might fail before its claimer can look for it.
            state = await driver.drive(returned)
        finally:
            self._forget(run_id, driver)
        self._services.states.keep(algorithm, state)
        if state.outcome is not None and self.on_end is not None:
            self.on_end(algorithm.name, state)
        if state.outcome is None and not self.closing:
            # A signal that came while the lease was being released found the run still driven here.
            await self._on_rest(run_id)
        return state

    def wait_stopped(self, run_id: str) -> Coroutine[Any, Any, RunState[Any] | None]:
        """Wait until this process stops driving the run; return its state then.

        It is looked for at once, not when the result is awaited: by then it may have failed
        unseen.

        Returns None if the run is not driven here, or no longer because another worker is.

        Raises:
            RunAbandoned: the engine is closing.
        """
        hosted = self._runs.get(run_id)
        return self._end_of(None if hosted is None else hosted[1])

    async def _end_of(self, task: asyncio.Task[RunState[Any]] | None) -> RunState[Any] | None:
        if task is None:
            return None
        try:
            return await asyncio.shield(task)
        except RunAbandoned:
            if self.closing:
                raise
            return None

    def interrupt(self, run_id: str) -> None:
        """Stop driving a run soon, if it is driven here; any worker can resume it then."""
        hosted = self._runs.get(run_id)
        if hosted is not None:
            hosted[0].stop()

    async def wait_idle(
        self, timeout_s: float, under_way: Mapping[str, asyncio.Task[Any]] | None = None
    ) -> bool:
        """Wait until no run is driven here but those that only wait for their child runs.

        Those may wait for a person, or for another process.

        Args:
            timeout_s: how long at most.
            under_way: tasks of some runs, which may change meanwhile: when there are none, nothing
                is waited for. They are not all, for their child runs are driven here, too.

        Returns:
            False if one still is driven then.
        """
        idle_looks = 0
        try:
            async with asyncio.timeout(timeout_s):
                while idle_looks < _IDLE_LOOKS and (self._runs if under_way is None else under_way):
                    tasks = {**self._tasks, **(under_way or {})}
                    busy = [task for run_id, task in tasks.items() if not self.waits(run_id)]
                    idle_looks = 0 if busy else idle_looks + 1
                    if busy:  # no wake-up comes when a run only waits
                        await asyncio.wait(busy, timeout=_LOOK_S)
                    else:  # one whose child has just ended is about to go on
                        await SYSTEM_CLOCK.sleep(_LOOK_S)
        except TimeoutError:
            return False
        return True

    @property
    def _tasks(self) -> dict[str, asyncio.Task[RunState[Any]]]:
        return {run_id: task for run_id, (_, task) in self._runs.items()}

    async def close(self) -> None:
        """Stop driving all of them."""
        while self._runs:
            for driver, _ in self._runs.values():
                driver.stop()
            await asyncio.wait([task for _, task in self._runs.values()])


def _log_end(run_id: str, task: asyncio.Task[RunState[Any]]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, RunAbandoned):
        _log.info("%s", error)
    elif isinstance(error, MissingHandler | UnknownAlgorithm):  # the traceback would add nothing
        _log.error("run %r stopped here: %s: %s", run_id, type(error).__name__, error)
    elif error is not None:
        _log.error("run %r stopped here", run_id, exc_info=error)
