"""A conversation that goes on: a run that stays open, and a run of its own for each turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from typing_extensions import TypeVar

from lib.engine.api.run import Run
from lib.engine.api.turn import Turn
from lib.engine.arguments import Input, as_messages, require_nonempty_key, require_optional_text
from lib.engine.core.budget import Budget
from lib.engine.core.session import SESSION
from lib.engine.logs import best_effort_after_commit
from lib.engine.runtime.caches import TurnRequests, request_digest
from lib.engine.runtime.services import EngineAPI
from lib.errors import IdempotencyMismatch, RunNotFound, SessionClosed
from lib.events import kinds as k
from lib.llm import Message, message_to_json

T = TypeVar("T", default=str)


def session_start(
    algorithm: str, budget: Budget | None, turn_budget: Budget | None
) -> dict[str, Any]:
    """Return the payload of the first event of a session.

    Raises:
        ValueError: its turns would be sessions, or no run may hang below it.
    """
    if algorithm == SESSION:
        raise ValueError("the turns of a session are answered by another algorithm than its own")
    if budget is not None and budget.depth == 0:
        raise ValueError("the turns of a session are runs below it: its depth is 1 at least")
    config: dict[str, Any] = {"algorithm": algorithm}
    if turn_budget is not None:
        config["turn_budget"] = turn_budget.to_json()
    data: dict[str, Any] = {"algorithm": SESSION, "input": [], "config": config}
    if budget is not None:
        data["budget"] = budget.to_json()
    return data


class Session(Generic[T]):
    """A handle on a session; any number may exist, in any process.

    Between turns no worker holds the session and it costs nothing: it is only its log.
    Turns that are sent while one is open wait for it, in the order of the log.
    """

    def __init__(
        self, engine: EngineAPI, session_id: str, *, parse: Callable[[str], T] | None = None
    ) -> None:
        """Made by `Engine.start_session` and `Engine.session`; see `Run`."""
        self.id = session_id
        self._parse = parse
        self._engine = engine
        self._requests = engine.conversations.requests.of(session_id)

    @property
    def run(self) -> Run:
        """The session as the run that it is."""
        return Run(self._engine, self.id)

    async def send(
        self,
        input: Input,  # noqa: A002 - the word that fits
        *,
        idempotency_key: str | None = None,
        user: str | None = None,
        stream: bool = True,
    ) -> Turn[T]:
        """Send a message, and return the turn that will answer it.

        Once the message is in the log, a failure of the store is logged and not raised, and the
        turn goes on when its result is awaited. After any error, a call with the same
        `idempotency_key` is safe.

        Args:
            input: text, a message, or several; the user's.
            idempotency_key: makes it repeatable: in a session, the same key gives the same turn.
            user: the person who sends it, None for the user of the session.
            stream: keep the pieces of the replies from now on, for `Turn.deltas`. False drops those
                that come before it is called, and lets a client reply without streaming.

        Raises:
            SessionClosed: the session has ended, or is closing.
            BlobMissing: it names a blob to which no run of the tenant refers.
            IdempotencyMismatch: the key was sent with another input.
            ContentTooLarge: an attachment is above 256 KiB and there is no blob store.
            RunNotFound: there is no such session.
            ValueError: there is no message, or one that is not the user's, or the key is empty.
            TypeError: an argument is of another type; nothing is stored.
        """
        require_optional_text(user=user, idempotency_key=idempotency_key)
        messages = as_messages(input)
        if not messages or any(message.role != "user" for message in messages):
            raise ValueError("what is sent to a session is one message of the user or several")
        require_nonempty_key(idempotency_key)
        key = self._engine.new_id() if idempotency_key is None else idempotency_key
        sent = await self._catch_up()
        messages = await self._engine.messages(messages, tenant=sent.tenant)
        data = {"signal_id": key, "input": [message_to_json(message) for message in messages]}
        request = None  # a key that was just made is unique
        if idempotency_key is not None:
            request = request_digest((await self._engine.event(k.TURN_REQUESTED, data)).data)
        if request is not None and key in sent.turns:
            return self._repeated_turn(key, *sent.turns[key], request)
        if sent.closed is not None:
            raise SessionClosed(self.id, outcome=sent.closed)
        turn = Turn(self._engine, self.id, key, after=sent.seen, request=request, parse=self._parse)
        if stream:
            turn.keep_deltas()
        await self._engine.signal(self.id, k.TURN_REQUESTED, data, user=user)
        with best_effort_after_commit(self.id, "what became of a turn could not be read"):
            await turn.refresh()
        return turn

    async def turns(self) -> list[Turn[T]]:
        """Return the turns of the session in the order in which they are answered.

        Raises:
            RunNotFound: there is no such session.
        """
        sent = await self._catch_up()
        return [
            Turn(self._engine, self.id, key, after=seq - 1, parse=self._parse)
            for key, (seq, _) in sent.turns.items()
        ]

    async def history(self) -> list[Message]:
        """Return the conversation after all turns that have ended.

        Raises:
            RunNotFound: there is no such session.
            UnknownAlgorithm: the engine does not have the algorithm of a turn.
        """
        sent = await self._catch_up()
        return list((await self._engine.conversations.upto(self.id, sent.seen)).conversation)

    async def close(self, *, user: str | None = None) -> None:
        """Ask the session to end as COMPLETED once it has answered what was sent so far.

        Safe to repeat; `await session.run.result()` to see it done.

        Raises:
            RunNotFound: there is no such session.
        """
        if (await self._catch_up()).closed is None:
            await self._engine.signal(self.id, k.CLOSE_REQUESTED, {}, user=user)

    async def cancel(self, reason: str = "", *, user: str | None = None) -> bool:
        """Ask the session to end as CANCELLED; return False if it has ended already.

        The open turn is cancelled, and those that wait are not begun.

        Raises:
            RunNotFound: there is no such session.
        """
        return await self.run.cancel(reason, user=user)

    def _repeated_turn(self, key: str, seq: int, before: str, request: str) -> Turn[T]:
        if before != request:
            raise IdempotencyMismatch(key, run_id=self.id)
        return Turn(self._engine, self.id, key, after=seq - 1, parse=self._parse)

    async def _catch_up(self) -> TurnRequests:
        """Return what was sent so far.

        Raises:
            RunNotFound: there is no such session.
            ValueError: the run is no session.
        """
        store, kept = self._engine.store, self._engine.conversations.requests
        if not await self._requests.catch_up(store, self.id):
            kept.forget(self.id)
            self._requests = TurnRequests()
            await self._requests.catch_up(store, self.id)
        if not self._requests.seen:
            raise RunNotFound(self.id)
        kept.keep(self.id, self._requests)
        return self._requests
