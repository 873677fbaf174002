"""A conversation that goes on: a run that stays open, and a run of its own for each turn."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from lib.engine.api.run import Run, Waiter
from lib.engine.api.waiting import WaitingLog
from lib.engine.arguments import (
    Input,
    as_client_tools,
    as_messages,
    check_wait,
    require_nonempty_key,
    require_optional_text,
    require_text,
)
from lib.engine.core.budget import Budget, Spend
from lib.engine.core.conversation import is_recalled
from lib.engine.core.result import Result
from lib.engine.core.session import SESSION
from lib.engine.handlers.base import LiveDelta
from lib.engine.handlers.turn import turn_run_id
from lib.engine.logs import best_effort_after_commit
from lib.engine.runtime.caches import TurnRequests, request_digest
from lib.engine.runtime.deltas import MAX_WAITING, ShownReplies
from lib.engine.runtime.services import EngineAPI
from lib.errors import IdempotencyMismatch, RunNotFound, SessionClosed
from lib.events import Event
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.events.wakeups import Listener
from lib.llm import Message, ToolSpec, message_to_json

T = TypeVar("T", default=str)


class DeltaBuffer:
    """Buffers deltas of replies until `Turn.deltas` reads them."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self.kept: deque[LiveDelta] = deque()
        self.stopped: bool = False
        self.reader: Listener | None = None

    def put_nowait(self, item: LiveDelta | None, /) -> None:
        """Take a piece, or drop it; None says that no more come for now."""
        self.stopped = item is None
        if item is not None and len(self.kept) < MAX_WAITING:
            self.kept.append(item)
        if self.reader is not None:
            self.reader.wake()


class Turn(Generic[T]):
    """A handle on a turn; any number may exist, in any process.

    Attributes:
        session_id: the session.
        id: names the turn in its session: the key that it was sent under.
        run_id: the run that answers it, once it has begun.
        repeated: True if its key had been sent before.
    """

    def __init__(
        self,
        engine: EngineAPI,
        session_id: str,
        key: str,
        *,
        after: int,
        request: str | None = None,
        parse: Callable[[str], T] | None = None,
    ) -> None:
        """Made by `Session.send` and `Session.turns`.

        Args:
            engine: drives and stores.
            session_id: the session.
            key: of the turn.
            after: a `seq` of the session's log after which it was sent.
            request: the digest of the input, if another caller may have sent another one under
                this key.
            parse: makes the output of the answer's text, None for the text itself.
        """
        self.session_id = session_id
        self.id = key
        self.run_id: str = turn_run_id(session_id, key)
        self.repeated = False
        self._engine = engine
        self._seen = after
        self._request = request
        self._parse = parse
        self._mismatch = False
        self._accepted = False
        self._started = False
        self._result: Result | None = None
        self._closed: str | None = None
        self._deltas: DeltaBuffer | None = None

    @property
    def run(self) -> Run[T]:
        """The run that answers the turn; it is not there before the turns before it have ended."""
        return Run(self._engine, self.run_id, parse=self._parse)

    async def result(self, *, wait: bool = True, timeout_s: float | None = None) -> Result[T]:
        """Wait for the end of the turn and return it, driving its session here if no worker does.

        A turn that waits for a person, or for the lease of another worker, makes this wait, too;
        the logger `lib.engine` says so once, with the reason.

        Args:
            wait: False returns the present state at once, and drives nothing.
            timeout_s: seconds to wait at most, None for as long as it takes; see `Run.result`.

        Raises:
            SessionClosed: the session has ended, or is closing, before the turn.
            RunNotFound: the session is not there (any more).
            RunAbandoned: the engine is closing.
            UnknownAlgorithm: the engine does not have the turn's algorithm.
            MissingHandler: it makes a request that no handler of the engine fulfils.
            InvalidReply: its agent has another `output=` by now, which the answer does not fit.
            ValueError: the timeout is negative, or none.
            StoreError: the store failed; other errors are faults of a handler or an algorithm.
        """
        check_wait(wait, timeout_s)
        if wait:
            deadline = asyncio.timeout(timeout_s)
            try:
                async with deadline:
                    return self._typed(await self._end())
            except TimeoutError:
                if not deadline.expired():
                    raise  # a fault of a handler
        await self._read_log()
        self._check()
        return self._typed(self._result or await self._unfinished())

    def _typed(self, result: Result) -> Result[T]:
        if self._parse is None:
            return cast("Result[T]", result)  # then T is str
        return result.typed(self._parse)

    async def _end(self) -> Result:
        reasons = WaitingLog(self._engine.store, drives=self._engine.drives)
        listening = self._engine.store.wakeups.listen(self.session_id)
        with listening as wake, Waiter(self.run_id) as waiter:
            while self._result is None:
                await self._read_log()
                self._check()
                if self._result is None:
                    waiter.waits = True
                    await self._progress(wake, reasons)
        return self._result

    async def _unfinished(self) -> Result:
        """Return the state of a turn that has not ended."""
        if await self._engine.store.run(self.run_id) is not None:
            return await Run(self._engine, self.run_id).result(wait=False)
        session = await Run(self._engine, self.session_id).result(wait=False)
        return replace(session, run_id=self.run_id, spend=Spend())

    async def events(self, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield the events of the turn's run in order as they are appended, until it has ended.

        Nothing comes before the turns before it have ended, and nothing at all if it was
        cancelled by then.

        Args:
            after: the `seq` after which to begin; give the last one seen to go on.

        Raises:
            SessionClosed: the session has ended, or is closing, before the turn.
            RunNotFound: the session is not there (any more).
        """
        with self._engine.store.wakeups.listen(self.session_id) as wake:
            while await self._engine.store.run(self.run_id) is None:
                await self._read_log()
                self._check()
                if self._result is not None:
                    return
                await self._progress(wake)
        async for event in self.run.events(after=after):
            yield event

    async def deltas(self) -> AsyncGenerator[LiveDelta]:
        """Yield the replies of the turn while they are written, until it has ended.

        Whatever was written since it was sent is kept until it is read here, once. Best effort, and
        never stored: read `events()` for what is durable. A piece with a higher `epoch` or
        `attempt` begins its reply anew; see `Run.deltas`.
        """
        deltas, shown = self.keep_deltas(), ShownReplies()
        try:
            with self._engine.store.wakeups.listen(self.session_id) as wake:
                deltas.reader = wake
                while True:
                    quiet = not deltas.kept
                    while deltas.kept:
                        piece, _ = shown.take(deltas.kept.popleft())
                        if piece is not None:
                            yield piece
                    if (quiet or deltas.stopped) and await self._has_ended() and not deltas.kept:
                        return
                    await self._progress(wake)
        finally:
            self.drop_deltas()

    async def cancel(self, reason: str = "", *, user: str | None = None) -> bool:
        """Ask the turn to stop; return False if it has ended already.

        The session goes on with the next one. What is under way is interrupted, and every open
        call gets a result; a turn that has not begun begins nothing.

        Raises:
            RunNotFound: the session is not there (any more).
            TypeError: the reason is no text.
        """
        require_text(reason=reason)
        await self._read_log()
        if self._result is not None or self._closed is not None:
            return False
        data = {"key": self.id, **({"reason": reason} if reason else {})}
        if not self._started:
            await self._engine.signal(self.session_id, k.CANCEL_REQUESTED, data, user=user)
            await self._read_log()  # a worker may have begun it before the signal came
        if self._started and self._result is None:
            return await self._cancel_run(reason, user)
        return True

    def keep_deltas(self) -> DeltaBuffer:
        """Keep what is written of the turn's replies from now on, until this handle is gone."""
        if self._deltas is None:
            self._deltas = deltas = DeltaBuffer()
            self._engine.hub.add(self.run_id, deltas)
            self._forget = weakref.finalize(self, self._engine.hub.discard, self.run_id, deltas)
        return self._deltas

    def drop_deltas(self) -> None:
        """Keep them no longer."""
        if self._deltas is not None:
            self._deltas = None
            self._forget()

    async def refresh(self) -> None:
        """Read what has become of the turn.

        Raises:
            IdempotencyMismatch: something else was sent under its key, and came first.
            SessionClosed: it was sent too late.
            RunNotFound: the session is not there (any more).
        """
        await self._read_log()
        self._check()

    # -- the session's log -----------------------------------------------------------------

    async def _read_log(self) -> None:
        """Read on in the session's log."""
        events = await self._engine.store.read(self.session_id, after=self._seen)
        for event in events:
            self._seen = event.seq
            if fits(event.kind, event.data):
                self._apply(event)
        if not events and await self._engine.store.run(self.session_id) is None:
            raise RunNotFound(self.session_id)

    def _apply(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case k.TURN_REQUESTED if data["signal_id"] == self.id and not self._accepted:
                self._accepted = self._closed is None
                self._mismatch = self._request not in (None, request_digest(data))
            case k.TURN_STARTED if data["key"] == self.id:
                self._started = True
            case k.TURN_COMPLETED if data.get("key") == self.id:
                self._result = Result.from_json(data)
            case k.CANCEL_REQUESTED if data.get("key") == self.id:
                if self._accepted and not self._started:
                    self._result = _never_begun(self.run_id, data)
            case k.CLOSE_REQUESTED if not self._accepted:
                self._closed = "COMPLETED"
            case k.RUN_COMPLETED:
                self._closed = data["outcome"]
            case _:
                pass

    def _check(self) -> None:
        if self._mismatch:
            raise IdempotencyMismatch(self.id, run_id=self.session_id)
        if self._result is None and self._closed is not None:
            raise SessionClosed(self.session_id, outcome=self._closed)

    async def _has_ended(self) -> bool:
        await self._read_log()
        return self._result is not None or self._closed is not None

    async def _cancel_run(self, reason: str, user: str | None) -> bool:
        """Ask the turn's run to stop, which is there or about to be."""
        with self._engine.store.wakeups.listen(self.session_id) as wake:
            while await self._engine.store.run(self.run_id) is None and not await self._has_ended():
                await self._progress(wake)
        try:
            return await self.run.cancel(reason, user=user)
        except RunNotFound:  # erased since
            return False

    async def _progress(self, wake: Listener, reasons: WaitingLog | None = None) -> None:
        """Wait until something may have changed, with the session being driven meanwhile.

        Args:
            wake: of the session.
            reasons: where to log what the turn waits for if it is not driven here.

        Raises:
            Exception: whatever stopped this process from driving it.
        """
        info = await self._engine.store.run(self.session_id)
        driven = info is not None and info.ready and await self._engine.resume(self.session_id)
        if info is not None and reasons is not None and not driven:
            await reasons.note(await self._engine.store.run(self.run_id) or info)
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(wake.wait(self._engine.poll_s))]
        if driven:
            waits.append(asyncio.ensure_future(self._engine.wait_while_driven(self.session_id)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in waits:
                each.cancel()


def _never_begun(run_id: str, data: Mapping[str, Any]) -> Result:
    return Result(
        run_id=run_id,
        outcome="CANCELLED",
        text="",
        reason=data.get("reason", ""),
        error=None,
        spend=Spend(),
    )


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

    Attributes:
        id: the session.
        repeated: True if this handle is of a start whose key had started the session before.
    """

    def __init__(
        self, engine: EngineAPI, session_id: str, *, parse: Callable[[str], T] | None = None
    ) -> None:
        """Made by `Engine.start_session` and `Engine.session`; see `Run`."""
        self.id = session_id
        self.repeated = False
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
        client_tools: Iterable[ToolSpec] = (),
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
            client_tools: see `Engine.start`; those of this turn alone.
            stream: keep the pieces of the replies from now on, for `Turn.deltas`. False drops those
                that come before it is called, and lets a client reply without streaming.

        Raises:
            SessionClosed: the session has ended, or is closing.
            BlobMissing: it names a blob to which no run of the tenant refers.
            IdempotencyMismatch: the key was sent with another input.
            ContentTooLarge: an attachment is above 256 KiB and there is no blob store.
            RunNotFound: there is no such session.
            ValueError: there is no message, or one that is not the user's, or the key is empty; or
                a tool of the caller is malformed, or has the name of another one.
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
        data: dict[str, Any] = {
            "signal_id": key,
            "input": [message_to_json(message) for message in messages],
        }
        if client_tools:
            data["client_tools"] = as_client_tools(client_tools, await self._tool_names())
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
        """Return the conversation after all turns that have ended, as people have seen it.

        What a memory has recalled for the model is left out.

        Raises:
            RunNotFound: there is no such session.
            UnknownAlgorithm: the engine does not have the algorithm of a turn.
        """
        sent = await self._catch_up()
        turns = await self._engine.conversations.upto(self.id, sent.seen)
        return [message for message in turns.conversation if not is_recalled(message)]

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

    async def _tool_names(self) -> frozenset[str]:
        """Return the names of the tools that the agent of the session has."""
        first = await self._engine.store.read(self.id, limit=1)
        config: Mapping[str, Any] = first[0].data.get("config", {}) if first else {}
        algorithm = config.get("algorithm")
        return self._engine.tool_names(algorithm) if isinstance(algorithm, str) else frozenset()

    def _repeated_turn(self, key: str, seq: int, before: str, request: str) -> Turn[T]:
        if before != request:
            raise IdempotencyMismatch(key, run_id=self.id)
        turn = Turn(self._engine, self.id, key, after=seq - 1, parse=self._parse)
        turn.repeated = True
        return turn

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
