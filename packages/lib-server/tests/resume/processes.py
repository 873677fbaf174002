"""Servers and workers that a test stops, kills and starts again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import deque
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Protocol

from server_kit import serving

from lib.engine import Worker
from lib.events import MemoryEventStore
from lib_server import Server

from .resume_app import make_engine

_HERE = Path(__file__).parent
_LISTENING = re.compile(rb"running on (http://[0-9.:]+)")
_COMMANDS = {
    "server": ("lib_server", "serve", "--port", "0", "--drain-s", "0.2"),
    "worker": ("lib.cli", "worker", "--drain-s", "0.2", "--log-level", "info"),
}


class Part(Protocol):
    """A server or a worker.

    Attributes:
        url: of a server that takes requests; "" while it does not, and of a worker.
    """

    url: str

    async def start(self) -> None:
        """Start it, and return once it works."""
        ...

    async def stop(self, how: signal.Signals) -> None:
        """Stop it by a signal, and return once it is gone."""
        ...


class Process:
    """A part in a process of its own."""

    def __init__(self, kind: str, store: str, *, drive: bool = True) -> None:
        module, *command = _COMMANDS[kind]
        self._kind = kind
        self._command = ["-m", module, *command, "resume_app:make_engine"]
        self._environment = {
            **os.environ,
            "RESUME_STORE": store,
            "RESUME_DRIVE": "yes" if drive else "no",
        }
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self.url = ""
        self.log: deque[bytes] = deque(maxlen=200)

    async def start(self) -> None:
        self._listening.clear()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._command,
            cwd=_HERE,
            env=self._environment,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read(self._process))
        if self._kind == "server":
            await self._listening.wait()
            assert self.url, b"".join(self.log).decode()

    async def stop(self, how: signal.Signals) -> None:
        assert self._process is not None
        assert self._reading is not None
        self.url = ""
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        await self._process.wait()
        await self._reading

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.log.append(line)
            if found := _LISTENING.search(line):
                self.url = found[1].decode()
                self._listening.set()
        self.url = ""
        self._listening.set()


class SharedStore(MemoryEventStore):
    """A store in memory that stays open when one of its engines closes it, as a server's would."""

    async def close(self) -> None:
        """Leave it open to the others."""


class Local:
    """A part over a store in the memory of this process: it cannot be killed, only stopped."""

    def __init__(self, kind: str, store: MemoryEventStore) -> None:
        self._kind, self._store = kind, store
        self._stack = AsyncExitStack()
        self.url = ""

    async def start(self) -> None:
        engine = make_engine(self._store)
        if self._kind == "server":
            up = await self._stack.enter_async_context(serving(Server(engine, drain_s=0)))
            self.url = f"http://127.0.0.1:{up.port}"
            return
        await self._stack.enter_async_context(engine)
        worker = Worker(engine, drain_s=0)
        working = asyncio.create_task(worker.run())

        async def end() -> None:
            worker.stop()
            await working

        self._stack.push_async_callback(end)

    async def stop(self, how: signal.Signals) -> None:
        self.url = ""
        await self._stack.aclose()
