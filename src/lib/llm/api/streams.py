"""Answers of model servers: their JSON, and their streams of server-sent events.

Events come from bytes in pieces of any size.

Source: WHATWG HTML, "Server-sent events" (html.spec.whatwg.org, 2026-08). Lines end with LF or
CRLF. Two liberties, since servers take them: what stands before the end of the stream is an event
without its blank line, and fields beside `event` and `data` are kept by name (llama.cpp before
2025-09 wrote errors as `error: {…}`, ggml-org/llama.cpp#16104).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from lib._util.json import parse
from lib.errors import InvalidReply, LLMError
from lib.http.client import Answer
from lib.llm.client import Delta, Reply

END_OF_STREAM: Final = b"\n\n"
"""What to feed last: it completes an event that has no blank line."""

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its type, "" where none was given, its data, and other fields by name."""

    data: str = ""
    event: str = ""
    other: dict[str, str] = field(default_factory=dict[str, str])


class Decoder(Protocol):
    """Takes the bytes of a stream and gives its events. It holds one unfinished event."""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete.

        Raises:
            LLMError: they are not of such a stream.
        """
        ...

    def end(self) -> Iterator[ServerEvent]:
        """Yield what the end of the stream completes."""
        ...


class EventDecoder:
    """Takes bytes and gives events. It holds one unfinished event: bound what you feed it."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._fields: dict[str, list[str]] = {}
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield from self._line(b"".join([*self._rest, line]))
            self._rest.clear()
        self._rest.append(rest)

    def end(self) -> Iterator[ServerEvent]:
        """Yield the event that has no blank line."""
        return self.feed(END_OF_STREAM)

    def _line(self, raw: bytes) -> Iterator[ServerEvent]:
        if self._first:
            raw, self._first = raw.removeprefix(_BOM), False
        line = raw.removesuffix(b"\r").decode("utf-8", "replace")
        if line:
            name, _, value = line.partition(":")
            self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return
        fields = {name: "\n".join(values) for name, values in self._fields.items() if name}
        self._fields.clear()
        if fields:
            yield ServerEvent(fields.pop("data", ""), fields.pop("event", ""), fields)


B = TypeVar("B", bound="Builder")

_DRAIN_S: Final = 0.25


class Builder(Protocol):
    """Makes a reply of a server's JSON.

    Attributes:
        complete: the reply is whole, whatever may follow.
        ended: the server has sent its mark of the end.
        request_id: the server's name for the request, from a header; "" for none.
    """

    complete: bool
    ended: bool
    request_id: str

    def add(self, chunk: Any, *, whole: bool = False) -> list[Delta]:
        """Take a JSON value of the server, all of an answer where `whole`; return what it adds."""
        ...

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            InvalidReply: it is not complete, or cannot be read.
        """
        ...


def new_call_id() -> str:
    """Return an id for a tool call that came without a usable one."""
    return f"call_{secrets.token_hex(12)}"


def read_json(text: str | bytes) -> Any:
    """Return the value that the text holds.

    Raises:
        InvalidReply: it is not JSON.
    """
    try:
        return parse(text)
    except (ValueError, RecursionError):
        raise InvalidReply("the server's answer is not JSON", retryable=True) from None


async def deltas(
    answer: Answer,
    builder: B,
    take: Callable[[ServerEvent, B], Iterable[Delta]],
    decoder: Decoder,
) -> AsyncGenerator[Delta]:
    """Yield what the answer adds to the builder, until the server sends its mark of the end.

    Args:
        answer: a stream of events, or the whole answer of a server that does not stream.
        builder: what makes the reply.
        take: gives the builder what an event holds.
        decoder: finds the events in the bytes.
    """
    if answer.media_type == "application/json":
        for delta in builder.add(read_json(await answer.read()), whole=True):
            yield delta
        return
    async with aclosing(_chunks(answer, builder)) as chunks:
        async for chunk in chunks:
            for event in decoder.end() if chunk is None else decoder.feed(chunk):
                for delta in take(event, builder):
                    yield delta
            if builder.ended:
                await answer.drain(_DRAIN_S)
                return


async def _chunks(answer: Answer, builder: Builder) -> AsyncGenerator[bytes | None]:
    """Yield the content in pieces, and None where it ends as it should."""
    try:
        while (chunk := await answer.chunk()) is not None:
            yield chunk
    except LLMError:
        if builder.complete:
            return  # only the usage is lost
        raise
    yield None
