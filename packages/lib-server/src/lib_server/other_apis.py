"""Shared parts of the APIs of others: their bodies and attachments, and the streams of runs.

A run never depends on a request: it goes on if the client leaves, or the server stops.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from lib.engine import Result, RunEnded, StreamItem
from lib_server.bodies import Answer, AttachmentPart
from lib_server.problems import Problem, problem_of
from lib_server.routing import Call
from lib_server.sse import HEADERS, HEARTBEAT

_log = logging.getLogger("lib_server")

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
DATA_URL: Final = re.compile(
    "data:([A-Za-z0-9_.+-]+/[A-Za-z0-9_.+-]+)(?:;[A-Za-z0-9_.=+-]+)*;base64,"
)


# -- bodies ----------------------------------------------------------------------------------------


class Lenient(BaseModel):
    """A body whose fields beyond these are ignored, as clients send many."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, defer_build=True)


def read_part(model: type[M], part: Mapping[str, Any], pointer: str) -> M:
    """Return a part of a body that is checked apart.

    Args:
        model: of the part.
        part: as a client has sent it.
        pointer: where it stands in the body, for errors.

    Raises:
        Problem: `invalid`.
    """
    try:
        return model.model_validate(part)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "/".join([pointer, *map(str, first["loc"])])
        raise Problem("invalid", errors=[(place, first["msg"])]) from None


def attachment(fields: dict[str, Any], field: str) -> AttachmentPart:
    """Return content beside text.

    Args:
        fields: of the part; see `source_of`.
        field: where it stands in the body, for errors.

    Raises:
        Problem: `invalid`.
    """
    try:
        return AttachmentPart.model_validate(fields, strict=False)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_context=False, include_input=False)
        raise Problem("invalid", errors=[(field, detail[0]["msg"])]) from None


def source_of(url: str) -> dict[str, str]:
    """Return where the content of a part is: in a `data:` URL, or behind another one."""
    data = DATA_URL.match(url)
    if data is None:
        return {"url": url}
    return {"data": url[data.end() :], "media_type": data[1].lower()}


class RunState(Answer):
    """The run behind an answer."""

    id: str
    outcome: str | None = Field(description="null while it is open")
    waiting_for: str | None = Field(description="in words; null once it has ended")


def run_state(result: Result[Any]) -> RunState:
    """Return a run as an answer names it."""
    waits = None if result.waiting_for is None else str(result.waiting_for)
    return RunState(id=result.run_id, outcome=result.outcome, waiting_for=waits)


def why_failed(result: Result[Any]) -> str:
    """Return the reason of a run that has failed."""
    error = result.error or {}
    parts = (error.get("type"), error.get("message"), result.reason)
    return ": ".join([str(part) for part in parts if part][:2])


def streams_replies(call: Call[Any, Any], agent: str) -> bool:
    """Return False for an agent of whose answer only the whole can be read.

    That is an answer of a type, and one of a team that writes drafts on the way to it.
    """
    spec = call.engine.agents[agent]
    drafts = getattr(getattr(spec, "algorithm", None), "drafts", False)
    return getattr(spec, "output", None) is None and not drafts


# -- streams -----------------------------------------------------------------------------------


class Streamed:
    """An ASGI response: server-sent events made of a run; a disconnect leaves the run alone."""

    def __init__(
        self,
        call: Call[Any, Any],
        events: AsyncGenerator[bytes],
        *,
        headers: dict[str, str],
        failure: Callable[[Problem], bytes],
    ) -> None:
        """Send events.

        Args:
            call: the request.
            events: b"" where nothing has come for a while.
            headers: further headers of the answer.
            failure: makes the last event of a stream that cannot go on.
        """
        self._call = call
        self._events = events
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [*HEADERS, *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async with aclosing(self._events):
                await attended(self._call, self._send_all(send))
            content = b""
        except (ClientDisconnect, TimeoutError):
            return
        except Exception as error:  # noqa: BLE001 - the boundary of a stream; _problem logs it
            content = self._failure(_problem(error))
        await send({"type": "http.response.body", "body": content, "more_body": False})

    async def _send_all(self, send: Send) -> None:
        recheck, stalled_s = self._call.recheck(), self._call.services.limits.stalled_s
        async for content in self._events:
            async with asyncio.timeout(stalled_s):
                body = content or HEARTBEAT
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if not await recheck.passes():
                raise Problem("unauthenticated", "the credential is no longer valid")


def _problem(error: Exception) -> Problem:
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem is not None:
        return problem
    _log.error("a stream failed", exc_info=error)
    return Problem("internal", "the log of the server has the cause")


def data_event(value: Any, name: str = "") -> bytes:
    """Return a server-sent event, with a name where the API has names."""
    lead = f"event: {name}\n" if name else ""
    return f"{lead}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


async def with_idle(
    stream: AsyncGenerator[StreamItem[Any]], idle_s: float
) -> AsyncGenerator[StreamItem[Any] | None]:
    """Yield the items of a run up to its end, and None after so many seconds without."""
    async with aclosing(stream) as items:
        coming = asyncio.ensure_future(anext(items))
        try:
            while True:
                await asyncio.wait([coming], timeout=idle_s)
                if not coming.done():
                    yield None
                    continue
                item = coming.result()
                yield item
                if isinstance(item, RunEnded):
                    return
                coming = asyncio.ensure_future(anext(items))
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await coming


async def attended(call: Call[Any, Any], work: Coroutine[Any, Any, T]) -> T:
    """Do what a client waits for, as long as it does and the server takes requests.

    Raises:
        Problem: `draining`.
        ClientDisconnect: the client has gone.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(call.request.receive))
    ending = asyncio.ensure_future(call.services.channels.ending.wait())
    try:
        await asyncio.wait([working, gone, ending], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if gone.done():
            raise ClientDisconnect
        detail = "the run goes on: send the request again, with the same Idempotency-Key"
        raise Problem("draining", detail, retry_after_s=1)
    finally:
        for each in (working, gone, ending):
            each.cancel()
        await asyncio.wait([working, gone, ending])


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
