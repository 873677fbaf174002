"""The sealed state that a client's next request brings back with its answers.

The key and the states that were used are marks of the event store, so that any process over it
goes on with a request that another one, or this one before a restart, has questioned.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from typing import Any, Final

from pydantic import ValidationError

from lib._util.clock import Clock
from lib._util.json import canonical, parse
from lib.events.store import Marks
from lib.mcp.inputs import Answers, InputRequired, Inputs, dump_answers, read_answers
from lib.mcp.sdk import MCPError, types

_KEY: Final = "mcp/state/key"
_USED: Final = "mcp/state/used/"


class StateSeal:
    """Seals what a request must bring back, for one caller, one request and a time.

    A sealed state counts once. It is signed, and readable to the client, from which it comes.
    """

    def __init__(self, marks: Marks, *, clock: Clock, ttl_s: float = 600.0) -> None:
        """Prepare; the key is read, or made, when it is first needed.

        Args:
            marks: of the store that the processes of the server share.
            clock: for the end of a state.
            ttl_s: seconds for which a state counts.
        """
        self._marks = marks
        self._clock = clock
        self._ttl_s = ttl_s
        self._key: bytes | None = None
        self._used: dict[str, float] = {}

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
        ).encode()
        return f"{_encode(payload)}.{_encode(await self._signed(payload))}"

    async def open(self, state: str, request: str) -> tuple[Answers, frozenset[str]]:
        """Return the answers so far, and the keys of the questions that were sent.

        Raises:
            MCPError: the state is not this server's for this request, has ended, or was used.
        """
        content, _, signature = state.partition(".")
        try:
            payload, signed = _decode(content), _decode(signature)
        except (ValueError, binascii.Error):
            raise _refused() from None
        if not hmac.compare_digest(signed, await self._signed(payload)):
            raise _refused()
        found: dict[str, Any] = parse(payload)
        if found["request"] != request or found["ends"] < self._now():
            raise _refused()
        if not await self._use(found["id"], found["ends"]):
            raise _refused()
        try:
            answers = read_answers(found["answers"])
        except ValidationError:
            raise _refused() from None
        return answers, frozenset(found["sent"])

    def _now(self) -> float:
        return self._clock.now().timestamp()

    async def _use(self, state_id: str, ends: float) -> bool:
        """Write down that a state was used; return False if it was before."""
        mark = f"{_USED}{state_id}"
        if not await self._marks.compare_and_set_mark(mark, expected=None, value=repr(ends)):
            return False
        self._used[mark] = ends
        now = self._now()
        for used, until in [*self._used.items()]:
            if until < now:
                del self._used[used]
                await self._marks.compare_and_set_mark(used, expected=repr(until), value=None)
        return True

    async def _signed(self, payload: bytes) -> bytes:
        if self._key is None:
            new = secrets.token_hex(32)
            await self._marks.compare_and_set_mark(_KEY, expected=None, value=new)
            self._key = bytes.fromhex(await self._marks.mark(_KEY) or new)
            left = await self._marks.marks(_USED)  # by processes that have ended
            self._used |= {mark: float(ends) for mark, ends in left.items()}
        return hmac.digest(self._key, payload, "sha256")


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def _decode(value: str) -> bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)


def _refused() -> MCPError:
    return MCPError(
        types.INVALID_PARAMS, "the request state does not fit this request: begin without it"
    )
