"""An internet of one machine: whatever address is dialled, the hostile server answers."""

import threading
from collections.abc import Iterator
from typing import Any

import httpcore2
import pytest

from fakes.hostile_server import HostileServer, blackhole


class Detour:
    """Opens sockets to the server, and says that they lead where they were meant to.

    Attributes:
        dialled: the requested addresses and ports.
        server: who answers.
        refused: addresses that take no connection.
        silent: the port of a socket that does not answer, to use instead.
        peer: what to say about the other end, instead of what was dialled.
        secure: whether every port is one of https; None where 443 is, and no other.
    """

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []
        self._servers = threading.local()  # each thread has its own
        self.refused: set[str] = set()
        self.silent: int | None = None
        self.peer: tuple[str, int] | None = None
        self.secure: bool | None = None
        self._real: Any = _REAL()

    @property
    def server(self) -> HostileServer | None:
        return getattr(self._servers, "own", None)

    @server.setter
    def server(self, server: HostileServer) -> None:
        self._servers.own = server

    def __call__(self) -> "Detour":
        return self

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None) -> Any:
        self.dialled.append((host, port))
        if host in self.refused:
            raise httpcore2.ConnectError(f"[Errno 111] refused by {host}")
        assert self.server is not None
        secure = port == 443 if self.secure is None else self.secure
        to = self.server.https_port if secure else self.server.http_port
        within = timeout if self.silent else None  # this process may be slower than a policy
        stream = await self._real.connect_tcp("127.0.0.1", self.silent or to, timeout=within)
        return _Stream(stream, self.peer or (host, port))

    async def sleep(self, seconds: float) -> None:
        await self._real.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: Any, peer: tuple[str, int]) -> None:
        self._stream, self._peer = stream, peer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> Any:
        return await self._stream.start_tls(ssl_context, server_hostname)

    def get_extra_info(self, info: str) -> Any:
        return self._peer if info == "server_addr" else self._stream.get_extra_info(info)


_REAL: Any = httpcore2.AnyIOBackend


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Detour:
    detour = Detour()
    monkeypatch.setattr(httpcore2, "AnyIOBackend", detour)
    return detour


@pytest.fixture
def silence(internet: Detour) -> Iterator[Detour]:
    with blackhole() as port:
        internet.silent = port
        yield internet
