"""The live channel over Redis: publish and subscribe, which keeps nothing on the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from lib.events.live import LiveLink
from lib.events.stores.redis.server import Server

MAX_BYTES: Final = 16_384
"""The most bytes of one message, so that a command for another caller does not wait long."""


class RedisLink:
    """One connection that is subscribed, and one that publishes."""

    def __init__(self, server: Server, connection: Any) -> None:
        """Take a server for publishing and a connection for subscriptions."""
        self._server, self._connection = server, connection
        self._channels: set[str] = set()

    async def listen(self, channels: Collection[str]) -> None:
        """Subscribe to these channels, and to no other."""
        wanted = set(channels)
        for command, names in (
            ("SUBSCRIBE", wanted - self._channels),
            ("UNSUBSCRIBE", self._channels - wanted),
        ):
            if names:
                with self._server.typed_errors("lost the connection of its subscriptions"):
                    await self._connection.send_command(command, *sorted(names))
        self._channels = wanted

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Publish messages in one round trip."""
        await self._server.together([("PUBLISH", *message) for message in messages])

    async def receive(self) -> Sequence[tuple[str, str]]:
        """Wait for an answer of the server; return the message that it is, if it is one."""
        with self._server.typed_errors("lost the connection of its subscriptions"):
            answer: Any = await self._connection.read_response()
        match answer:
            case [b"message", bytes(channel), bytes(text)]:
                return [(channel.decode("ascii", "replace"), text.decode("utf-8", "replace"))]
            case _:
                return []


@asynccontextmanager
async def redis_link(
    server: Callable[[], Server], _: Callable[[], bool]
) -> AsyncGenerator[LiveLink]:
    """Open a link over two connections beside those of the store."""
    own = server()
    try:
        async with own.apart() as connection:
            yield RedisLink(own, connection)
    finally:
        await own.close()
