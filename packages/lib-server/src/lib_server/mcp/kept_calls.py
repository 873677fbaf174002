"""The messages of calls, kept for clients of MCP 2025-11-25 that lose the response.

Each message of a call has an id. A client that has lost the response asks for the rest with `GET`
and the last id that it has (`Last-Event-ID`), and the call goes on meanwhile. The process that
carries a call out keeps its messages, for a time and up to a size; no other process has them. A
message goes to one reader: one that comes ends the response and the readers before it.

Source: modelcontextprotocol.io, Streamable HTTP, 2025-11-25, Resumability and Redelivery.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventStore
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    RequestId,
)

from lib._util.clock import Clock
from lib.mcp.sessions import LegacySession

MAX_CALL_BYTES: Final = 1024 * 1024
"""Of the messages of a call; the oldest go first, and are then lost. The newest stays."""

MAX_CALLS_OF_CALLER: Final = 100
MAX_BYTES_OF_CALLER: Final = 4 * MAX_CALL_BYTES
MAX_BYTES: Final = 64 * MAX_CALL_BYTES
"""Of calls that have ended, of one caller and of all of them; the oldest go first."""


class KeptCall(EventStore):
    """The messages of a call, as the transport of the SDK stores them.

    Attributes:
        name: cannot be guessed.
        session: of its client.
        request_id: of its request.
        close_response: ends what is read, the response included while it is open.
        ended: is set once its result is there.
        ended_at: when that came, of the clock.
        bytes: how much is kept.
    """

    def __init__(self, session: LegacySession, request_id: RequestId, clock: Clock) -> None:
        """Begin without messages."""
        self.name: str = secrets.token_hex(16)
        self.session = session
        self.request_id = request_id
        self.close_response: Callable[[], None] = self.end_readers
        self.ended_at = 0.0
        self.bytes = 0
        self.ended: asyncio.Event = asyncio.Event()
        self._clock = clock
        self._frames = deque[bytes]()
        self._first = 0  # the number of the first of them
        self._readers = set[CallReader]()
        self._left_at: float = clock.monotonic()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message, or what comes before the first one; return its id."""
        if stream_id == GET_STREAM_KEY:  # it is none of the call's, and goes nowhere
            return ""
        event_id = f"{self.name}/{self._first + len(self._frames)}"
        frame = b"" if message is None else _frame(event_id, message)
        self._frames.append(frame)
        self.bytes += len(frame)
        while self.bytes > MAX_CALL_BYTES and len(self._frames) > 1:
            self.bytes -= len(self._frames.popleft())
            self._first += 1
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self.ended_at = self._clock.monotonic()
            self.ended.set()
        for reader in self._readers:
            reader.wake()
        return event_id

    async def give_up(self) -> None:
        """Tell who waits that there is no result."""
        text = "the call was cut short: its outcome is open"
        error = ErrorData(code=INTERNAL_ERROR, message=text)
        message = JSONRPCError(jsonrpc="2.0", id=self.request_id, error=error)
        await self.store_event(str(self.request_id), message)

    def end_readers(self) -> None:
        """End those that read in place of the response."""
        for reader in tuple(self._readers):
            reader.end()

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Do nothing: the transport of a call gets no `GET`; see `CallReader`."""

    def frames_behind(self, number: int) -> list[bytes] | None:
        """Return the messages behind one, None if they are no longer there, or never were."""
        skipped = number + 1 - self._first
        if not 0 <= skipped <= len(self._frames):
            return None
        return list(self._frames)[skipped:]

    @property
    def has_begun(self) -> bool:
        """True if its request was passed on."""
        return bool(self._first or self._frames)

    def opened(self, reader: CallReader) -> None:
        """Take a reader, which is woken when there is more."""
        self._readers.add(reader)

    def closed(self, reader: CallReader) -> None:
        """Let a reader go."""
        self._readers.discard(reader)
        self.left()

    def left(self) -> None:
        """Note that a reader has gone just now."""
        self._left_at = self._clock.monotonic()

    def left_for_s(self) -> float:
        """Return for how many seconds no reader has been there."""
        return 0.0 if self._readers else self._clock.monotonic() - self._left_at


class CallReader:
    """Reads the messages of a call that come behind one of them."""

    def __init__(self, call: KeptCall, number: int) -> None:
        """Begin behind a message that is there."""
        self._call = call
        self._number = number
        self._woken = asyncio.Event()
        self._stopped = False
        call.opened(self)

    def wake(self) -> None:
        """Look for more."""
        self._woken.set()

    async def next(self) -> bytes:
        """Return the messages that have come; nothing once all have, or some are lost."""
        while not self._stopped:
            self._woken.clear()
            frames = self._call.frames_behind(self._number)
            if frames is None:
                break
            self._number += len(frames)
            if content := b"".join(frames):
                return content
            if self._call.ended.is_set():
                break
            await self._woken.wait()
        return b""

    def end(self) -> None:
        """Read no more; safe to repeat."""
        self._stopped = True
        self._woken.set()
        self._call.closed(self)


class KeptCalls:
    """The calls of a process whose messages can be read once more."""

    def __init__(self, *, clock: Clock, keep_s: float) -> None:
        """Begin with none.

        Args:
            clock: for what follows.
            keep_s: seconds for which a call is kept after its end, and goes on without a reader.
        """
        self._clock = clock
        self._keep_s = keep_s
        self._running: dict[str, KeptCall] = {}
        self._ended = OrderedDict[str, KeptCall]()
        self._of_caller: dict[str, OrderedDict[str, KeptCall]] = {}
        self._bytes = 0

    def begin(self, session: LegacySession, request_id: RequestId) -> KeptCall:
        """Return a new call, which is kept."""
        call = KeptCall(session, request_id, self._clock)
        self._running[call.name] = call
        return call

    async def outlive(self, call: KeptCall, stopping: asyncio.Event | None) -> None:
        """Wait for the end of a call without its first reader, while another one may come.

        Args:
            call: goes on meanwhile.
            stopping: ends the wait.
        """
        call.left()
        waits = [
            asyncio.ensure_future(each.wait()) for each in (call.ended, stopping or asyncio.Event())
        ]
        try:
            while not any(each.done() for each in waits):
                left_s = self._keep_s - call.left_for_s()
                if left_s <= 0:
                    return
                pause = asyncio.ensure_future(self._clock.sleep(left_s))
                try:
                    await asyncio.wait([*waits, pause], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    pause.cancel()
        finally:
            for each in waits:
                each.cancel()

    async def end(self, call: KeptCall) -> None:
        """Keep a call that was carried out for a while; forget one that was refused."""
        del self._running[call.name]
        self._drop_old()
        if not call.has_begun:
            return
        call.close_response = call.end_readers
        if not call.ended.is_set():
            await call.give_up()
        of_caller = self._of_caller.setdefault(call.session.owner, OrderedDict())
        self._ended[call.name] = of_caller[call.name] = call
        self._bytes += call.bytes
        while (
            len(of_caller) > MAX_CALLS_OF_CALLER
            or sum(each.bytes for each in of_caller.values()) > MAX_BYTES_OF_CALLER
        ):
            self._drop(next(iter(of_caller.values())))
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._ended.values())))

    def reader(self, session: LegacySession, last_event_id: str) -> CallReader | None:
        """Return the one reader behind a message of a session; None if that is not there."""
        self._drop_old()
        name, _, number = last_event_id.partition("/")
        call = self._running.get(name) or self._ended.get(name)
        if call is None or call.session.id != session.id:
            return None
        if not (number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS):
            return None
        if call.frames_behind(int(number)) is None:
            return None
        call.close_response()
        return CallReader(call, int(number))

    def _drop_old(self) -> None:
        until = self._clock.monotonic() - self._keep_s
        while self._ended and (oldest := next(iter(self._ended.values()))).ended_at <= until:
            self._drop(oldest)

    def _drop(self, call: KeptCall) -> None:
        del self._ended[call.name]
        self._bytes -= call.bytes
        of_caller = self._of_caller[call.session.owner]
        del of_caller[call.name]
        if not of_caller:
            del self._of_caller[call.session.owner]


_MAX_DIGITS: Final = 10


def _frame(event_id: str, message: JSONRPCMessage) -> bytes:
    content = message.model_dump_json(by_alias=True, exclude_unset=True)
    return f"id: {event_id}\nevent: message\ndata: {content}\n\n".encode()
