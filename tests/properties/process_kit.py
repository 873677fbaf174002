"""Shared by worlds of processes: processes that may die anywhere, and a manual clock."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from random import Random
from typing import Any, cast

Tasks = dict[asyncio.Task[Any], None]

_tasks_of_process: ContextVar[Tasks | None] = ContextVar("tasks", default=None)


class Mortal:
    """A process: its tasks are known and die together; from then on it gets no further."""

    def __init__(self, dice: Random) -> None:
        self.alive = True
        self.tasks: Tasks = {}
        self.dice = dice

    async def breathe(self) -> None:
        """Let others run; a process that is dead gets no further."""
        for _ in range(self.dice.randrange(3)):
            await asyncio.sleep(0)  # noqa: TID251 - lets others run
        if not self.alive:
            raise asyncio.CancelledError

    def call(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let the process do something, in a task that dies with it."""
        token = _tasks_of_process.set(self.tasks)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            _tasks_of_process.reset(token)

    def die(self) -> None:
        self.alive = False
        for task in list(self.tasks):
            task.cancel()


class SlowStore:
    """A store each of whose calls lets others run before and after it."""

    def __init__(self, store: Any, process: Mortal) -> None:
        self._store, self._process = store, process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def slowly(*args: Any, **named: Any) -> Any:
            await self._process.breathe()
            result = await method(*args, **named)
            await self._process.breathe()
            return result

        return slowly


def new_loop(now_s: Callable[[], float]) -> asyncio.AbstractEventLoop:
    """Return an event loop that knows whose tasks are whose, and whose time-outs wait for a clock.

    Args:
        now_s: the clock, which is moved by hand.
    """
    loop = asyncio.new_event_loop()
    cast(Any, loop).time = now_s

    def new_task(loop: Any, work: Any, **named: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **named)
        siblings = _tasks_of_process.get()
        if siblings is not None:
            siblings[task] = None
            task.add_done_callback(siblings.pop)
        return task

    loop.set_task_factory(cast(Any, new_task))
    return loop
