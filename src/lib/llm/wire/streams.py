"""What clients of all wires do with an answer: read its JSON, and a stream until its reply ends."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeVar

from lib._util.json import parse
from lib.errors import InvalidReply, LLMError
from lib.http.client import Answer
from lib.llm.client import Delta
from lib.llm.wire.sse import END_OF_STREAM, EventDecoder, ServerEvent

B = TypeVar("B", bound="Builder")

_DRAIN_S: Final = 0.25


class Builder(Protocol):
    """Makes a reply of what a server says.

    Attributes:
        complete: the reply is whole, whatever may follow.
        ended: the server has said that nothing follows.
    """

    complete: bool
    ended: bool

    def add(self, chunk: Any, *, whole: bool = False) -> list[Delta]:
        """Take a JSON value of the server, all of an answer where `whole`; return what it adds."""
        ...


def new_call_id() -> str:
    """Return an id for a tool call that came without a usable one."""
    return f"call_{secrets.token_hex(12)}"


def read_json(text: str | bytes) -> Any:
    """Return what the text says.

    Raises:
        InvalidReply: it is not JSON.
    """
    try:
        return parse(text)
    except (ValueError, RecursionError):
        raise InvalidReply("the server's answer is not JSON", retryable=True) from None


async def deltas(
    answer: Answer, builder: B, take: Callable[[ServerEvent, B], Iterable[Delta]]
) -> AsyncGenerator[Delta]:
    """Yield what the answer adds to the builder, until the server says that nothing follows.

    Args:
        answer: a stream of events, or the whole answer of a server that does not stream.
        builder: what makes the reply.
        take: gives the builder what an event holds.
    """
    if answer.media_type == "application/json":
        for delta in builder.add(read_json(await answer.read()), whole=True):
            yield delta
        return
    decoder = EventDecoder()
    async with aclosing(_chunks(answer, builder)) as chunks:
        async for chunk in chunks:
            for event in decoder.feed(chunk):
                for delta in take(event, builder):
                    yield delta
            if builder.ended:
                await answer.drain(_DRAIN_S)
                return


async def _chunks(answer: Answer, builder: Builder) -> AsyncGenerator[bytes]:
    try:
        while (chunk := await answer.chunk()) is not None:
            yield chunk
    except LLMError:
        if builder.complete:
            return  # only the usage is lost
        raise
    yield END_OF_STREAM
