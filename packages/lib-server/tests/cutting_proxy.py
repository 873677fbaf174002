"""A proxy that cuts connections after a number of bytes of an answer, drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class CuttingProxy:
    """Hands bytes on, and cuts.

    Attributes:
        port: where it listens.
        cuts: how many connections it has cut.
        calm: True hands everything on.
    """

    def __init__(self, target: int, seed: int, most: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._most = most
        self.port = 0
        self.cuts = 0
        self.calm = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[CuttingProxy]:
        """Listen until the end of the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        there = asyncio.create_task(self._pump(reader, far_writer, None))
        most = None if self.calm else self._random.randrange(self._most)
        back = asyncio.create_task(self._pump(far_reader, writer, most))
        try:
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        finally:  # the end of the test cancels what is still open
            for task in (there, back):
                task.cancel()
            for each in (writer, far_writer):
                each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> None:
        with suppress(OSError):
            while content := await reader.read(65536):
                if left is not None and len(content) > left:
                    writer.write(content[:left])
                    await writer.drain()
                    self.cuts += 1
                    return
                left = None if left is None else left - len(content)
                writer.write(content)
                await writer.drain()
