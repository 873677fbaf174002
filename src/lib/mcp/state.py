"""Signatures, values that are kept for a time, and the sealed state of a request.

The key and what was kept are marks of the event store, so that any process over it goes on with
what another one, or this one before a restart, has begun.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable
from typing import Any, Final

from pydantic import ValidationError

from lib._util.clock import Clock
from lib._util.json import canonical, parse
from lib.events.store import Marks
from lib.mcp.inputs import Answers, InputRequired, Inputs, dump_answers, read_answers
from lib.mcp.sdk import MCPError, types

_KEY: Final = "mcp/state/key"
_USED: Final = "mcp/state/used/"


class Signer:
    """Signs with a key that the processes over a store share; the key is made when it is needed."""

    def __init__(self, marks: Marks) -> None:
        """Take the marks of the store."""
        self._marks = marks
        self._key: bytes | None = None

    async def sign(self, payload: bytes) -> str:
        """Return the payload, readable to all, and its signature, as one text for any header."""
        return f"{_encode(payload)}.{_encode(await self._signature(payload))}"

    async def open(self, signed: str) -> bytes | None:
        """Return the payload of what was signed; None if it was not, with this key."""
        content, _, signature = signed.partition(".")
        try:
            payload, found = _decode(content), _decode(signature)
        except (ValueError, binascii.Error):
            return None
        return payload if hmac.compare_digest(found, await self._signature(payload)) else None

    async def _signature(self, payload: bytes) -> bytes:
        if self._key is None:
            new = secrets.token_hex(32)
            await self._marks.compare_and_set_mark(_KEY, expected=None, value=new)
            self._key = bytes.fromhex(await self._marks.mark(_KEY) or new)
        return hmac.digest(self._key, payload, "sha256")


class ExpiringMarks:
    """Values that a store keeps for a time; what ended processes have left is removed, too."""

    def __init__(self, marks: Marks, prefix: str, *, clock: Clock) -> None:
        """Take the marks of the store, and the prefix of those that are these."""
        self._marks = marks
        self._prefix = prefix
        self._clock = clock
        self._ends_by_mark: dict[str, float] = {}
        self._has_looked = False

    async def add(self, name: str, value: str = "", *, ttl_s: float) -> bool:
        """Keep a value under a name that has none; return False if it has one."""
        await self._remove_ended()
        mark, ends = f"{self._prefix}{name}", self._now() + ttl_s
        text = f"{ends!r} {value}"
        added = await self._marks.compare_and_set_mark(mark, expected=None, value=text)
        if added:
            self._ends_by_mark[mark] = ends
        return added

    async def put(self, name: str, value: str, *, ttl_s: float) -> None:
        """Keep a value under a name, in the place of the one that it has."""
        await self._remove_ended()
        mark, ends = f"{self._prefix}{name}", self._now() + ttl_s
        await self._marks.set_mark(mark, f"{ends!r} {value}")
        self._ends_by_mark[mark] = ends

    async def update(
        self, name: str, change: Callable[[str | None], str | None], *, ttl_s: float
    ) -> str | None:
        """Keep what a change makes of the value under a name, and return it.

        Args:
            name: of the value.
            change: gets the value, None if there is none, and returns the new one, None for none;
                it is called again if another process has changed the value meanwhile.
            ttl_s: for a new value; one that was there keeps its end.
        """
        await self._remove_ended()
        mark = f"{self._prefix}{name}"
        while True:
            found = await self._marks.mark(mark)
            lasts = found is not None and _ends(found) >= self._now()
            ends = _ends(found) if found is not None and lasts else self._now() + ttl_s
            value = change(found.partition(" ")[2] if found is not None and lasts else None)
            text = None if value is None else f"{ends!r} {value}"
            if text == found or await self._marks.compare_and_set_mark(
                mark, expected=found, value=text
            ):
                self._ends_by_mark[mark] = ends
                return value

    async def get(self, name: str) -> str | None:
        """Return the value under a name; None if there is none, or its time has ended."""
        found = await self._marks.mark(f"{self._prefix}{name}")
        return None if found is None or _ends(found) < self._now() else found.partition(" ")[2]

    async def all(self, start: str = "") -> dict[str, str]:
        """Return the values whose time has not ended, by name; first the one that ends first.

        Args:
            start: of their names.
        """
        await self._remove_ended()
        now = self._now()
        found = await self._marks.marks(f"{self._prefix}{start}")
        return {
            mark.removeprefix(self._prefix): value.partition(" ")[2]
            for mark, value in sorted(found.items(), key=lambda each: _ends(each[1]))
            if _ends(value) >= now
        }

    async def pop(self, name: str) -> str | None:
        """Return the value under a name, and keep it no longer; None as `get` has it."""
        mark = f"{self._prefix}{name}"
        found = await self._marks.mark(mark)
        if found is None:
            return None
        removed = await self._marks.compare_and_set_mark(mark, expected=found, value=None)
        return found.partition(" ")[2] if removed and _ends(found) >= self._now() else None

    async def make_room(self, name: str, start: str, most: int) -> None:
        """Keep no longer what ends first, until a value fits beside others.

        Args:
            name: of the value that is about to be kept.
            start: of the names of those that count.
            most: how many of them are kept at once.
        """
        if await self.get(name) is None:
            others = [*await self.all(start)]
            for each in others[: max(0, len(others) + 1 - most)]:
                await self.pop(each)

    async def _remove_ended(self) -> None:
        if not self._has_looked:
            left = await self._marks.marks(self._prefix)  # by processes that have ended
            self._ends_by_mark.update((mark, _ends(found)) for mark, found in left.items())
            self._has_looked = True
        now = self._now()
        for mark in [mark for mark, ends in self._ends_by_mark.items() if ends < now]:
            self._ends_by_mark.pop(mark, None)  # another task may do the same meanwhile
            found = await self._marks.mark(mark)
            if found is not None and _ends(found) < now:
                await self._marks.compare_and_set_mark(mark, expected=found, value=None)

    def _now(self) -> float:
        return self._clock.now().timestamp()


class StateSeal:
    """Seals what a request must bring back, for one caller, one request and a time.

    A sealed state counts once. It is signed, and readable to the client, from which it comes.
    """

    def __init__(self, marks: Marks, *, clock: Clock, ttl_s: float = 600.0) -> None:
        """Prepare.

        Args:
            marks: of the store that the processes of the server share.
            clock: for the end of a state.
            ttl_s: seconds for which a state counts.
        """
        self._signer = Signer(marks)
        self._used = ExpiringMarks(marks, _USED, clock=clock)
        self._clock = clock
        self._ttl_s = ttl_s

    async def seal(self, inputs: Inputs, required: InputRequired, request: str) -> str:
        """Return the state after these questions.

        Args:
            inputs: what the client has answered so far.
            required: the questions of now.
            request: names the request and its caller.
        """
        payload = canonical(
            {
                "answers": dump_answers(inputs.answers),
                "sent": sorted({*inputs.sent, *required.requests}),
                "ends": self._now() + self._ttl_s,
                "id": secrets.token_hex(16),
                "request": request,
            }
        )
        return await self._signer.sign(payload.encode())

    async def open(self, state: str, request: str) -> tuple[Answers, frozenset[str]]:
        """Return the answers so far, and the keys of the questions that were sent.

        Raises:
            MCPError: the state is not this server's for this request, has ended, or was used.
        """
        payload = await self._signer.open(state)
        if payload is None:
            raise _refused()
        found: dict[str, Any] = parse(payload)
        if found.get("request") != request or found["ends"] < self._now():
            raise _refused()
        if not await self._used.add(found["id"], ttl_s=found["ends"] - self._now()):
            raise _refused()
        try:
            answers = read_answers(found["answers"])
        except ValidationError:
            raise _refused() from None
        return answers, frozenset(found["sent"])

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _ends(stored: str) -> float:
    return float(stored.partition(" ")[0])


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def _decode(value: str) -> bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)


def _refused() -> MCPError:
    return MCPError(
        types.INVALID_PARAMS, "the request state does not fit this request: begin without it"
    )
