"""A handle on one turn of a session: its result, events, deltas and cancellation."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from lib.engine.api.run import Run, Waiter
from lib.engine.api.waiting import WaitingLog
from lib.engine.arguments import check_wait, require_text
from lib.engine.core.budget import Spend
from lib.engine.core.result import Result
from lib.engine.handlers.base import LiveDelta
from lib.engine.handlers.turn import turn_run_id
from lib.engine.runtime.caches import request_digest
from lib.engine.runtime.services import EngineAPI
from lib.errors import IdempotencyMismatch, RunNotFound, SessionClosed
from lib.events import Event
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.events.wakeups import Listener

T = TypeVar("T", default=str)


class DeltaBuffer:
    """Buffers deltas of replies until `Turn.deltas` reads them."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self.kept: deque[LiveDelta] = deque()
        self.stopped: bool = False
        self.reader: Listener | None = None

    def put_nowait(self, item: LiveDelta | None, /) -> None:
        """Take a piece; None says that no more come for now."""
        self.stopped = item is None
        if item is not None:
            self.kept.append(item)
        if self.reader is not None:
            self.reader.wake()


class Turn(Generic[T]):
    """A handle on a turn; any number may exist, in any process.

    Attributes:
        session_id: the session.
        id: names the turn in its session: the key that it was sent under.
        run_id: the run that answers it, once it has begun.
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

        Whatever was written since it was sent is kept until it is read here, once, if this process
        drives the turn; nothing is if another one does. Never stored: read `events()` for what is
        durable. A piece with a higher `attempt` begins its reply anew.
        """
        deltas = self.keep_deltas()
        try:
            with self._engine.store.wakeups.listen(self.session_id) as wake:
                deltas.reader = wake
                while True:
                    quiet = not deltas.kept
                    while deltas.kept:
                        yield deltas.kept.popleft()
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
