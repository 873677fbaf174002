"""The live channel over PostgreSQL: LISTEN and NOTIFY, on two connections of their own.

Never inside an append: commits that notify wait for one another, in the whole server.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final

from lib._util.postgres import Connection, Connections, sql
from lib.errors import StoreError
from lib.events.live import LiveLink
from lib.events.stores.postgres.schema import typed_errors

MAX_BYTES: Final = 7_900
"""The most bytes of one message: PostgreSQL takes less than 8,000, with the name of the channel."""

_NOTIFY: Final = "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"


class PostgresLink:
    """One connection that listens to the store, and one that notifies.

    The server has one channel for each store. A process ignores what is of runs that it does not
    watch.
    """

    def __init__(
        self, store: str, channel: str, listening: Connection, sending: Connection
    ) -> None:
        """Take two open connections."""
        self._store, self._channel = store, channel
        self._sending = sending
        self.notifications: AsyncGenerator[Any] = listening.notifies()

    async def listen(self, channels: Collection[str]) -> None:
        """Do nothing: all channels are heard."""

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Notify in one transaction."""
        payloads = [f"{channel} {text}" for channel, text in messages]
        with typed_errors(self._store, writes=False):
            await self._sending.execute(_NOTIFY, (self._channel, payloads), prepare=False)

    async def receive(self) -> Sequence[tuple[str, str]]:
        """Wait for a notification and return its message."""
        with typed_errors(self._store, writes=False):
            try:
                notification = await anext(self.notifications)
            except StopAsyncIteration:
                raise StoreError(f"{self._store} sends nothing any more", retryable=True) from None
        channel, _, text = notification.payload.partition(" ")
        return [(channel, text)]


@asynccontextmanager
async def postgres_link(
    url: str, store: str, store_id: Callable[[], str], _: Callable[[], bool]
) -> AsyncGenerator[LiveLink]:
    """Open a link over two connections beside those of the store.

    Args:
        url: of the database.
        store: its name in messages.
        store_id: returns what the name of the channel is made of: only readers of the store know.
    """
    channel = f"lib_{hashlib.sha256(f'{store_id()}/notify'.encode()).hexdigest()[:32]}"
    connections = Connections(url, name=store)
    async with AsyncExitStack() as held:
        with typed_errors(store, writes=False):
            listening = await held.enter_async_context(connections.first())
            sending = await held.enter_async_context(connections.first())
            await listening.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        link = PostgresLink(store, channel, listening, sending)
        await held.enter_async_context(aclosing(link.notifications))
        yield link
