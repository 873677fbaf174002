"""Runs a server under uvicorn, and ends it quickly: every stream gets a last event.

uvicorn waits for open connections before it ends the lifespan, and a stream never ends by itself.
So the streams are ended when the signal comes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from types import FrameType
from typing import Final

import uvicorn

from lib_server.edge.hosts import is_loopback
from lib_server.protocol import bounded_protocol
from lib_server.server import Server

_GRACE_S: Final = 5


class DrainingServer(uvicorn.Server):
    """Ends the streams of its application at the first signal, and everything at the second."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        """Run a server.

        Args:
            config: of uvicorn; its application is the server, or mounts it.
            server: whose streams are ended.
        """
        super().__init__(config)
        self._application = server
        self._running: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests; a signal ends it."""
        self._running = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal: the first one drains, the second one stops at once."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        if self._running is not None:
            self._running.call_soon_threadsafe(self._application.drain)


def make_uvicorn(
    server: Server, *, host: str = "127.0.0.1", port: int = 8000, proxies: Sequence[str] = ()
) -> DrainingServer:
    """Return uvicorn around a server, for `await running.serve()`.

    Args:
        server: of your agents.
        host: the address to listen on; without an authenticator, one of this machine only.
        port: 0 for a free one.
        proxies: addresses and networks of reverse proxies, whose `X-Forwarded-For` names the
            caller's address. Of all others, that header says nothing.

    Raises:
        ValueError: other machines could reach a server without an authenticator.
    """
    if server.auth is None and not is_loopback(host):
        raise ValueError(
            f"expected a loopback address for a server without an authenticator, got {host!r}: "
            "give it auth=, or listen on 127.0.0.1"
        )
    config = uvicorn.Config(
        server,
        host=host,
        port=port,
        http=bounded_protocol(server.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=_GRACE_S,
    )
    return DrainingServer(config, server)
