"""Stands between a store and its server, and cuts the connection beside one append.

In the event loop of the process under test. It reads just enough of what passes to find an append,
and the moment at which the server has committed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Language:
    """What tells an append from all else.

    Attributes:
        writes: tells whether a request appends events.
        committed: tells whether an answer says that what was written is committed.
    """

    writes: Callable[[bytes], bool]
    committed: Callable[[bytes], bool]


# An append is one statement; or several of a transaction, of which the last answer is to COMMIT.
# A server that is ready again says whether a transaction is open (`T`) or not (`I`).
POSTGRES = Language(
    writes=lambda request: b"INSERT INTO" in request and b"lib_events" in request,
    committed=lambda answer: answer.endswith(b"Z\0\0\0\x05I"),
)
REDIS = Language(
    writes=lambda request: b"$6\r\nappend\r\n" in request,
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
        while request := await reader.read(_READ_BYTES):
            if self._mode and self._language.writes(request):
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
