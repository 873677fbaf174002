"""Notifications of a call that come before its result, and the early end of its response."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic_core import to_jsonable_python

from lib._util.tasks import cancelled
from lib.mcp.sdk import LOG_LEVEL_KEY, RequestContext, types
from lib.mcp.sessions import LegacySession, LegacySessions

_Context = RequestContext[Any, Any]
_LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)  # the gravest last
_DEFAULT_LEVEL: Final[types.LoggingLevel] = "info"
_MAX_MESSAGES: Final = 1_000


def log(level: types.LoggingLevel, data: Any, *, logger: str | None = None) -> None:
    """Send a message to the client of this call, which shows it to its person or keeps it.

    It is for a tool, in its own task or thread. Clients of 2026-07-28 get messages of the level
    that the request names and above, or none; older ones those of `logging/setLevel`, "info" by
    default. Elsewhere than in a call of such a client nothing happens. It never waits: what comes
    while 1,000 messages wait is left out.

    Args:
        level: "debug", "info", "notice", "warning", "error", "critical", "alert" or "emergency".
        data: text, or what is JSON; nothing that the client must not know.
        logger: names the part of the server that says it.

    Raises:
        ValueError: there is no such level.
    """
    if level not in _LEVELS:
        raise ValueError(f"expected one of {', '.join(_LEVELS)}, got {level!r}")
    notices = _NOTICES.get()
    if notices is not None:
        notices.log(_Message(level, to_jsonable_python(data, fallback=str), logger))


def close_response() -> None:
    """End the response of this call now; its client comes back for the rest.

    It is for a tool that takes longer than connections live, in its own task or thread, as often as
    it wants. That works for clients of 2025-11-25 over HTTP that have a session; elsewhere nothing
    happens.
    """
    notices = _NOTICES.get()
    if notices is not None:
        notices.close_response()


@dataclass(frozen=True, slots=True)
class _Message:
    level: types.LoggingLevel
    data: Any
    logger: str | None


class LogLevels:
    """The levels that clients of 2025-11-25 and before have set, each for its session."""

    def __init__(self, sessions: LegacySessions) -> None:
        """Take the sessions, which keep their levels."""
        self._sessions = sessions
        self._of_pipe: types.LoggingLevel = _DEFAULT_LEVEL

    async def set(self, session: LegacySession | None, level: types.LoggingLevel) -> None:
        """Take a level; the session is None on a pipe, which has one client.

        Of a caller's sessions with a level the last 500 count.
        """
        if session is None:
            self._of_pipe = level
        else:
            await self._sessions.set_log_level(session, level)

    def get(self, session: LegacySession | None) -> str:
        """Return the level of a session, as it was when the session was read."""
        return self._of_pipe if session is None else session.log_level or _DEFAULT_LEVEL


def level_of_request(meta: Mapping[str, Any] | None) -> str | None:
    """Return the level that a request of 2026-07-28 names, None for no messages."""
    return (meta or {}).get(LOG_LEVEL_KEY)


class Notices:
    """Sends the notices of a call in their order, one at a time.

    Of reports of progress that come while another notice is sent, the newest one is sent.
    """

    def __init__(self, context: _Context, level: Callable[[], Awaitable[str | None]]) -> None:
        """Take the request, and what returns the level of messages that its client wants."""
        self._context = context
        self._level = level
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._newest: tuple[float, float | None, str] | None = None
        self._messages = deque[_Message]()
        self._wanted: tuple[types.LoggingLevel, ...] | None = None
        self._done = -math.inf
        self._ended = False
        self._closing = False
        self._sending: asyncio.Task[None] | None = None

    def report(self, done: float, total: float | None, message: str) -> None:
        """Take a report of progress, from any thread."""
        self._in_loop(self._take_report, (done, total, message))

    def log(self, message: _Message) -> None:
        """Take a message, from any thread."""
        self._in_loop(self._take_message, message)

    def close_response(self) -> None:
        """End the response behind what was taken, from any thread."""
        self._in_loop(self._take_end)

    def _in_loop(self, take: Callable[..., None], *values: Any) -> None:
        if threading.get_ident() == self._thread:
            take(*values)
        else:
            self._loop.call_soon_threadsafe(take, *values)

    def _take_end(self) -> None:
        self._closing = True
        self._start()

    def _take_report(self, report: tuple[float, float | None, str]) -> None:
        if math.isfinite(report[0]) and report[0] > self._done and not self._ended:
            self._done, self._newest = report[0], report
            self._start()

    def _take_message(self, message: _Message) -> None:
        if len(self._messages) < _MAX_MESSAGES and not self._ended:
            self._messages.append(message)
            self._start()

    def _start(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="lib.mcp.notices")

    async def _send(self) -> None:
        while self._messages or self._newest is not None or self._closing:
            if self._messages:
                await self._send_message(self._messages.popleft())
            if self._newest is not None:
                (done, total, message), self._newest = self._newest, None
                await self._context.session.report_progress(done, total, message or None)
            if self._closing and not self._messages:
                self._closing = False
                if self._context.close_sse_stream is not None:
                    await self._context.close_sse_stream()

    async def _send_message(self, message: _Message) -> None:
        if self._wanted is None:
            level = await self._level()
            self._wanted = _LEVELS[_LEVELS.index(level) :] if level in _LEVELS else ()
        if message.level not in self._wanted:
            return
        params = types.LoggingMessageNotificationParams(
            level=message.level, data=message.data, logger=message.logger
        )
        notification = types.LoggingMessageNotification(params=params)
        await self._context.session.send_notification(notification, self._context.request_id)

    async def finish(self) -> None:
        """Send what was not sent yet; further notices are left out."""
        self._ended = True
        if self._sending is not None:
            await self._sending

    async def stop(self) -> None:
        """Send nothing more."""
        self._ended = True
        if self._sending is not None:
            await cancelled(self._sending)


_NOTICES: Final[ContextVar[Notices | None]] = ContextVar("lib.mcp.notices", default=None)


@asynccontextmanager
async def notices_of(
    context: _Context, level: Callable[[], Awaitable[str | None]]
) -> AsyncGenerator[Notices]:
    """Yield what takes the notices of a call, also those of `log`; see `Notices`."""
    notices = Notices(context, level)
    token = _NOTICES.set(notices)
    try:
        yield notices
        await notices.finish()
    finally:
        _NOTICES.reset(token)
        await notices.stop()
