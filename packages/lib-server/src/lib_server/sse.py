"""The stream of a run as server-sent events: the log from any place on, then live, then the end.

Source: HTML Living Standard, 9.2 Server-sent events, 2026-10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from lib.errors import StoreError
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
_HEADERS: Final = [
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
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async with self._channels.subscribe(self._info) as (subscriber, reply):
            watching = asyncio.create_task(_watch(receive, subscriber))
            try:
                await self._send(send, RETRY)
                async with aclosing(self._contents(subscriber, reply)) as contents:
                    async for content in contents:
                        await self._send(send, content)
            except TimeoutError:
                _log.info("a stream was cut: its client has read nothing for a while")
                return
            except StoreError:
                _log.exception("a stream ends early: the event store cannot be read")
            finally:
                watching.cancel()
        if subscriber.ended != _DISCONNECTED:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, content: bytes) -> None:
        async with asyncio.timeout(self._limits.stalled_s):
            await send({"type": "http.response.body", "body": content, "more_body": True})

    async def _contents(self, subscriber: Subscriber, reply: Frame | None) -> AsyncGenerator[bytes]:
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
        if reply is not None and reply.key not in self._replied and not self._ended:
            yield reply.content
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
        return b"".join(contents)

    async def _check(self, subscriber: Subscriber) -> None:
        """End the stream if its run or its credentials are gone."""
        if not await self._is_allowed():
            subscriber.end(UNAUTHORIZED)
        elif await self._store.run(self._info.run_id) is None:
            subscriber.end(ERASED)


_DISCONNECTED: Final = "disconnected"


async def _watch(receive: Receive, subscriber: Subscriber) -> None:
    """End the stream when its client has gone."""
    with suppress(asyncio.CancelledError):
        event: Message = {"type": ""}
        while event["type"] != "http.disconnect":
            event = await receive()
        subscriber.end(_DISCONNECTED)
