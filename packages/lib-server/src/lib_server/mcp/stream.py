"""The stream on which a session of MCP 2025-11-25 or before hears of changes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from starlette.types import Receive, Scope, Send

from lib.errors import StoreError
from lib.mcp.sdk import types
from lib.mcp.sessions import LegacySession, LegacySessions
from lib.mcp.subscriptions import SessionStream
from lib_server.channels import message
from lib_server.limits import Limits
from lib_server.sse import HEADERS, HEARTBEAT, RETRY, disconnected

_log = logging.getLogger("lib_server")


class ChangeStream:
    """An ASGI response: notifications without ids, since a stream cannot be resumed."""

    def __init__(
        self,
        stream: SessionStream,
        session: LegacySession,
        *,
        sessions: LegacySessions,
        limits: Limits,
        stopping: asyncio.Event,
    ) -> None:
        """Send what a session hears.

        Args:
            stream: of the session.
            session: with whose end the response ends.
            sessions: of the server.
            limits: of the server.
            stopping: ends the response, as another stream of the session does.
        """
        self._stream = stream
        self._session = session
        self._sessions = sessions
        self._limits = limits
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        session_id = (MCP_SESSION_ID_HEADER.encode(), self._session.id.encode())
        await send(
            {"type": "http.response.start", "status": 200, "headers": [*HEADERS, session_id]}
        )
        gone = asyncio.ensure_future(disconnected(receive))
        stopped = asyncio.ensure_future(self._stopping.wait())
        for each in (gone, stopped):
            each.add_done_callback(lambda _: self._stream.end())
        try:
            await self._send_all(send)
        except TimeoutError:
            _log.info("a stream was cut: its client has read nothing for a while")
            return
        except StoreError:
            _log.exception("a stream ends early: the event store cannot be read")
        finally:
            gone.cancel()
            stopped.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        """Send what changes, and heart-beats in between.

        Raises:
            TimeoutError: the client has read nothing for too long.
            StoreError: the store cannot be read.
        """
        idle_s = min(self._limits.heartbeat_s, self._limits.recheck_s)
        content = RETRY
        coming = asyncio.ensure_future(self._stream.next())
        try:
            while True:
                async with asyncio.timeout(self._limits.stalled_s):
                    await send({"type": "http.response.body", "body": content, "more_body": True})
                await asyncio.wait([coming], timeout=idle_s)
                if await self._sessions.read(self._session.id, self._session.owner) is None:
                    return
                content = HEARTBEAT
                if coming.done():
                    if not (found := coming.result()):
                        return
                    content = b"".join(map(_event, found))
                    coming = asyncio.ensure_future(self._stream.next())
        finally:
            coming.cancel()


def _event(notification: types.ServerNotification) -> bytes:
    content: dict[str, Any] = notification.model_dump(mode="json", by_alias=True, exclude_none=True)
    return message("message", {"jsonrpc": "2.0", **content})
