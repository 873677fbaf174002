"""`Client`: the routes of a server as methods.

Each request may be sent again: what starts something carries a key, and decisions are the same
when they are repeated. So a cut connection, a restart and a server at its limits are waited out.
"""

from __future__ import annotations

import random as random_module
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import quote

import httpx2

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.engine import Budget
from lib.resilience import RetryPolicy
from lib_server.bodies import (
    AddScore,
    AgentList,
    AgentView,
    ApprovalList,
    ApprovalView,
    BlobView,
    BudgetBody,
    CancelRun,
    Decide,
    DeltaView,
    EventView,
    HistoryView,
    Outcome,
    ResultView,
    RunList,
    RunView,
    ScoreList,
    ScoreView,
    SendMessage,
    SessionView,
    Settle,
    SettlementView,
    StartRun,
    StartSession,
    TurnView,
    UnknownCallList,
    UnknownCallView,
    UserMessage,
)
from lib_server.client.errors import ResourceNotFound
from lib_server.client.stream import resumed
from lib_server.client.transport import ANSWER_S, Transport

RETRIES: Final = RetryPolicy(attempts=20, base_s=0.2, cap_s=10.0, deadline_s=300.0)
_WAIT_S: Final = 30.0
_POLL_S: Final = 0.5
_PAGE: Final = 200

Input: TypeAlias = str | Sequence[UserMessage]
"""What is sent to an agent: text, or messages with attachments."""

RunRef: TypeAlias = str | RunView | TurnView
"""A run: its id, what `start` has returned, or the turn that it answers."""

SessionRef: TypeAlias = str | SessionView


class Client:
    """Speaks to a server: `async with Client("http://127.0.0.1:8000") as client`.

    Every method raises `ClientError`, with the status and the code of the problem, once it was
    refused or the retries have come to nothing.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        http: httpx2.AsyncClient | None = None,
        retries: RetryPolicy = RETRIES,
        clock: Clock = SYSTEM_CLOCK,
        random: Callable[[], float] = random_module.random,
        new_key: Callable[[], str] = secrets.token_hex,
    ) -> None:
        """Prepare; nothing is opened.

        Args:
            base_url: where the server is, with the path under which it is mounted.
            api_key: a key or a token of the server.
            http: a client of httpx2 to use, which stays yours.
            retries: how often and how long a request is sent again; of a stream, since its last
                event.
            clock: measures and waits.
            random: returns numbers from 0 up to 1, for the jitter.
            new_key: makes the keys by which the server knows a request that is sent again.

        Raises:
            ValueError: the URL has no scheme of HTTP.
        """
        self._transport = Transport(
            base_url, api_key=api_key, http=http, retries=retries, clock=clock, random=random
        )
        self._clock = clock
        self._new_key = new_key

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections; runs go on."""
        await self._transport.aclose()

    # -- agents --------------------------------------------------------------------------------

    async def agents(self) -> list[AgentView]:
        """Return the agents of the server."""
        return (await self._transport.read(AgentList, "GET", "/v1/agents")).agents

    # -- runs ----------------------------------------------------------------------------------

    async def start(
        self,
        input: Input,  # noqa: A002 - the word that fits
        *,
        agent: str | None = None,
        key: str | None = None,
        budget: Budget | None = None,
    ) -> RunView:
        """Start a run, once however often the request is sent.

        Args:
            input: for the agent.
            agent: its name; None for the first one of the server.
            key: names the run within the tenant: the same key gives the same run. None for a new
                run.
            budget: what it may spend.
        """
        body = StartRun(agent=agent, input=_input(input), key=key, budget=_budget(budget))
        headers = self._key_headers(key)
        return await self._transport.read(RunView, "POST", "/v1/runs", body=body, headers=headers)

    async def run(self, run: RunRef) -> RunView:
        """Return a run as it is now."""
        return await self._transport.read(RunView, "GET", _run_path(run))

    async def runs(
        self,
        *,
        status: Literal["open", "closed"] | None = None,
        outcome: Outcome | None = None,
        agent: str | None = None,
        user: str | None = None,
        session: str | None = None,
        roots: bool = False,
        min_cost: float | None = None,
        order: Literal["newest", "oldest"] = "newest",
    ) -> AsyncGenerator[RunView]:
        """Yield runs, page by page.

        Args:
            status: only these.
            outcome: only runs with this one.
            agent: only runs of this one.
            user: only runs of this one.
            session: only turns of this one.
            roots: only runs that no other run has started.
            min_cost: only runs that cost so many US dollars, or more.
            order: which come first.
        """
        query = {
            "status": status,
            "outcome": outcome,
            "agent": agent,
            "user": user,
            "session": session,
            "roots": roots,
            "min_cost": min_cost,
            "order": order,
        }
        async with aclosing(self._pages(RunList, "/v1/runs", query)) as pages:
            async for page in pages:
                for run in page.runs:
                    yield run

    async def result(self, run: RunRef, *, timeout_s: float | None = None) -> ResultView:
        """Wait for the end of a run and return its result.

        Args:
            run: which one.
            timeout_s: seconds to wait at most, None for as long as it takes; then the `outcome` is
                None, and `waiting_for` says what it waits for.
        """
        await self._begun(run)
        began = self._clock.monotonic()
        while True:
            sent_at = self._clock.monotonic()
            left_s = None if timeout_s is None else timeout_s - (sent_at - began)
            wait_s = _WAIT_S if left_s is None else max(0.0, min(_WAIT_S, left_s))
            result = await self._transport.read(
                ResultView,
                "GET",
                f"{_run_path(run)}/result",
                query={"wait_s": wait_s},
                answer_s=wait_s + ANSWER_S,
            )
            if result.outcome is not None or (left_s is not None and left_s <= wait_s):
                return result
            if self._clock.monotonic() - sent_at < wait_s:  # the server is shutting down
                await self._clock.sleep(_POLL_S)

    async def cancel(self, run: RunRef, reason: str = "") -> RunView:
        """Cancel a run; one that has ended stays as it is."""
        body = CancelRun(reason=reason)
        return await self._transport.read(RunView, "POST", f"{_run_path(run)}/cancel", body=body)

    async def stream(
        self, run: RunRef, *, after: int = 0, deltas: bool = True
    ) -> AsyncGenerator[EventView | DeltaView]:
        """Yield the events of a run until it has ended, each once and in order.

        It resumes by itself, behind the last event, over cut connections, restarts and servers
        that shut down. Close the generator (`contextlib.aclosing`) if you leave it early: the run
        goes on.

        Args:
            run: which one.
            after: the `seq` of the last event that you have.
            deltas: also yield replies in pieces while they are written: of what you have of the
                reply `key`, keep `text_at` characters, and put the text behind them. The completed
                event replaces it.

        Raises:
            ResourceNotFound: there is no such run, or it has been erased.
            StreamReset: the log does not reach as far as `after`, or as it did.
        """
        await self._begun(run)
        path = f"{_run_path(run)}/events"
        async with aclosing(resumed(self._transport, path, after=after)) as items:
            async for item in items:
                if deltas or isinstance(item, EventView):
                    yield item

    async def _begun(self, run: RunRef) -> None:
        """Wait until a turn has a run: the turns before it come first."""
        while isinstance(run, TurnView):
            try:
                await self.run(run)
            except ResourceNotFound:
                if (await self.session(run.session_id)).status == "closed":
                    raise
                await self._clock.sleep(_POLL_S)
            else:
                return

    # -- approvals and unknown outcomes --------------------------------------------------------

    async def approvals(self, run: RunRef | None = None) -> AsyncGenerator[ApprovalView]:
        """Yield the calls of all open runs that wait for a person.

        Args:
            run: only its calls, and also those that have waited.
        """
        path = "/v1/approvals" if run is None else f"{_run_path(run)}/approvals"
        async with aclosing(self._pages(ApprovalList, path, {}, paged=run is None)) as pages:
            async for page in pages:
                for approval in page.approvals:
                    yield approval

    async def approve(self, approval: ApprovalView, *, comment: str = "") -> ApprovalView:
        """Let a call happen, with the arguments that the approval shows."""
        return await self._decide(approval, "approve", comment)

    async def deny(self, approval: ApprovalView, *, comment: str = "") -> ApprovalView:
        """Refuse a call; the model reads the comment."""
        return await self._decide(approval, "deny", comment)

    async def _decide(
        self, approval: ApprovalView, decision: Literal["approve", "deny"], comment: str
    ) -> ApprovalView:
        digest = approval.arguments_digest
        body = Decide(decision=decision, arguments_digest=digest, comment=comment)
        path = f"{_run_path(approval.run_id)}/approvals/{quote(approval.key)}"
        return await self._transport.read(ApprovalView, "POST", path, body=body)

    async def unknown_calls(self) -> AsyncGenerator[UnknownCallView]:
        """Yield the calls of all runs that may or may not have had their effect."""
        async with aclosing(self._pages(UnknownCallList, "/v1/unknown-calls", {})) as pages:
            async for page in pages:
                for call in page.calls:
                    yield call

    async def settle(
        self, call: UnknownCallView, *, happened: bool, result: Any = None
    ) -> SettlementView:
        """Put on record what became of a call; `result` is what it returned, if it happened."""
        body = Settle(happened=happened, result=result)
        path = f"{_run_path(call.run_id)}/unknown-calls/{quote(call.key)}"
        return await self._transport.read(SettlementView, "POST", path, body=body)

    # -- sessions ------------------------------------------------------------------------------

    async def start_session(
        self,
        *,
        agent: str | None = None,
        key: str | None = None,
        budget: Budget | None = None,
        turn_budget: Budget | None = None,
    ) -> SessionView:
        """Start a session, once however often the request is sent.

        Args:
            agent: its name; None for the first one of the server.
            key: names the session within the tenant. None for a new one.
            budget: of all turns together.
            turn_budget: of each turn.
        """
        body = StartSession(
            agent=agent, key=key, budget=_budget(budget), turn_budget=_budget(turn_budget)
        )
        headers = self._key_headers(key)
        return await self._transport.read(
            SessionView, "POST", "/v1/sessions", body=body, headers=headers
        )

    async def session(self, session: SessionRef) -> SessionView:
        """Return a session as it is now."""
        return await self._transport.read(SessionView, "GET", _session_path(session))

    async def send(
        self,
        session: SessionRef,
        input: Input,  # noqa: A002 - the word that fits
        *,
        key: str | None = None,
    ) -> TurnView:
        """Send a message; `stream` and `result` take the turn that will answer it.

        Args:
            session: which one.
            input: for its agent.
            key: names the turn within the session. None for a new one.
        """
        return await self._transport.read(
            TurnView,
            "POST",
            f"{_session_path(session)}/messages",
            body=SendMessage(input=_input(input), key=key),
            headers=self._key_headers(key),
        )

    async def history(self, session: SessionRef) -> list[dict[str, Any]]:
        """Return the conversation after all turns that have ended."""
        path = f"{_session_path(session)}/messages"
        return (await self._transport.read(HistoryView, "GET", path)).messages

    async def close_session(self, session: SessionRef) -> SessionView:
        """Close a session once it has answered what was sent so far."""
        return await self._transport.read(SessionView, "DELETE", _session_path(session))

    # -- scores and blobs ----------------------------------------------------------------------

    async def score(
        self,
        run: RunRef,
        name: str,
        value: bool | float | str,
        *,
        comment: str | None = None,
        source: Literal["code", "llm", "human"] = "human",
        span_id: str | None = None,
        key: str | None = None,
    ) -> list[ScoreView]:
        """Judge a run, once however often the request is sent; return all its scores.

        Args:
            run: which one.
            name: of what is judged.
            value: the judgement.
            comment: why.
            source: what has judged.
            span_id: the span that was judged, None for the run.
            key: names the judgement: it counts once under a key. None for a new one.
        """
        body = AddScore(
            name=name,
            value=float(value) if type(value) is int else value,
            comment=comment,
            source=source,
            span_id=span_id,
            key=key or self._new_key(),
        )
        path = f"{_run_path(run)}/scores"
        return (await self._transport.read(ScoreList, "POST", path, body=body)).scores

    async def scores(self, run: RunRef) -> list[ScoreView]:
        """Return the judgements of a run, oldest first."""
        return (await self._transport.read(ScoreList, "GET", f"{_run_path(run)}/scores")).scores

    async def upload(self, content: bytes, media_type: str) -> BlobView:
        """Upload content for inputs; an `AttachmentPart` names it by its digest."""
        headers = {"content-type": media_type}
        return await self._transport.read(
            BlobView, "POST", "/v1/blobs", content=content, headers=headers
        )

    async def download(self, digest: str) -> bytes:
        """Return content that was uploaded, or that a run refers to."""
        return await self._transport.send("GET", f"/v1/blobs/{quote(digest, safe='')}")

    # -- requests ------------------------------------------------------------------------------

    def _key_headers(self, key: str | None) -> dict[str, str]:
        return {"idempotency-key": self._new_key()} if key is None else {}

    async def _pages(
        self, page: type[Any], path: str, query: dict[str, Any], *, paged: bool = True
    ) -> AsyncGenerator[Any]:
        limit = {"limit": _PAGE} if paged else {}
        cursor: str | None = None
        while True:
            sent = {**query, **limit, "cursor": cursor}
            found = await self._transport.read(page, "GET", path, query=sent)
            yield found
            cursor = found.next_cursor
            if cursor is None:
                return


def _run_path(run: RunRef) -> str:
    run_id = run if isinstance(run, str) else run.run_id if isinstance(run, TurnView) else run.id
    return f"/v1/runs/{quote(run_id, safe='')}"


def _session_path(session: SessionRef) -> str:
    session_id = session if isinstance(session, str) else session.id
    return f"/v1/sessions/{quote(session_id, safe='')}"


def _input(value: Input) -> str | list[UserMessage]:
    return value if isinstance(value, str) else list(value)


def _budget(budget: Budget | None) -> BudgetBody | None:
    if budget is None:
        return None
    fields = BudgetBody.model_fields
    return BudgetBody(**{name: getattr(budget, name) for name in fields})
