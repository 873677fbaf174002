"""The live channel of a SQLite file: datagrams between sockets in a folder beside it.

The folder, `<file>-live`, belongs to one user and is closed to all others: a process of another
user neither reads deltas nor receives any. It is made by the first subscriber; processes that only
drive look for it. Nothing is written into a file.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from lib._util.clock import SYSTEM_CLOCK
from lib.errors import StoreError
from lib.events.live import LiveLink

_DATAGRAM: Final = 60_000 if sys.platform == "linux" else 2_000
MAX_BYTES: Final = _DATAGRAM - 100
_LOOK_S: Final = 0.25
_PATIENCE_S: Final = 0.02
_MAX_PATH: Final = 100
_SUFFIX: Final = ".sock"


class SocketLink:
    """A socket of this process in the folder, and the way to those of the others."""

    def __init__(self, folder: Path) -> None:
        """Bind a socket; blocks."""
        self._folder = folder
        self._closed = False
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._name = secrets.token_hex(8) + _SUFFIX
        self._receiving = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sending: dict[str, socket.socket] = {}
        self._lock = threading.Lock()
        try:
            self._receiving.settimeout(0)
            self._receiving.bind(self._path(self._name))
        except BaseException:
            self.close()
            raise

    def _path(self, name: str) -> str:
        """Return a path that is short enough for the address of a socket."""
        path = str(self._folder / name)
        if len(os.fsencode(path)) > _MAX_PATH and sys.platform == "linux":
            return f"/proc/self/fd/{self._descriptor}/{name}"
        return path

    def close(self) -> None:
        """Remove the socket, and the folder after the last one; blocks."""
        with self._lock:
            self._closed = True
            for each in (self._receiving, *self._sending.values()):
                each.close()
            os.close(self._descriptor)
        with suppress(OSError):
            (self._folder / self._name).unlink()
        with suppress(OSError):
            self._folder.rmdir()

    async def listen(self, channels: Collection[str]) -> None:
        """Do nothing: all channels are heard."""

    async def receive(self) -> Sequence[tuple[str, str]]:
        """Wait for a datagram and return its messages."""
        loop = asyncio.get_running_loop()
        lines = (await loop.sock_recv(self._receiving, _DATAGRAM)).decode("ascii", "replace")
        parts = [line.partition(" ") for line in lines.split("\n")]
        return [(channel, text) for channel, _, text in parts]

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send messages to all sockets of the folder; one that does not take them is left out."""
        await asyncio.to_thread(self._send, _datagrams(messages))

    def _send(self, datagrams: Sequence[bytes]) -> None:
        with self._lock:  # a thread may go on when the task that waits for it was cancelled
            if not self._closed:
                self._send_to_all(datagrams)

    def _send_to_all(self, datagrams: Sequence[bytes]) -> None:
        names = {name for name in os.listdir(self._descriptor) if name.endswith(_SUFFIX)}  # noqa: PTH208 - by its descriptor
        for name in self._sending.keys() - names:
            self._sending.pop(name).close()
        for name in names:
            try:
                for datagram in datagrams:
                    self._sender(name).sendto(datagram, self._path(name))
            except ConnectionRefusedError:  # its process has died
                with suppress(OSError):
                    (self._folder / name).unlink()
            except OSError:
                continue  # it has just gone, or does not read: what it misses is in the log

    def _sender(self, name: str) -> socket.socket:
        """Return the socket for one receiver: what waits for it fills no buffer of another."""
        if name not in self._sending:
            self._sending[name] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sending[name].settimeout(_PATIENCE_S)
        return self._sending[name]


def _datagrams(messages: Sequence[tuple[str, str]]) -> list[bytes]:
    """Return messages as few datagrams, a line each."""
    datagrams: list[bytes] = []
    for channel, text in messages:
        line = f"{channel} {text}".encode("ascii", "replace")
        if datagrams and len(datagrams[-1]) + len(line) < _DATAGRAM:
            datagrams[-1] += b"\n" + line
        else:
            datagrams.append(line)
    return datagrams


@asynccontextmanager
async def socket_link(path: str, subscribes: Callable[[], bool]) -> AsyncGenerator[LiveLink]:
    """Open a link: at once for a subscriber, and for a driver once there is a subscriber.

    Args:
        path: of the store.
        subscribes: returns True if this process has subscribers.
    """
    folder = Path(await asyncio.to_thread(os.path.realpath, path) + "-live")
    while not (subscribes() or await asyncio.to_thread(folder.is_dir)):
        await SYSTEM_CLOCK.sleep(_LOOK_S)
    link = await asyncio.to_thread(_opened, folder)
    try:
        yield link
    finally:
        await asyncio.to_thread(link.close)


def _opened(folder: Path) -> SocketLink:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not private or status.st_uid != os.geteuid():
        raise StoreError(f"the folder {folder.name!r} is of another user, or open to others")
    return SocketLink(folder)
