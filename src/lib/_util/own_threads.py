"""Threads for one kind of work, so that it waits for no other and keeps no other waiting."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class OwnThreads:
    """Runs functions that block in threads that do nothing else."""

    def __init__(self, name: str, max_threads: int) -> None:
        """Prepare; threads start with work.

        Args:
            name: of the threads.
            max_threads: how many work at once; further work waits.
        """
        self._name, self._max_threads = name, max_threads
        self._process = -1
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Return the function's result, called in this context; cancellable until it starts."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads(), lambda: context.run(work))

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._process != os.getpid():  # a fork has none of the threads
            self._pool = ThreadPoolExecutor(self._max_threads, thread_name_prefix=self._name)
            self._process = os.getpid()
        return self._pool
