"""Answers that end when the credentials of their caller are no longer valid."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lib._util.tasks import cancelled
from lib_server.problems import Problem
from lib_server.routing import Call


def checked(call: Call[Any, Any], answer: ASGIApp, stopping: asyncio.Event) -> ASGIApp:
    """Return an answer for whose application a caller without valid credentials has gone.

    Args:
        call: whose credentials are checked again and again.
        answer: ends when its client has gone.
        stopping: is set when the answer should end but not its runs: the server stops, or the
            credentials are no longer valid.
    """
    refused = asyncio.Event()

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        last: Message = {"type": ""}

        async def send_if_allowed(message: Message) -> None:
            nonlocal last
            if not refused.is_set():
                last = message
                await send(message)

        watching = asyncio.create_task(_watch(call, stopping, refused), name="lib_server.mcp.check")
        try:
            await answer(scope, _receiving_until(refused, receive), send_if_allowed)
        finally:
            await cancelled(watching)
        if not refused.is_set():
            return
        if not last["type"]:
            raise Problem("unauthenticated", "the credential is no longer valid")
        if last["type"] == "http.response.start" or last.get("more_body"):
            async with asyncio.timeout(call.services.limits.stalled_s):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    return checked


async def _watch(call: Call[Any, Any], stopping: asyncio.Event, refused: asyncio.Event) -> None:
    """Set `stopping` when the server stops, both when a check of the credentials fails."""
    recheck, limits = call.recheck(), call.services.limits
    idle_s = min(limits.heartbeat_s, limits.recheck_s)
    ending = asyncio.ensure_future(call.services.channels.ending.wait())
    try:
        while True:
            await asyncio.wait([ending], timeout=idle_s)
            if ending.done():
                stopping.set()
                return
            if not await recheck.passes():
                stopping.set()  # first: a client that has gone cancels its run
                refused.set()
                return
    finally:
        ending.cancel()


def _receiving_until(refused: asyncio.Event, receive: Receive) -> Receive:
    """Return what receives, and says that the client has gone once it is refused."""

    async def receive_or_end() -> Message:
        received = asyncio.ensure_future(receive())
        ended = asyncio.ensure_future(refused.wait())
        try:
            await asyncio.wait([received, ended], return_when=asyncio.FIRST_COMPLETED)
            return received.result() if received.done() else {"type": "http.disconnect"}
        finally:
            received.cancel()
            ended.cancel()

    return receive_or_end
