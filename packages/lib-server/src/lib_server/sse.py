"""The stream of a run as server-sent events: the log from any place on, then live, then the end.

Source: HTML Living Standard, 9.2 Server-sent events, 2026-10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from lib._util.clock import Clock
from lib.engine import Turn
from lib.errors import LibError, StoreError
from lib.events import EventStore, RunInfo
from lib.events import kinds as k
from lib_server.channels import DRAINING, Channels, Frame, Subscriber, event_frame, message
from lib_server.limits import Limits

_log = logging.getLogger("lib_server")

RETRY_MS: Final = 1000
RETRY: Final = b"retry: %d\n\n" % RETRY_MS
HEARTBEAT: Final = b": hb\n\n"
END: Final = "run.end"
ERASED: Final = "run.erased"
RESET: Final = "stream.reset"
LAGGED: Final = "stream.lagged"
UNAUTHORIZED: Final = "stream.unauthorized"
DELTA: Final = "reply.delta"
STREAM_EVENTS: Final = {
    DELTA: "a piece of a reply while the model writes it, and how many characters stand before it",
    END: "the run has ended, and so does the stream",
    ERASED: "the run has been erased",
    RESET: "the log does not reach as far as the client has read: it is sent from its start",
    LAGGED: "the client reads too slowly: resume",
    UNAUTHORIZED: "the credentials are no longer valid",
    DRAINING: "the server shuts down: resume, on another one",
}
"""The events of a stream beside those of the log, whose names are the kinds of events."""

_PAGE: Final = 256
_NEVER_BEGUN: Final = message(END, {"begun": False})
HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Recheck:
    """Checks the credentials of an open stream again and again."""

    __slots__ = ("_clock", "_due_at", "_every_s", "_is_allowed")

    def __init__(
        self, is_allowed: Callable[[], Awaitable[bool]], *, clock: Clock, every_s: float
    ) -> None:
        """Begin with credentials that have just been checked.

        Args:
            is_allowed: returns True while the credentials of the request are valid.
            clock: for the time between checks.
            every_s: seconds between checks.
        """
        self._is_allowed = is_allowed
        self._clock = clock
        self._every_s = every_s
        self._due_at: float = clock.monotonic() + every_s

    @property
    def is_due(self) -> bool:
        """True once the last check is as old as it may be."""
        return self._clock.monotonic() >= self._due_at

    async def passes(self) -> bool:
        """Return False if a check was due and the credentials are no longer valid."""
        if not self.is_due:
            return True
        self._due_at = self._clock.monotonic() + self._every_s
        return await self._is_allowed()


class RunStream:
    """An ASGI response: a run's events behind `after`; a disconnect leaves the run alone."""

    __slots__ = (  # there is one of these for each open stream, mostly idle
        *("_channels", "_ended", "_info", "_last"),
        *("_limits", "_recheck", "_replied", "_store"),
    )

    def __init__(
        self,
        store: EventStore,
        info: RunInfo,
        *,
        after: int,
        channels: Channels,
        limits: Limits,
        recheck: Recheck,
    ) -> None:
        """Stream a run that exists.

        Args:
            store: as the caller sees it.
            info: the run as the store lists it, read in this request.
            after: the `seq` of the last event that the client has.
            channels: of the server.
            limits: of the server.
            recheck: of the credentials of the request.
        """
        self._store = store
        self._info = info
        self._last = after
        self._channels = channels
        self._limits = limits
        self._recheck = recheck
        self._ended = info.status == "closed"
        self._replied: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self.send_body(asyncio.ensure_future(disconnected(receive)), send)

    async def send_body(self, gone: asyncio.Future[None], send: Send) -> None:
        """Send what comes after the headers.

        Args:
            gone: is done when the client has gone; it is cancelled at the end.
            send: of the application.
        """
        subscriber, replies = await self._channels.subscribe(self._info)
        try:
            gone.add_done_callback(lambda _: subscriber.end(_DISCONNECTED))
            await self._send(send, RETRY)
            await self._send_log(subscriber, send)
            await self._send(send, self._sent(replies))
            await self._send_live(subscriber, send)
            if subscriber.ended != _DISCONNECTED:
                await self._send(send, self._farewell(subscriber))
        except TimeoutError:
            _log.info("a stream was cut: its client has read nothing for a while")
            return
        except StoreError:
            _log.exception("a stream ends early: the event store cannot be read")
        finally:
            self._channels.unsubscribe(self._info, subscriber)
            gone.cancel()
        if subscriber.ended != _DISCONNECTED:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, content: bytes) -> None:
        """Send what is to be sent, if anything.

        Raises:
            TimeoutError: the client has read nothing for too long.
        """
        if content:
            async with asyncio.timeout(self._limits.stalled_s):
                await send({"type": "http.response.body", "body": content, "more_body": True})

    async def _send_log(self, subscriber: Subscriber, send: Send) -> None:
        """Send the log from where the client has it, again if what came meanwhile was too much."""
        if self._last > self._info.head:
            await self._send(send, message(RESET, {"head": self._info.head}))
            self._last = 0
        await self._replay(subscriber, send)
        while not self._ended and subscriber.lagged:
            subscriber.read_again()
            await self._replay(subscriber, send)

    def _farewell(self, subscriber: Subscriber) -> bytes:
        if self._ended and self._last >= self._info.head:
            return message(END, {"run_id": self._info.run_id, "head": self._last})
        if subscriber.ended is None:
            return message(LAGGED, {"after": self._last})
        return message(subscriber.ended, {"after": self._last})

    async def _replay(self, subscriber: Subscriber, send: Send) -> None:
        """Send the log behind what was sent, in pages, unless the stream is to end before."""
        while not subscriber.ended:
            events = await self._store.read(self._info.run_id, after=self._last, limit=_PAGE)
            await self._send(send, self._sent([event_frame(event) for event in events]))
            if len(events) < _PAGE:
                return
            await self._check(subscriber)

    async def _send_live(self, subscriber: Subscriber, send: Send) -> None:
        """Send what comes, and what is missing before it, until the run or the stream is to end."""
        idle_s = min(self._limits.heartbeat_s, self._limits.recheck_s)
        while not (self._ended or subscriber.lagged or subscriber.ended):
            if not await subscriber.wait(idle_s):
                await self._send(send, HEARTBEAT)
            frames = subscriber.take()
            first = next((each.seq for each in frames if each.seq > self._last), 0)
            if first > self._last + 1:
                await self._replay(subscriber, send)
            frames = [each for each in frames if not 0 < each.seq <= self._last]
            await self._send(send, self._sent(frames))
            await self._check(subscriber)

    def _sent(self, frames: list[Frame]) -> bytes:
        """Return the content of frames, without late pieces of replies, as sent."""
        contents: list[bytes] = []
        for frame in frames:
            if frame.seq == 0:
                if frame.key not in self._replied:
                    contents.append(frame.content)
                continue
            if frame.key:
                self._replied |= {frame.key}
            self._last = frame.seq
            self._ended = self._ended or frame.kind == k.RUN_COMPLETED
            contents.append(frame.content)
        self._channels.sent += len(contents)
        return b"".join(contents)

    async def _check(self, subscriber: Subscriber) -> None:
        """End the stream if its run or its credentials are gone; looks when a check is due."""
        if not self._recheck.is_due:
            return
        if not await self._recheck.passes():
            subscriber.end(UNAUTHORIZED)
        elif await self._store.run(self._info.run_id) is None:
            subscriber.end(ERASED)


class TurnStream:
    """An ASGI response: the events of the run that answers a turn, once it has begun."""

    def __init__(
        self,
        turn: Turn,
        store: EventStore,
        *,
        channels: Channels,
        limits: Limits,
        recheck: Recheck,
    ) -> None:
        """Stream a turn; see `RunStream`."""
        self._turn = turn
        self._store = store
        self._channels = channels
        self._limits = limits
        self._recheck = recheck

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and heart-beats while the turns before it go on."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            begun = await self._wait(gone, send)
        except TimeoutError:
            _log.info("a stream was cut: its client has read nothing for a while")
            gone.cancel()
            return
        if isinstance(begun, bytes):
            gone.cancel()
            await send({"type": "http.response.body", "body": begun, "more_body": False})
            return
        stream = RunStream(
            self._store,
            begun,
            after=0,
            channels=self._channels,
            limits=self._limits,
            recheck=self._recheck,
        )
        await stream.send_body(gone, send)

    async def _wait(self, gone: asyncio.Future[None], send: Send) -> RunInfo | bytes:
        """Return the run of the turn once it has begun, or else the last content to send.

        Raises:
            TimeoutError: the client has read nothing for too long.
        """
        begun = asyncio.ensure_future(self._begun())
        ending = asyncio.ensure_future(self._channels.ending.wait())
        waits: list[asyncio.Future[Any]] = [begun, gone, ending]
        idle_s = min(self._limits.heartbeat_s, self._limits.recheck_s)
        try:
            while not any(each.done() for each in waits):
                await asyncio.wait(waits, timeout=idle_s, return_when=asyncio.FIRST_COMPLETED)
                if not await self._recheck.passes():
                    return message(UNAUTHORIZED, {"after": 0})
                async with asyncio.timeout(self._limits.stalled_s):
                    await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
            if begun.done():
                return begun.result() or _NEVER_BEGUN
            return message(DRAINING, {"after": 0}) if ending.done() else b""
        except LibError:  # the turn was cancelled, or its session was closed or erased
            return _NEVER_BEGUN
        finally:
            begun.cancel()
            ending.cancel()

    async def _begun(self) -> RunInfo | None:
        async with aclosing(self._turn.events()) as events:
            async for _ in events:
                break
        return await self._store.run(self._turn.run_id)


_DISCONNECTED: Final = "disconnected"


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    event: Message = {"type": ""}
    while event["type"] != "http.disconnect":
        event = await receive()
