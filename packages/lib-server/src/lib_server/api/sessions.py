"""`/v1/sessions`: conversations that go on, turn by turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp

from lib.engine import Budget, Session
from lib.engine.core.session import SESSION
from lib.engine.handlers.turn import turn_run_id
from lib.errors import RunNotFound
from lib.events import RunInfo
from lib.llm import message_to_json
from lib_server.api.runs import (
    IDEMPOTENCY_KEY,
    allowed_budget,
    as_budget,
    check_open_runs,
    idempotency_key,
    messages,
)
from lib_server.bodies import (
    Empty,
    HistoryView,
    SendMessage,
    SessionView,
    StartSession,
    TurnView,
)
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer
from lib_server.sse import STREAM_EVENTS, TurnStream


async def _found(call: Call[Any, Any]) -> tuple[Session, RunInfo]:
    """Return the session that the path names.

    Raises:
        Problem: `session_not_found`.
    """
    tenant = call.principal.tenant
    session = call.engine.session(call.path("session_id"), tenant=tenant)
    info = await call.store.run(session.id)
    if info is None or info.algorithm != SESSION:
        raise Problem("session_not_found", "no session has this id")
    return session, info


async def _view(call: Call[Any, Any], session: Session, info: RunInfo) -> SessionView:
    first = await call.store.read(info.run_id, limit=1)
    config: dict[str, Any] = first[0].data.get("config", {}) if first else {}
    return SessionView(
        id=info.run_id,
        agent=str(config.get("algorithm", "")),
        status=info.status,
        outcome=info.outcome,
        tenant=info.tenant,
        user=info.user,
        created_at=info.created_at,
        updated_at=info.updated_at,
        turns=[turn.id for turn in await session.turns()],
    )


async def _start(call: Call[Empty, StartSession]) -> ASGIApp:
    call.check_not_draining()
    body, principal = call.body, call.principal
    if body.agent is not None and body.agent not in call.engine.agents:
        raise Problem("agent_not_found", "no agent has this name")
    session = await call.engine.start_session(
        agent=body.agent,
        tenant=principal.tenant,
        user=principal.user,
        budget=as_budget(body.budget),
        turn_budget=allowed_budget(call, body.agent, body.turn_budget, field="turn_budget"),
        idempotency_key=idempotency_key(call, body.key),
    )
    view = await _view(call, session, await session.run.info())
    headers = {"location": f"{call.request.scope.get('root_path', '')}/v1/sessions/{session.id}"}
    if session.repeated:
        headers["idempotent-replayed"] = "true"
    return answer(view, 200 if session.repeated else 201, headers=headers)


async def _get(call: Call[Empty, None]) -> ASGIApp:
    session, info = await _found(call)
    return answer(await _view(call, session, info))


@asynccontextmanager
async def admitted_turn(
    call: Call[Any, Any], session: Session, key: str | None
) -> AsyncGenerator[str | None]:
    """Admit a turn under the quotas of its caller; yields the key to send it under: see `admitted`.

    Raises:
        Problem: `open_runs_cap`, `budget_spent`.
    """
    await check_open_runs(call)
    spending, engine = call.services.spending, call.engine
    if not spending.is_limited(call.principal):
        yield key
        return
    key = key or engine.new_id()
    first = await call.store.read(session.id, limit=1)
    config: dict[str, Any] = first[0].data.get("config", {}) if first else {}
    budget = Budget.from_json(config.get("turn_budget", {}))
    run_id = turn_run_id(session.id, key)
    async with spending.admitted(engine, call.principal, run_id, budget):
        yield key


async def _send(call: Call[Empty, SendMessage]) -> ASGIApp:
    call.check_not_draining()
    session, _ = await _found(call)
    streams = "text/event-stream" in call.request.headers.get("accept", "")
    quotas = call.services.quotas
    if streams:
        quotas.check_streams(call.principal)
    try:
        sent_key = idempotency_key(call, call.body.key)
        async with admitted_turn(call, session, sent_key) as key:
            turn = await session.send(
                await messages(call, call.body.input),
                idempotency_key=key,
                user=call.principal.user,
            )
    except RunNotFound:  # erased since
        raise Problem("session_not_found", "no session has this id") from None
    services = call.services
    services.channels.hold(turn.run_id)
    turn.drop_deltas()
    if streams:
        stream = TurnStream(
            turn,
            call.store,
            channels=services.channels,
            limits=services.limits,
            recheck=call.recheck(),
        )
        return quotas.counted(call.principal, stream)
    headers = {"idempotent-replayed": "true"} if turn.repeated else None
    view = TurnView(id=turn.id, session_id=session.id, run_id=turn.run_id)
    return answer(view, 202, headers=headers)


async def _history(call: Call[Empty, None]) -> ASGIApp:
    session, _ = await _found(call)
    conversation = await session.history()
    return answer(HistoryView(messages=[message_to_json(each) for each in conversation]))


async def _close(call: Call[Empty, None]) -> ASGIApp:
    session, info = await _found(call)
    await session.close(user=call.principal.user)
    return answer(await _view(call, session, info), 202)


_PATH = "/v1/sessions/{session_id}"

ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/sessions",
        handler=_start,
        summary="Start a session, or find the one that the same key has started",
        tag="sessions",
        right="run",
        body=StartSession,
        answers={201: SessionView, 200: SessionView},
        problems=[
            "agent_not_found",
            "idempotency_mismatch",
            "run_erased",
            "budget_ceiling",
            "draining",
        ],
        headers=IDEMPOTENCY_KEY,
    ),
    Route(
        method="GET",
        path=_PATH,
        handler=_get,
        summary="Look at a session",
        tag="sessions",
        right="read",
        answers={200: SessionView},
    ),
    Route(
        method="POST",
        path=f"{_PATH}/messages",
        handler=_send,
        summary="Send a message; with `Accept: text/event-stream`, stream the turn that answers it",
        tag="sessions",
        right="run",
        body=SendMessage,
        answers={202: TurnView},
        problems=[
            "session_closed",
            "upload_not_found",
            "idempotency_mismatch",
            "budget_spent",
            "open_runs_cap",
            "stream_cap",
            "draining",
        ],
        headers=IDEMPOTENCY_KEY,
        events=STREAM_EVENTS,
    ),
    Route(
        method="GET",
        path=f"{_PATH}/messages",
        handler=_history,
        summary="Read the conversation after all turns that have ended",
        tag="sessions",
        right="read",
        answers={200: HistoryView},
    ),
    Route(
        method="DELETE",
        path=_PATH,
        handler=_close,
        summary="Close a session once it has answered what was sent so far",
        tag="sessions",
        right="run",
        answers={202: SessionView},
    ),
]
