"""A handle on one run: its result, events, approvals, scores and cancellation."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, Generic, Self, cast

from typing_extensions import TypeVar

from lib.engine.api.stream import StreamItem, stream_of
from lib.engine.api.waiting import WaitingLog, awaited_in, pending_in, unknown_in, waiting_for
from lib.engine.arguments import check_wait, require_optional_text, require_text
from lib.engine.core.algorithm import NULL_ALGORITHM
from lib.engine.core.decide import rehydrate
from lib.engine.core.result import PendingApproval, Result
from lib.engine.core.state import RunState, fold
from lib.engine.handlers.base import LiveDelta
from lib.engine.runtime.deltas import DeltaQueue
from lib.engine.runtime.services import EngineAPI
from lib.errors import NotPending, RunAbandoned, RunNotFound, StoreClosed
from lib.evals import Score, ScoreSource, as_score
from lib.events import Event, RunInfo
from lib.events import kinds as k
from lib.events.wakeups import Listener

_IDLE_POLLS: Final = 10
T = TypeVar("T", default=str)


class Waiter:
    """Raises `RunAbandoned` in a waiting caller when the engine, and its store, are closed.

    Attributes:
        waits: True once the caller waits; before, a closed store is an error of the caller.
    """

    def __init__(self, run_id: str) -> None:
        """Look for the first time."""
        self.waits = False
        self._run_id = run_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _at: object) -> None:
        """Raise the error that a closing engine raises."""
        if self.waits and isinstance(error, StoreClosed):
            raise RunAbandoned(self._run_id, "the engine is closing") from error


class Run(Generic[T]):
    """A handle on a run; any number may exist, in any process, of a run in any state.

    Attributes:
        id: the run.
        repeated: True if this handle is of a start whose key had started the run before.
    """

    def __init__(
        self,
        engine: EngineAPI,
        run_id: str,
        *,
        parse: Callable[[str], T] | None = None,
    ) -> None:
        """Made by `Engine.start` and `Engine.run`.

        Args:
            engine: drives and stores.
            run_id: the run.
            parse: makes the output of the answer's text, None for the text itself.
        """
        self._engine = engine
        self.id = run_id
        self.repeated = False
        self._parse = parse
        self._deltas: DeltaQueue[Event] | None = None

    async def info(self) -> RunInfo:
        """Return what the store lists of it.

        Raises:
            RunNotFound: there is no such run.
        """
        info = await self._engine.store.run(self.id)
        if info is None:
            raise RunNotFound(self.id)
        return info

    async def result(self, *, wait: bool = True, timeout_s: float | None = None) -> Result[T]:
        """Wait for the end and return it, driving the run here whenever no worker does.

        A run that waits for a person, or for the lease of another worker, makes this wait, too;
        the logger `lib.engine` says so once, with the reason.

        Args:
            wait: False returns the present state at once, and drives nothing.
            timeout_s: seconds to wait at most, None for no limit; then the present state is
                returned, and the run goes on. The `outcome` of a run that has not ended is
                None, and its `waiting_for` says what it waits for.

        Raises:
            RunNotFound: there is no such run.
            RunAbandoned: the engine is closing.
            UnknownAlgorithm: the engine does not have its algorithm.
            MissingHandler: it makes a request that no handler of the engine fulfils.
            InvalidReply: its agent has another `output=` by now, which the answer does not fit.
            ValueError: the timeout is negative, or none.
            StoreError: its store failed; other errors are faults of a handler or an algorithm.
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
        info = await self.info()
        state = await self._state_without_algorithm()
        if state.outcome is not None:
            return self._typed(Result.of(state))
        waits_for = await waiting_for(self._engine.store, info)
        return self._typed(Result.unfinished(state, waits_for))

    def _typed(self, result: Result) -> Result[T]:
        if self._parse is None:
            return cast("Result[T]", result)  # then T is str
        return result.typed(self._parse)

    async def _end(self) -> Result:
        reasons = WaitingLog(self._engine.store, drives=self._engine.drives)
        with self._engine.store.wakeups.listen(self.id) as wake, Waiter(self.id) as waiter:
            while True:
                state = await self._engine.wait_while_driven(self.id)
                if state is not None and state.outcome is not None:
                    return Result.of(state)
                info = await self.info()
                if info.status == "closed":
                    return Result.of(await self._state_without_algorithm())
                if not (info.ready and await self._engine.resume(self.id)):
                    await reasons.note(info)
                    waiter.waits = True
                    await self._wait_for_change(wake, info)

    async def _wait_for_change(self, wake: Listener, info: RunInfo) -> None:
        """Wait until it is worth looking at it again.

        A run without a lease that is not ready changes only when an event is appended. A caller
        that waits for thousands of such runs must not read them all at each commit of another
        process; that one was erased elsewhere is seen at the next poll.
        """
        poll_s = self._engine.poll_s
        if info.ready or info.owner is not None:
            await wake.wait(poll_s)
        else:
            await wake.wait(poll_s * _IDLE_POLLS, rest_s=poll_s)

    async def _state_without_algorithm(self) -> RunState[Any]:
        """Return what does not depend on its algorithm, which need not be here, nor work."""
        return fold(NULL_ALGORITHM, await self._log())

    async def _log(self) -> list[Event]:
        log = await self._engine.store.read(self.id)
        if not log:
            raise RunNotFound(self.id)
        return log

    async def state(self) -> RunState[Any]:
        """Return the fold of its log, as it is now.

        Raises:
            RunNotFound: there is no such run.
            UnknownAlgorithm: the engine does not have its algorithm.
        """
        log = await self._log()
        algorithm = self._engine.algorithm(str(log[0].data.get("algorithm", "")))
        past = await self._engine.conversations.before(log[0])
        return rehydrate(algorithm, log, past.conversation)[0]

    async def events(self, *, after: int = 0) -> AsyncGenerator[Event]:
        """Yield its events in order as they are appended, until it is closed.

        Args:
            after: the `seq` after which to begin; give the last one seen to go on.

        Raises:
            RunNotFound: there is no such run.
        """
        with self._engine.store.wakeups.listen(self.id) as wake:
            while True:
                for event in await self._engine.store.read(self.id, after=after, limit=256):
                    yield event
                    after = event.seq
                info = await self.info()
                if info.head > after:
                    continue
                if info.status == "closed":
                    return
                await wake.wait(self._engine.poll_s)

    async def stream(self, *, after: int = 0) -> AsyncGenerator[StreamItem[T]]:
        """Yield what happens in the run until it ends: deltas, calls, verdicts, approvals, the end.

        The run is driven here unless another process drives it; its deltas come all the same, if
        the store carries them. They may be lost, and a reply may begin anew (`ReplyReset`);
        `ModelReplied` has the whole of it. Close the generator (`contextlib.aclosing`) if you leave
        it early: the run goes on.

        Args:
            after: the `seq` of the last item seen, to go on behind it.

        Raises:
            RunNotFound: there is no such run.
            Exception: as `result` does.
        """
        deltas, self._deltas = self.keep_deltas(), None
        try:
            await self.info()  # no delta of a run that the caller may not read
            async with aclosing(stream_of(self, deltas, after=after)) as items:
                async for item in items:
                    yield item
        finally:
            self._engine.hub.discard(self.id, deltas)

    def keep_deltas(self) -> DeltaQueue[Event]:
        """Keep the pieces of its replies from now on, for `stream`, until this handle is gone."""
        if self._deltas is None:
            self._deltas = DeltaQueue()
            self._engine.hub.add(self.id, self._deltas)
            weakref.finalize(self, self._engine.hub.discard, self.id, self._deltas)
        return self._deltas

    def deltas(self) -> AsyncGenerator[LiveDelta]:
        """Yield replies while they are written, as long as any process drives the run.

        Best effort and never stored: read `events()` for what is durable. Each reply is shown from
        its beginning on, without a gap; once a piece is lost, nothing more of it is. A piece with a
        higher `epoch` (another worker has taken the run over) or `attempt` begins its reply anew.
        Pieces of the JSON of calls come only from this process.
        """
        return self._engine.watch(self.id)

    async def score(
        self,
        score: Score | str | None = None,
        value: float | str | None = None,
        *,
        name: str | None = None,
        comment: str | None = None,
        source: ScoreSource | None = None,
        at: datetime | None = None,
        meta: Mapping[str, Any] | None = None,
        span_id: str | None = None,
        signal_id: str | None = None,
        user: str | None = None,
    ) -> None:
        """Append a judgement of the run, or of one span of it, to its log, after its end as well.

        `run.score("helpful", 0.8)`, `run.score(name="helpful", value=0.8)` and
        `run.score(Score(name="helpful", value=0.8))` are the same. It passes the engine's redactor
        and does not open the run again.

        Args:
            score: a score, or the name of one.
            value: a finite number, True or False, or a label.
            name: what was judged, in place of the first argument.
            comment: why.
            source: what judged: "code", "llm" or "human"; None for "code".
            at: when, with a time zone; None for now.
            meta: further facts, as JSON.
            span_id: the span that was judged; None for the run as a whole.
            signal_id: names the judgement: repeated under the same id it counts once. None makes
                one.
            user: the person who caused it.

        Raises:
            RunNotFound: there is no such run.
            ValueError: it is no score, such as NaN or a blank name.
            TypeError: a Score and its fields are mixed, or no name or value is there.
        """
        judged = as_score(score, value, name=name, comment=comment, source=source, at=at, meta=meta)
        await self._engine.add_score(
            self.id, judged, span_id=span_id, signal_id=signal_id, user=user
        )

    async def pending(self) -> list[PendingApproval]:
        """Return the calls that wait for a person, oldest first.

        Raises:
            RunNotFound: there is no such run.
        """
        return pending_in(await self._log())

    async def approve(
        self,
        key: str,
        *,
        comment: str = "",
        user: str | None = None,
        signal_id: str | None = None,
    ) -> None:
        """Let a call that waits for a person be made.

        Args:
            key: names the call in its run.
            comment: why.
            user: the person who decides.
            signal_id: names the decision in the log; None makes a name.

        Raises:
            NotPending: no such call waits; the first decision counts.
            TypeError: the comment or an id is no text.
        """
        await self._decide(key, comment, approved=True, user=user, signal_id=signal_id)

    async def deny(
        self,
        key: str,
        *,
        comment: str = "",
        user: str | None = None,
        signal_id: str | None = None,
    ) -> None:
        """Refuse a call that waits for a person; the model reads the refusal and the comment.

        Args:
            key: names the call in its run.
            comment: why.
            user: the person who decides.
            signal_id: names the decision in the log; None makes a name.

        Raises:
            NotPending: no such call waits; the first decision counts.
            TypeError: the comment or an id is no text.
        """
        await self._decide(key, comment, approved=False, user=user, signal_id=signal_id)

    async def _decide(
        self, key: str, comment: str, *, approved: bool, user: str | None, signal_id: str | None
    ) -> None:
        require_text(comment=comment)
        require_optional_text(signal_id=signal_id)
        if key not in {call.key for call in await self.pending()}:
            raise NotPending(self.id, key)
        data: dict[str, Any] = {"key": key, "approved": approved}
        if comment:
            data["comment"] = comment
        if signal_id is not None:
            data["signal_id"] = signal_id
        await self._engine.signal(self.id, k.APPROVAL_DECIDED, data, user=user)

    async def answer(
        self,
        key: str,
        output: str,
        *,
        failed: bool = False,
        user: str | None = None,
        signal_id: str | None = None,
    ) -> None:
        """Bring the result of a call that the client of the run makes; see `client_tools`.

        Guards see it, and the model reads it fenced and cut, as it is not to be trusted.

        Args:
            key: names the call in its run.
            output: what it has returned, or why it has failed.
            failed: True if it has.
            user: the person behind the client.
            signal_id: names the answer in the log; None makes a name.

        Raises:
            NotPending: no such call is awaited; the first answer counts.
            RunNotFound: there is no such run.
            TypeError: the output or an id is no text.
        """
        require_text(output=output)
        require_optional_text(signal_id=signal_id)
        if key not in {call.key for call in awaited_in(await self._log())}:
            raise NotPending(self.id, key)
        data: dict[str, Any] = {"key": key, "output": output}
        if failed:
            data["failed"] = True
        if signal_id is not None:
            data["signal_id"] = signal_id
        await self._engine.signal(self.id, k.TOOL_ANSWERED, data, user=user)

    async def settle(
        self, key: str, *, happened: bool, result: Any = None, user: str | None = None
    ) -> None:
        """Write down what became of a call whose outcome is unknown; see `unknown_calls`.

        If it happened, the next equal call of the run is not made, and its model reads the result
        instead. If it did not, an equal call may be made, and none that waits for a person because
        of it waits any longer for that.

        Args:
            key: names the call in its run.
            happened: True if it had its effect.
            result: what it returned, as plain JSON; None if unknown.
            user: the person who found that out.

        Raises:
            NotPending: the outcome of no such call is unknown; the first settlement counts.
            RunNotFound: there is no such run.
            InvalidEvent: `happened` is no bool.
        """
        await self.info()
        if key not in await unknown_in(self._engine.store, self.id):
            raise NotPending(self.id, key)
        data: dict[str, Any] = {"key": key, "happened": happened}
        if result is not None:
            data["result"] = result
        await self._engine.signal(self.id, k.CALL_SETTLED, data, user=user)

    async def cancel(self, reason: str = "", *, user: str | None = None) -> bool:
        """Ask the run to stop; return False if it has ended already.

        What is under way is interrupted, every open call gets a result, and the run ends as
        CANCELLED: `await run.result()` to see it done.

        Raises:
            RunNotFound: there is no such run.
            TypeError: the reason is no text.
        """
        require_text(reason=reason)
        if (await self.info()).status == "closed":
            return False
        data = {"reason": reason} if reason else {}
        await self._engine.signal(self.id, k.CANCEL_REQUESTED, data, user=user)
        return True
