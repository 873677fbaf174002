"""The stream of a run as server-sent events: the log from any place on, then live, then the end.

Source: HTML Living Standard, 9.2 Server-sent events, 2026-10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from lib.engine import Turn
from lib.errors import LibError, StoreError
from lib.events import EventStore, RunInfo
from lib.events import kinds as k
from lib_server.channels import Channels, Frame, Subscriber, event_frame, message
from lib_server.limits import Limits

_log = logging.getLogger("lib_server")

RETRY: Final = b"retry: 1000\n\n"
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
    "server.draining": "the server shuts down: resume, on another one",
}
"""The events of a stream beside those of the log, whose names are the kinds of events."""

_PAGE: Final = 256
_NEVER_BEGUN: Final = message(END, {"begun": False})
HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class RunStream:
    """An ASGI response: a run's events behind `after`; a disconnect leaves the run alone."""

    def __init__(
        self,
        store: EventStore,
        info: RunInfo,
        *,
        after: int,
        channels: Channels,
        limits: Limits,
        is_allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        """Stream a run that exists.

        Args:
            store: as the caller sees it.
            info: the run as the store lists it, read in this request.
            after: the `seq` of the last event that the client has.
            channels: of the server.
            limits: of the server.
            is_allowed: returns True while the credentials of the request are valid; called every
                `limits.recheck_s` seconds.
        """
        self._store = store
        self._info = info
        self._last = after
        self._channels = channels
        self._limits = limits
        self._is_allowed = is_allowed
        self._ended = info.status == "closed"
        self._replied: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self.send_body(asyncio.ensure_future(_disconnected(receive)), send)

    async def send_body(self, gone: asyncio.Future[None], send: Send) -> None:
        """Send what comes after the headers.

        Args:
            gone: is done when the client has gone; it is cancelled at the end.
            send: of the application.
        """
        async with self._channels.subscribe(self._info) as (subscriber, replies):
            gone.add_done_callback(lambda _: subscriber.end(_DISCONNECTED))
            try:
                await self._send(send, RETRY)
                async with aclosing(self._contents(subscriber, replies)) as contents:
                    async for content in contents:
                        await self._send(send, content)
            except TimeoutError:
                _log.info("a stream was cut: its client has read nothing for a while")
                return
            except StoreError:
                _log.exception("a stream ends early: the event store cannot be read")
            finally:
                gone.cancel()
        if subscriber.ended != _DISCONNECTED:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, content: bytes) -> None:
        async with asyncio.timeout(self._limits.stalled_s):
            await send({"type": "http.response.body", "body": content, "more_body": True})

    async def _contents(
        self, subscriber: Subscriber, replies: list[Frame]
    ) -> AsyncGenerator[bytes]:
        """Yield what is to be sent, until the end."""
        if self._last > self._info.head:
            yield message(RESET, {"head": self._info.head})
            self._last = 0
        while True:
            async for content in self._replay():
                yield content
            if not self._ended and subscriber.lagged:
                subscriber.read_again()
                continue
            break
        if content := self._sent(replies):
            yield content
        async with aclosing(self._live(subscriber)) as contents:
            async for content in contents:
                yield content
        if subscriber.ended == _DISCONNECTED:
            return
        yield self._farewell(subscriber)

    def _farewell(self, subscriber: Subscriber) -> bytes:
        if self._ended:
            return message(END, {"run_id": self._info.run_id, "head": self._last})
        if subscriber.ended is None:
            return message(LAGGED, {"after": self._last})
        return message(subscriber.ended, {"after": self._last})

    async def _replay(self) -> AsyncGenerator[bytes]:
        """Yield the log behind what was sent, in pages."""
        while events := await self._store.read(self._info.run_id, after=self._last, limit=_PAGE):
            frames = [event_frame(event) for event in events]
            yield self._sent(frames)
            if len(events) < _PAGE:
                return

    async def _live(self, subscriber: Subscriber) -> AsyncGenerator[bytes]:
        """Yield what comes, until the run or the stream is to end."""
        loop = asyncio.get_running_loop()
        check_at = loop.time() + self._limits.recheck_s
        while not (self._ended or subscriber.lagged or subscriber.ended):
            if not await subscriber.wait(self._limits.heartbeat_s):
                yield HEARTBEAT
            async with aclosing(self._new(subscriber)) as contents:
                async for content in contents:
                    yield content
            if loop.time() >= check_at:
                check_at = loop.time() + self._limits.recheck_s
                await self._check(subscriber)

    async def _new(self, subscriber: Subscriber) -> AsyncGenerator[bytes]:
        """Yield the frames that have come, and before them what is missing."""
        frames = [each for each in subscriber.take() if not 0 < each.seq <= self._last]
        first = next((each.seq for each in frames if each.seq), 0)
        if first > self._last + 1:
            async for content in self._replay():
                yield content
            frames = [each for each in frames if not 0 < each.seq <= self._last]
        if content := self._sent(frames):
            yield content

    def _sent(self, frames: list[Frame]) -> bytes:
        """Return the content of frames, without late pieces of replies, as sent."""
        contents: list[bytes] = []
        for frame in frames:
            if frame.seq == 0:
                if frame.key not in self._replied:
                    contents.append(frame.content)
                continue
            if frame.key:
                self._replied.add(frame.key)
            self._last = frame.seq
            self._ended = self._ended or frame.kind == k.RUN_COMPLETED
            contents.append(frame.content)
        self._channels.sent += len(contents)
        return b"".join(contents)

    async def _check(self, subscriber: Subscriber) -> None:
        """End the stream if its run or its credentials are gone."""
        if not await self._is_allowed():
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
        is_allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        """Stream a turn; see `RunStream`."""
        self._turn = turn
        self._store = store
        self._channels = channels
        self._limits = limits
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and heart-beats while the turns before it go on."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        gone = asyncio.ensure_future(_disconnected(receive))
        info = await self._wait(gone, send)
        if info is None:
            gone.cancel()
            await send({"type": "http.response.body", "body": _NEVER_BEGUN, "more_body": False})
            return
        stream = RunStream(
            self._store,
            info,
            after=0,
            channels=self._channels,
            limits=self._limits,
            is_allowed=self._is_allowed,
        )
        await stream.send_body(gone, send)

    async def _wait(self, gone: asyncio.Future[None], send: Send) -> RunInfo | None:
        """Return the run of the turn once it has begun, None if there is none to stream."""
        begun = asyncio.ensure_future(self._begun())
        waits: list[asyncio.Future[Any]] = [begun, gone]
        try:
            while not (begun.done() or gone.done() or self._channels.draining):
                timeout_s = self._limits.heartbeat_s
                await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
            return begun.result() if begun.done() else None
        except LibError:  # the turn was cancelled, or its session was closed or erased
            return None
        finally:
            begun.cancel()

    async def _begun(self) -> RunInfo | None:
        async with aclosing(self._turn.events()) as events:
            async for _ in events:
                break
        return await self._store.run(self._turn.run_id)


_DISCONNECTED: Final = "disconnected"


async def _disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    event: Message = {"type": ""}
    while event["type"] != "http.disconnect":
        event = await receive()
