"""The stream of a run that resumes by itself, behind the last event that it has read.

Source: HTML Living Standard, 9.2 Server-sent events, 2026-10.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple

import httpx2
from pydantic import ValidationError

from lib_server.bodies import DeltaView, EventView
from lib_server.client.errors import ClientError, ResourceNotFound, StreamReset
from lib_server.client.transport import Transport, no_answer

_MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
_NO_CONTENT: Final = 204


class Message(NamedTuple):
    """A server-sent event, as it comes.

    Attributes:
        event: its name.
        data: JSON.
    """

    event: str
    data: str


class Parser:
    """Makes events of bytes, however they are cut; one that is not whole is none."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._rest: list[bytes] = []
        self._size = 0
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Message]:
        """Return the events that end in the next bytes.

        Raises:
            ClientError: one is too large.
        """
        self._size += len(chunk)
        if self._size > _MAX_EVENT_BYTES:
            raise ClientError(f"expected events of at most {_MAX_EVENT_BYTES} bytes")
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        found = [message for line in lines if (message := self._line(line)) is not None]
        if found:
            self._size = len(rest)
        return found

    def _line(self, line: bytes) -> Message | None:
        text = line.removesuffix(b"\r").decode("utf-8", errors="replace")
        if not text:
            message = Message(self._event or "message", "\n".join(self._data))
            has_data, self._event, self._data = bool(self._data), "", []
            return message if has_data else None
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        return None


async def resumed(
    transport: Transport, path: str, *, after: int
) -> AsyncGenerator[EventView | DeltaView]:
    """Yield the events of a run behind `after`, each once and in order, and pieces of its replies.

    Raises:
        ResourceNotFound: there is no such run, or it has been erased.
        StreamReset: the log does not reach as far.
        ClientError: it was refused, or nothing has come during all the retries.
    """
    backoff, last = _Backoff(transport), after
    while True:
        try:
            async with aclosing(_attempt(transport, path, last)) as items:
                async for item in items:
                    if isinstance(item, EventView):
                        last = item.seq
                        backoff.reset()
                    yield item
        except ClientError as error:
            failure = error
        else:
            return
        await backoff.wait(failure)


class _Backoff:
    """The waits between the connections of one stream, counted since its last event."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.reset()

    def reset(self) -> None:
        """Count from now on."""
        self._failed = 0
        self._began = self._transport.clock.monotonic()

    async def wait(self, failure: ClientError) -> None:
        """Wait before the next connection.

        Raises:
            ClientError: `failure`, if another one would bring nothing, or enough were tried.
        """
        transport = self._transport
        self._failed += 1
        delay_s = transport.retries.delay_s(
            self._failed,
            elapsed_s=transport.clock.monotonic() - self._began,
            jitter=transport.random(),
            retry_after_s=failure.retry_after_s,
        )
        if delay_s is None or not failure.retryable:
            raise failure
        await transport.clock.sleep(delay_s)


async def _attempt(
    transport: Transport, path: str, last: int
) -> AsyncGenerator[EventView | DeltaView]:
    """Yield what one connection brings behind an event, until the end of the run.

    Raises:
        ClientError: it was refused, or cut before the end.
    """
    headers = {"accept": "text/event-stream", "last-event-id": str(last)}
    async with transport.stream(path, headers) as answer:
        if answer.status_code == _NO_CONTENT:
            return
        async with aclosing(_messages(answer)) as messages:
            async for message in messages:
                if message.event == _END:
                    return
                item = _item(message)
                if isinstance(item, EventView):
                    if item.seq <= last:
                        continue
                    last = item.seq
                yield item
    raise ClientError("the stream was cut", retryable=True)


async def _messages(answer: httpx2.Response) -> AsyncGenerator[Message]:
    parser = Parser()
    try:
        async with aclosing(answer.aiter_bytes()) as chunks:
            async for chunk in chunks:
                for message in parser.feed(chunk):
                    yield message
    except httpx2.HTTPError as error:
        raise no_answer(error) from None


def _item(message: Message) -> EventView | DeltaView:
    """Return what an event is to the caller.

    Raises:
        ClientError: the stream goes on with another connection, or not at all.
    """
    if message.event in _INTERRUPTIONS:
        raise ClientError(f"the stream was ended with {message.event}", retryable=True)
    if message.event == "run.erased":
        raise ResourceNotFound("the run has been erased", status=410, code="run_erased")
    if message.event == "stream.reset":
        detail = "the log does not reach as far as it was read: stream the run from its start"
        raise StreamReset(detail, code="stream_reset")
    view = DeltaView if message.event == "reply.delta" else EventView
    try:
        return view.model_validate_json(message.data)
    except ValidationError:
        raise ClientError(f"an event of the stream is no {view.__name__}") from None


_END: Final = "run.end"
_INTERRUPTIONS: Final = frozenset({"server.draining", "stream.lagged", "stream.unauthorized"})
