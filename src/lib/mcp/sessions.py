"""Sessions of clients of 2025-11-25 and before over HTTP, which no process has to remember.

Such a client says once what it can answer, and answers a question with a request of its own. The
id of its session is what it has said, signed: every process over the store can read it. So is the
id of a question; an answer that another process gets than the one that waits goes through the
store. Clients of 2026-07-28 have no sessions, they say it in each request.

Source: modelcontextprotocol.io, Streamable HTTP, 2025-11-25, Session Management.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from lib._util.clock import Clock
from lib._util.json import canonical, digest, parse
from lib.events.store import Marks
from lib.mcp.sdk import MCPError, types
from lib.mcp.state import ExpiringMarks, Signer

_SESSION: Final = "session"
_QUESTION: Final = "question"
_DECLARED: Final = ("elicitation", "roots", "sampling")
_MAX_ID_CHARS: Final = 8_000
_ENDED: Final = "ended"
MAX_KEPT: Final = 500
"""Of how many sessions of one caller the store keeps something of one kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySession:
    """The session of a client.

    Attributes:
        id: as the client sends it with each request.
        owner: names its caller.
        capabilities: what the client has declared that it answers.
        ttl_s: seconds until it ends.
        log_level: that its client had set when the session was read; None for none.
    """

    id: str
    owner: str
    capabilities: types.ClientCapabilities
    ttl_s: float
    log_level: str | None = None

    @property
    def name(self) -> str:
        """A short name, for what is kept of it."""
        return digest(self.id)

    @property
    def caller_name(self) -> str:
        """A short name of its caller."""
        return digest(self.owner)

    @property
    def mark(self) -> str:
        """The name of what the store keeps of it: its level, or that it was ended."""
        return f"{self.caller_name}/{self.name}"


class LegacySessions:
    """Begins sessions, reads their ids, and brings answers to who waits for them."""

    def __init__(
        self,
        marks: Marks,
        *,
        clock: Clock,
        ttl_s: float = 7 * 86_400,
        answer_ttl_s: float = 600,
        poll_s: float = 0.5,
    ) -> None:
        """Prepare.

        Args:
            marks: of the store that the processes of the server share.
            clock: for the end of sessions, and between two looks for an answer.
            ttl_s: seconds for which a session can be used.
            answer_ttl_s: seconds for which an answer that another process waits for is kept.
            poll_s: seconds between two looks for an answer that another process got.
        """
        self._signer = Signer(marks)
        self._kept_answers = ExpiringMarks(marks, "mcp/answers/", clock=clock)
        self._kept = ExpiringMarks(marks, "mcp/log-level/", clock=clock)
        self._clock = clock
        self._ttl_s = ttl_s
        self._answer_ttl_s = answer_ttl_s
        self._poll_s = poll_s
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def begin(self, capabilities: Any, owner: str) -> LegacySession:
        """Return a new session.

        Args:
            capabilities: as its client has sent them; what is malformed counts as not sent.
            owner: names the caller; no other one can use the session.
        """
        declared = _declared(capabilities)
        content: dict[str, Any] = {
            "kind": _SESSION,
            "capabilities": declared.model_dump(mode="json", by_alias=True, exclude_none=True),
            "ends": self._now() + self._ttl_s,
            "id": secrets.token_hex(8),
            "owner": owner,
        }
        signed = await self._signer.sign(canonical(content).encode())
        return LegacySession(id=signed, owner=owner, capabilities=declared, ttl_s=self._ttl_s)

    async def read(self, session_id: str, owner: str) -> LegacySession | None:
        """Return the session of an id; None if it has ended, or is not one of this caller's."""
        if len(session_id) > _MAX_ID_CHARS:
            return None
        found = await self._opened(session_id, _SESSION)
        if found is None or found["owner"] != owner or found["ends"] < self._now():
            return None
        session = LegacySession(
            id=session_id,
            owner=owner,
            capabilities=_declared(found["capabilities"]),
            ttl_s=found["ends"] - self._now(),
        )
        kept = await self._kept.get(session.mark)
        return None if kept == _ENDED else replace(session, log_level=kept)

    async def end(self, session: LegacySession) -> None:
        """End a session before its time, for every process over the store.

        Of a caller's sessions with a level or such an end the last 500 count.
        """
        await self._kept.make_room(session.mark, f"{session.caller_name}/", MAX_KEPT)
        await self._kept.put(session.mark, _ENDED, ttl_s=session.ttl_s)

    async def set_log_level(self, session: LegacySession, level: str) -> None:
        """Keep the level of a session, for requests that come after this one; see `end`."""
        await self._kept.make_room(session.mark, f"{session.caller_name}/", MAX_KEPT)
        await self._kept.update(
            session.mark, lambda kept: _ENDED if kept == _ENDED else level, ttl_s=session.ttl_s
        )

    async def ask(
        self,
        session: LegacySession,
        send: Callable[[str], Awaitable[None]],
        *,
        stopping: asyncio.Event | None = None,
    ) -> Mapping[str, Any]:
        """Send a question to the client of a session; return the answer, a response of JSON-RPC.

        Args:
            session: of the client.
            send: sends the question under this id.
            stopping: ends the wait, which else is without end.

        Raises:
            MCPError: the server stops.
        """
        name = secrets.token_hex(16)
        content = {"kind": _QUESTION, "id": name, "session": session.name}
        question_id = await self._signer.sign(canonical(content).encode())
        waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
        stop = asyncio.ensure_future((stopping or asyncio.Event()).wait())
        try:
            await send(question_id)
            while not (waiting.done() or stop.done()):
                pause = asyncio.ensure_future(self._clock.sleep(self._poll_s))
                try:
                    ends = [waiting, stop, pause]
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    pause.cancel()
                if not waiting.done() and (kept := await self._kept_answers.pop(name)) is not None:
                    waiting.set_result(parse(kept))
            if waiting.done():
                return waiting.result()
            raise MCPError(types.INTERNAL_ERROR, "the server stops: send the request again")
        finally:
            del self._waiting[name]
            stop.cancel()

    async def answer(self, session: LegacySession, answer: Mapping[str, Any]) -> bool:
        """Take a response of JSON-RPC; return False if it answers no question to this client."""
        question_id = answer.get("id")
        if not isinstance(question_id, str) or len(question_id) > _MAX_ID_CHARS:
            return False
        found = await self._opened(question_id, _QUESTION)
        if found is None or found["session"] != session.name:
            return False
        name = found["id"]
        waiting = self._waiting.get(name)
        if waiting is None:  # another process asks, or none any more
            kept = canonical(dict(answer))
            await self._kept_answers.add(name, kept, ttl_s=self._answer_ttl_s)
        elif not waiting.done():
            waiting.set_result(answer)
        return True

    async def _opened(self, signed: str, kind: str) -> dict[str, Any] | None:
        payload = await self._signer.open(signed)
        found: dict[str, Any] | None = None if payload is None else parse(payload)
        return found if found is not None and found.get("kind") == kind else None

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _declared(capabilities: Any) -> types.ClientCapabilities:
    """Return the capabilities on which a question depends, if they are well-formed."""
    if not isinstance(capabilities, dict):
        return types.ClientCapabilities()
    kept: dict[str, Any] = {name: capabilities[name] for name in _DECLARED if name in capabilities}
    try:
        return types.ClientCapabilities.model_validate(kept, by_name=False)
    except ValidationError:
        return types.ClientCapabilities()
