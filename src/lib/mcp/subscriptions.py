"""Resources that sessions of 2025-11-25 and before subscribe to over HTTP, and their streams.

A session subscribes with a request to one process, and hears of changes on a stream that may be
open in another one. So the store keeps what it has subscribed to, and which of its streams hears of
it: the protocol forbids to send a message on two. The stream that was opened last is the one.

Source: modelcontextprotocol.io, Streamable HTTP and resources, 2025-11-25.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from lib._util.clock import Clock
from lib._util.json import canonical, parse
from lib.events.store import Marks
from lib.mcp.changes import Change, ChangeListener, Changes
from lib.mcp.sdk import MCPError, types
from lib.mcp.sessions import MAX_KEPT, LegacySession
from lib.mcp.state import ExpiringMarks

_MAX_URIS: Final = 1_000
_MAX_CHARS: Final = 16_384


class _Subscribed(NamedTuple):
    """The subscriptions of a session.

    Attributes:
        stream: the id of the stream that hears of them; "" for the next one that looks.
        uris: the URIs.
    """

    stream: str
    uris: list[str]


_NOTHING: Final = _Subscribed("", [])


class Subscriptions:
    """The resources of sessions over HTTP, and the streams of this process that hear of them."""

    def __init__(self, marks: Marks, changes: Changes, *, clock: Clock) -> None:
        """Take the marks of the store that the processes of the server share, and its changes."""
        self._kept = ExpiringMarks(marks, "mcp/subscriptions/", clock=clock)
        self._changes = changes
        self._streams: dict[str, SessionStream] = {}
        self._reading: asyncio.Task[Mapping[str, str]] | None = None
        self._next_reading: asyncio.Task[Mapping[str, str]] | None = None

    async def subscribe(self, session: LegacySession, uri: str) -> None:
        """Keep a URI for a session, until that ends.

        Of a caller's sessions with subscriptions the last 500 count.

        Raises:
            MCPError: the session would have too many.
        """
        name = _name(session)

        def add(value: str | None) -> str:
            stream, uris = _read(value)
            if uri not in uris:
                check_subscriptions([*uris, uri])
                uris = [*uris, uri]
            return canonical([stream, uris])

        await self._kept.make_room(name, f"{session.caller_name}/", MAX_KEPT)
        await self._kept.update(name, add, ttl_s=session.ttl_s)

    async def unsubscribe(self, session: LegacySession, uri: str) -> None:
        """Keep a URI no longer; one that is not kept is ignored."""

        def remove(value: str | None) -> str | None:
            stream, uris = _read(value)
            left = [each for each in uris if each != uri]
            return canonical([stream, left]) if left else None

        await self._kept.update(_name(session), remove, ttl_s=session.ttl_s)

    @asynccontextmanager
    async def stream(
        self, session: LegacySession, wanted: Callable[[Change], bool]
    ) -> AsyncGenerator[SessionStream]:
        """Yield a stream of what the session hears from now on; an earlier one of it ends.

        Args:
            session: of the client.
            wanted: returns True for the changes that it may hear of, if they are of a list or of a
                resource that it has subscribed to.
        """
        async with self._changes.listen(wanted) as listener:
            stream = SessionStream(self, session, listener)
            if session.name in self._streams:
                self._streams[session.name].end()
            self._streams[session.name] = stream
            try:
                await self.give(session, stream.id, only_if_free=False)
                yield stream
            finally:
                if self._streams.get(session.name) is stream:
                    del self._streams[session.name]

    async def give(
        self, session: LegacySession, stream_id: str, *, only_if_free: bool
    ) -> _Subscribed:
        """Let this stream hear of what the session has subscribed to; return who does, and of what.

        Args:
            session: of the client.
            stream_id: of the stream.
            only_if_free: True to leave the subscriptions to another stream that has them.
        """

        def take(value: str | None) -> str | None:
            stream, uris = _read(value)
            taken = stream if only_if_free and stream else stream_id
            return None if value is None else canonical([taken, uris])

        return _read(await self._kept.update(_name(session), take, ttl_s=session.ttl_s))

    async def now(self, session: LegacySession) -> _Subscribed:
        """Return the subscriptions of a session; all streams of this process share one look."""
        if self._next_reading is None:
            self._next_reading = asyncio.create_task(self._read_all(self._reading))
        return _read((await asyncio.shield(self._next_reading)).get(_name(session)))

    async def _read_all(self, before: asyncio.Task[Mapping[str, str]] | None) -> Mapping[str, str]:
        """Return all subscriptions; the look begins after the call of each who waits for it."""
        if before is not None:
            await asyncio.wait([before])
        self._reading, self._next_reading = self._next_reading, None
        return await self._kept.all()


class SessionStream:
    """The notifications of changes for one session.

    Attributes:
        id: of the stream.
    """

    def __init__(
        self, subscriptions: Subscriptions, session: LegacySession, listener: ChangeListener
    ) -> None:
        self.id: str = secrets.token_hex(8)
        self._subscriptions = subscriptions
        self._session = session
        self._listener = listener

    def end(self) -> None:
        """Let `next` return nothing from now on."""
        self._listener.end()

    async def next(self) -> list[types.ServerNotification]:
        """Return what has changed since the last time; none once the stream is to end.

        Raises:
            StoreError: the store cannot be read.
        """
        while changes := await self._listener.next():
            if any(each.kind == "resource" for each in changes):
                kept = await self._subscriptions.now(self._session)
                if kept.uris and not kept.stream:
                    kept = await self._subscriptions.give(self._session, self.id, only_if_free=True)
                if kept.uris and kept.stream != self.id:
                    return []
                uris = {*kept.uris}
                changes = [each for each in changes if each.kind != "resource" or each.uri in uris]
            if changes:
                return [each.notification(None) for each in changes]
        return []


def check_subscriptions(uris: Collection[str]) -> None:
    """Refuse what is more than one client may subscribe to.

    Raises:
        MCPError: there are too many, or they are too long.
    """
    if len(uris) > _MAX_URIS:
        raise MCPError(types.INVALID_PARAMS, f"expected at most {_MAX_URIS} resources")
    if sum(map(len, uris)) > _MAX_CHARS:
        message = f"expected URIs of at most {_MAX_CHARS} characters together"
        raise MCPError(types.INVALID_PARAMS, message)


def _name(session: LegacySession) -> str:
    return f"{session.caller_name}/{session.name}"


def _read(value: str | None) -> _Subscribed:
    return _NOTHING if value is None else _Subscribed(*parse(value))
