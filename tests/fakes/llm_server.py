"""Model servers on loopback that play a script, unpleasant parts included.

`ChatServer` speaks any of `DIALECTS`, refuses what a strict server refuses, keeps connections
alive, and can fail as servers do: with an error page, in the middle of a stream, or by not
answering at all. The official SDK of OpenAI reads its answers; that is tested. `ModelServer` is
what servers of other wires have in common with it.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeAlias, cast

from fakes.llm_dialects import DIALECTS, ServerDialect, completion, event_stream
from lib.errors import ScriptError
from lib.llm import Reply, Text, Usage
from lib.testing.providers import error_body, refusal

API_KEY: Final = "sk-test-0123456789abcdef"
MODEL: Final = "test-model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """An answer byte by byte.

    Attributes:
        body: the content.
        status: of the answer.
        headers: beside the framing ones.
        cut: the connection breaks after the body, which was announced to be longer.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer, until the client goes away; `after` is sent first."""

    after: bytes = b""


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed without an answer; `after` is sent first."""

    after: bytes = b""


Answer: TypeAlias = str | Reply | Raw | Hang | Drop
Answers: TypeAlias = "Sequence[Answer] | Callable[[dict[str, Any]], Answer]"


@dataclass(frozen=True, slots=True)
class Received:
    """A request that came; names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    content: bytes = b""


class ModelServer(ABC):
    """Answers in turn what it was given, or what a function of the request's body returns.

    A class for a wire says in which words.

    Attributes:
        path: where it answers.
        stream_type: the media type of its streams.
        answer_headers: of each answer, beside the framing ones.
        requests: what came, oldest first.
        connections: how many were opened.
    """

    path: str
    stream_type = "text/event-stream; charset=utf-8"
    answer_headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, answers: Answers, *, api_key: str, slice_bytes: int | None) -> None:
        """Take the script.

        Args:
            answers: one for each request in order, or a function of the request's body.
            api_key: what a request must bring.
            slice_bytes: streams leave in pieces of this size; None sends event by event.
        """
        self.requests: list[Received] = []
        self.connections = 0
        self._answers, self._api_key = answers, api_key
        self._slice_bytes = slice_bytes
        self._played = 0
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        server = cast(asyncio.Server, self._server)
        server.close()
        for writer in self._serving.values():
            writer.close()  # which ends their tasks
        await asyncio.gather(*self._serving)
        await server.wait_closed()
        if error is None:
            self.verify()

    @property
    def base_url(self) -> str:
        """The address for a client."""
        port = cast(asyncio.Server, self._server).sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    def verify(self) -> None:
        """Check that as many requests came as there are answers.

        Raises:
            ScriptError: there were more, or fewer.
        """
        if not callable(self._answers) and self._played != len(self._answers):
            raise ScriptError(
                f"the server's script has {len(self._answers)} answers, got {self._played} requests"
            )

    # -- the wire ------------------------------------------------------------------------------

    def admit(self, received: Received) -> Raw | None:
        """Return the answer to a request with a wrong key or path, None for one in order."""
        if received.headers.get("authorization") != f"Bearer {self._api_key}":
            authorization = received.headers.get("authorization", "")
            return refused(
                401, f"incorrect API key provided: {authorization}", code="invalid_api_key"
            )
        return None if received.path == self.path else self.lost(received)

    def lost(self, received: Received) -> Raw:
        """Return the answer to a request for another path."""
        return refused(404, f"invalid URL ({received.path})")

    def full(self, received: Received) -> dict[str, Any]:
        """Return the body with what stands in the path of the request."""
        return received.body

    @abstractmethod
    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule, None for one that is in order."""

    def seen(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body as the model sees it."""
        return body

    @abstractmethod
    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer's content, whole or as the events of a stream."""

    # -- one connection ------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether the connection can serve another."""
        received = await _receive(reader)
        received = replace(received, body=self.full(received))
        self.requests.append(received)
        answer = self._answer(received)
        match answer:
            case Hang(after):
                writer.write(after)
                await reader.read()
                return False
            case Drop(after):
                writer.write(after)
                return False
            case Raw():
                writer.write(_head(answer.status, answer.headers, len(answer.body) + answer.cut))
                writer.write(answer.body)
                await writer.drain()
                return not answer.cut
            case _:
                await self._reply(answer, received, writer)
                return True

    def _answer(self, received: Received) -> Reply | Raw | Hang | Drop:
        if (problem := self.admit(received) or self.refuse(received.body)) is not None:
            return problem
        answer = self._next(self.seen(received.body))
        return Reply((Text(answer),)) if isinstance(answer, str) else answer

    def _next(self, body: dict[str, Any]) -> Answer:
        self._played += 1
        if callable(self._answers):
            return self._answers(body)
        if self._played > len(self._answers):
            return refused(400, "the script has no answer left", code="script_exhausted")
        return self._answers[self._played - 1]

    async def _reply(self, reply: Reply, received: Received, writer: asyncio.StreamWriter) -> None:
        written = self.write(reply, received.body)
        if isinstance(written, bytes):
            writer.write(_head(200, {**_JSON, **self.answer_headers}, len(written)) + written)
            await writer.drain()
            return
        writer.write(_head(200, {"content-type": self.stream_type, **self.answer_headers}, None))
        events = [*written]
        if step := self._slice_bytes:
            whole = b"".join(events)
            events = [whole[start : start + step] for start in range(0, len(whole), step)]
        for piece in events:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class ChatServer(ModelServer):
    """A chat completions server."""

    path = "/v1/chat/completions"

    def __init__(
        self,
        answers: Answers,
        *,
        dialect: ServerDialect = DIALECTS["openai"],
        api_key: str = API_KEY,
        slice_bytes: int | None = None,
    ) -> None:
        """Take the script; `dialect` says how replies are written."""
        super().__init__(answers, api_key=api_key, slice_bytes=slice_bytes)
        self._dialect = dialect

    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule of strict servers."""
        error = refusal(body)
        if error is None:
            return None
        return Raw(status=400, body=json.dumps(error).encode(), headers=_JSON)

    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer in the server's dialect."""
        reply = _named(reply, body)
        if body.get("stream") and self._dialect.streams:
            return event_stream(reply, self._dialect)
        return json.dumps(completion(reply, self._dialect)).encode()


_STATUSES: Final = frozenset(HTTPStatus)
_JSON: Final = {"content-type": "application/json"}


def refused(
    status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> Raw:
    """Return an error answer as OpenAI writes it."""
    body = json.dumps(error_body(message, code=code)).encode()
    return Raw(status=status, body=body, headers={**_JSON, **(headers or {})})


async def _receive(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, json.loads(content or b"{}"), content)


def _head(status: int, headers: Mapping[str, str], length: int | None) -> bytes:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [f"{name}: {value}" for name, value in headers.items()]
    phrase = HTTPStatus(status).phrase if status in _STATUSES else "Overloaded"
    return "\r\n".join([f"HTTP/1.1 {status} {phrase}", framing, *lines, "", ""]).encode()


def _named(reply: Reply, body: Mapping[str, Any]) -> Reply:
    """Return the reply with a model, an id and a usage, as every server gives them."""
    return Reply(
        reply.parts,
        Usage(input_tokens=1, output_tokens=1) if reply.usage == Usage() else reply.usage,
        "tool_calls" if reply.tool_calls and reply.stop == "stop" else reply.stop,
        reply.model or body["model"],
        reply.id or "chatcmpl-1",
    )
