"""Stands between a store and its server, and cuts the connection beside one append.

In the event loop of the process under test. It reads just enough of what passes to find an append,
and the moment at which the server has committed it.

Source: https://www.postgresql.org/docs/16/protocol-message-formats.html (2026-11-23)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Writes = Callable[[bytes], bool]
_READ_BYTES = 1 << 20
_HEADER_BYTES = 4


@dataclass(frozen=True)
class Language:
    """The mark of an append among other statements.

    Attributes:
        listen: begins to listen to a connection; what it returns takes each piece that a store
            sends, in their order, and tells whether an append is complete with it.
        committed: tells whether an answer says that what was written is committed.
    """

    listen: Callable[[], Writes]
    committed: Callable[[bytes], bool]


class PostgresRequests:
    """The messages that a store sends to PostgreSQL on one connection.

    An append is a query, or the execution of a statement that was prepared, perhaps long ago: its
    text is on the wire only once. A statement is about to be executed when its parameters are
    bound, and the server waits for the message after that.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._started = False
        self._appends: dict[bytes, bool] = {}

    def writes(self, piece: bytes) -> bool:
        """Take the next piece; return whether an append was bound or sent in it."""
        self._buffer += piece
        appends = [self._is_append(kind, body) for kind, body in self._messages()]
        return any(appends)

    def _messages(self) -> Generator[tuple[bytes, bytes]]:
        """Yield the messages that are complete; the first of all has no kind."""
        while len(self._buffer) >= _HEADER_BYTES + self._started:
            begin = int(self._started)
            size = int.from_bytes(self._buffer[begin : begin + _HEADER_BYTES])
            if len(self._buffer) < begin + size:
                return
            kind, body = self._buffer[:begin], self._buffer[begin + _HEADER_BYTES : begin + size]
            self._buffer = self._buffer[begin + size :]
            # An offer to encrypt comes before the message that starts a session of version 3.
            self._started = self._started or body.startswith(b"\0\3")
            yield kind, body

    def _is_append(self, kind: bytes, body: bytes) -> bool:
        match kind:
            case b"P":  # parse: name, text
                name, _, text = body.partition(b"\0")
                self._appends[name] = _inserts_events(text)
                return False
            case b"B":  # bind: portal, name of the statement
                return self._appends.get(body.split(b"\0", 2)[1], False)
            case b"Q":
                return _inserts_events(body)
            case _:
                return False


def _inserts_events(text: bytes) -> bool:
    return b"INSERT INTO" in text and b"lib_events" in text


# An append is one statement; or several of a transaction, of which the last answer is to COMMIT.
# A server that is ready again says whether a transaction is open (`T`) or not (`I`).
POSTGRES = Language(
    listen=lambda: PostgresRequests().writes,
    committed=lambda answer: answer.endswith(b"Z\0\0\0\x05I"),
)
REDIS = Language(
    listen=lambda: lambda request: b"$6\r\nappend\r\n" in request,
    committed=lambda answer: not answer.startswith(b"-NOSCRIPT"),
)


class Breaker:
    """Passes on what a store and its server say, until it is armed and an append comes by."""

    def __init__(self, language: Language, connect: Callable[[], Awaitable[Streams]]) -> None:
        self._language, self._connect = language, connect
        self._mode = ""
        self.broken = 0

    @contextmanager
    def armed(self, mode: str) -> Generator[None]:
        """Cut at the next append: "cut" when it is committed, "lost" before the server gets it."""
        self._mode = mode
        try:
            yield
        finally:
            self._mode = ""

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncGenerator[None]:
        """Listen on a socket in the file system."""
        async with await asyncio.start_unix_server(self._serve, path):
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await self._connect()
        written = asyncio.Event()
        ways = [
            asyncio.ensure_future(self._pass_requests(reader, requests, written)),
            asyncio.ensure_future(self._pass_answers(answers, writer, written)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            requests.close()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, written: asyncio.Event
    ) -> None:
        writes = self._language.listen()
        while request := await reader.read(_READ_BYTES):
            if writes(request) and self._mode:
                if self._mode == "lost":
                    self._break()
                    break
                written.set()
            writer.write(request)

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, written: asyncio.Event
    ) -> None:
        while answer := await reader.read(_READ_BYTES):
            if written.is_set() and self._language.committed(answer):
                self._break()
                break
            writer.write(answer)

    def _break(self) -> None:
        self._mode = ""
        self.broken += 1
