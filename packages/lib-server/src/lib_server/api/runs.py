"""`/v1/runs`: start, list, read and cancel runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, overload

from pydantic import BaseModel
from starlette.types import ASGIApp

from lib.engine import Budget, Result, Run
from lib.engine.api.starting import start_id
from lib.errors import RunNotFound
from lib.events import RunInfo, RunQuery
from lib.events.runs import is_held
from lib.llm import Audio, File, Image, Message, Text
from lib_server.api.blobs import uploaded
from lib_server.bodies import (
    AttachmentPart,
    BudgetBody,
    CancelRun,
    Empty,
    ErrorView,
    Input,
    ResultView,
    RunFilter,
    RunList,
    RunState,
    RunView,
    SpendView,
    StartRun,
    SummaryView,
    TextPart,
    UserMessage,
    WaitFor,
)
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Header, Route, answer
from lib_server.summaries import Summary

_MOST_LOOKED = 500
_KEY = re.compile("[!-~]([ -~]{0,253}[!-~])?")
_QUOTED = re.compile('^"(.+)"$')
IDEMPOTENCY_KEY = {
    "Idempotency-Key": Header("makes it safe to send the request again", _KEY.pattern)
}
_ATTACHMENTS = {"image": Image, "audio": Audio, "file": File}


# -- views -----------------------------------------------------------------------------------------


def run_view(info: RunInfo, now: datetime) -> RunView:
    """Return a run as answers show it."""
    return RunView(
        id=info.run_id,
        agent=info.algorithm,
        status=info.status,
        state=_state(info, now),
        outcome=info.outcome,
        tenant=info.tenant,
        user=info.user,
        root_id=info.root_id,
        parent_id=info.parent_id,
        created_at=info.created_at,
        updated_at=info.updated_at,
        head=info.head,
    )


def _state(info: RunInfo, now: datetime) -> RunState:
    if info.status == "closed":
        return "closed"
    if is_held(info.lease_until, now):
        return "working"
    return "queued" if info.ready else "waiting"


def result_view(result: Result[Any]) -> ResultView:
    """Return a result as answers show it."""
    spend = result.spend
    return ResultView(
        run_id=result.run_id,
        outcome=result.outcome,
        text=result.text,
        output=_output(result),
        reason=result.reason,
        error=None if result.error is None else _error(result.error),
        spend=SpendView(
            tokens=spend.tokens,
            cost=spend.cost,
            llm_calls=spend.llm_calls,
            tool_calls=spend.tool_calls,
            seconds=spend.seconds,
        ),
        waiting_for=None if result.waiting_for is None else str(result.waiting_for),
    )


def _error(error: Any) -> ErrorView:
    return ErrorView(type=str(error.get("type", "")), message=str(error.get("message", "")))


def _output(result: Result[Any]) -> Any:
    """Return the answer of an agent with an output type as JSON."""
    parsed = result.parsed[0] if result.parsed else None
    return parsed.model_dump(mode="json") if isinstance(parsed, BaseModel) else None


# -- input -----------------------------------------------------------------------------------------


@overload
async def messages(call: Call[Any, Any], value: Sequence[UserMessage]) -> list[Message]: ...
@overload
async def messages(call: Call[Any, Any], value: Input) -> str | list[Message]: ...
async def messages(call: Call[Any, Any], value: str | Sequence[UserMessage]) -> Any:
    """Return an input as the engine takes it, with the content of uploads.

    Raises:
        BlobMissing: one refers to an upload that does not exist.
    """
    return value if isinstance(value, str) else [await _message(call, each) for each in value]


async def _message(call: Call[Any, Any], message: UserMessage) -> Message:
    parts = message.content
    if isinstance(parts, str):
        return Message(message.role, (Text(parts),))
    return Message(message.role, tuple([await _part(call, part) for part in parts]))


async def _part(call: Call[Any, Any], part: TextPart | AttachmentPart) -> Text | Any:
    if isinstance(part, TextPart):
        return Text(part.text)
    kind: Any = _ATTACHMENTS[part.type]
    options: dict[str, Any] = {"name": part.name} if part.type == "file" else {}
    if part.upload is None:
        return kind(data=part.data, url=part.url, media_type=part.media_type, **options)
    content, media_type = await uploaded(call, part.upload.digest)
    return kind(data=content, media_type=part.upload.media_type or media_type, **options)


def as_budget(body: BudgetBody | None) -> Budget | None:
    """Return the budget that a body describes."""
    return None if body is None else Budget(**body.model_dump())


def idempotency_key(call: Call[Any, Any], key: str | None) -> str | None:
    """Return the key under which the engine starts something, None without one.

    The key of the body names it for the whole tenant, as `Engine.start` has it. That of the header
    only recognizes a request that is sent again: to the same path, by the same user.

    Raises:
        Problem: both are there, or the header holds no key.
    """
    header = call.request.headers.get("idempotency-key")
    if header is None:
        return key
    if key is not None:
        raise Problem("invalid", "expected Idempotency-Key or key, got both: leave one out")
    if not _KEY.fullmatch(header):
        detail = "expected 1 to 255 printable ASCII characters as Idempotency-Key"
        raise Problem("malformed", detail)
    header = _QUOTED.sub(r"\1", header)
    sent = ["http", call.request.scope["path"], call.principal.user, header]
    return hashlib.sha256(json.dumps(sent).encode()).hexdigest()


# -- handlers --------------------------------------------------------------------------------------


async def check_open_runs(call: Call[Any, Any], key: str | None = None) -> None:
    """Refuse a run above a quota, unless this key has started it already.

    Raises:
        Problem: `open_runs_cap`.
    """
    engine, principal = call.engine, call.principal
    try:
        await call.services.quotas.check_open_runs(principal, engine.store, engine.algorithms)
    except Problem:
        run_id = start_id(engine, key, principal.tenant)
        if key is None or await call.store.run(run_id) is None:
            raise


@asynccontextmanager
async def admitted(
    call: Call[Any, Any], key: str | None, budget: Budget | None
) -> AsyncGenerator[str | None]:
    """Admit a run, which the block starts, under the quotas of its caller.

    Yields the key to start it under, which is a new one if there is none and its id has to be
    in the accounts of the day before it is started.

    Raises:
        Problem: `open_runs_cap`, `budget_spent`.
    """
    await check_open_runs(call, key)
    spending, principal, engine = call.services.spending, call.principal, call.engine
    if not spending.is_limited(principal):
        yield key
        return
    key = key or engine.new_id()
    run_id = start_id(engine, key, principal.tenant)
    async with spending.admitted(engine, principal, run_id, budget):
        yield key


def allowed_budget(
    call: Call[Any, Any], agent: str | None, body: BudgetBody | None, *, field: str
) -> Budget | None:
    """Return the budget of a run of an agent: what the caller chooses, under all ceilings.

    Raises:
        Problem: `budget_ceiling`.
    """
    own = call.engine.budget_of(agent)
    return call.services.quotas.run_budget(
        call.principal, as_budget(body), own, pointer=f"/{field}"
    )


async def _start(call: Call[Empty, StartRun]) -> ASGIApp:
    call.check_not_draining()
    body, principal = call.body, call.principal
    if body.agent is not None and body.agent not in call.engine.agents:
        raise Problem("agent_not_found", "no agent has this name")
    budget = allowed_budget(call, body.agent, body.budget, field="budget")
    key = idempotency_key(call, body.key)
    async with admitted(call, key, budget) as start_key:
        run = await call.engine.start(
            await messages(call, body.input),
            agent=body.agent,
            idempotency_key=start_key,
            tenant=principal.tenant,
            user=principal.user,
            budget=budget,
            traceparent=call.request.headers.get("traceparent", ""),
            tracestate=call.request.headers.get("tracestate"),
            stream=True,
        )
    call.services.channels.hold(run.id)
    info = await run.info()
    headers = {"location": f"{call.request.scope.get('root_path', '')}/v1/runs/{run.id}"}
    if run.repeated:
        headers["idempotent-replayed"] = "true"
    view = run_view(info, call.engine.clock.now())
    return answer(view, 200 if run.repeated else 201, headers=headers)


async def _list(call: Call[RunFilter, None]) -> ASGIApp:
    query = call.query
    wanted = RunQuery(
        tenant=call.principal.tenant,
        status=query.status,
        user=query.user,
        algorithm=query.agent,
        outcome=query.outcome,
        parent_id=query.session,
        roots=query.roots,
        newest_first=query.order == "newest",
        since=query.since,
        after=query.cursor,
        limit=query.limit,
    )
    try:
        if query.min_cost is None:
            found = await call.store.runs(wanted)
            cursor = found[-1].run_id if len(found) == query.limit else None
        else:
            found, cursor = await _of_cost(call, wanted, query.min_cost)
    except RunNotFound:
        raise Problem("invalid_cursor", "start the list again without a cursor") from None
    now = call.engine.clock.now()
    views = [run_view(info, now) for info in found]
    if query.summary:
        for info, view in zip(found, views, strict=True):
            view.summary = _summary_view(await call.services.summaries.of(info))
    return answer(RunList(runs=views, next_cursor=cursor))


def _summary_view(short: Summary) -> SummaryView:
    return SummaryView(question=short.question, tokens=short.tokens, cost=short.cost)


async def _of_cost(
    call: Call[RunFilter, None], wanted: RunQuery, min_cost: float
) -> tuple[list[RunInfo], str | None]:
    """Return runs that cost so much, and the last one that was looked at, if there may be more."""
    found: list[RunInfo] = []
    looked = await call.store.runs(replace(wanted, limit=_MOST_LOOKED))
    for info in looked:
        if (await call.services.summaries.of(info)).known_cost >= min_cost:
            found.append(info)
            if len(found) == call.query.limit:
                return found, info.run_id
    return found, looked[-1].run_id if len(looked) == _MOST_LOOKED else None


async def _get(call: Call[Empty, None]) -> ASGIApp:
    _, info = await call.run()
    return answer(run_view(info, call.engine.clock.now()))


async def _result(call: Call[WaitFor, None]) -> ASGIApp:
    _, info = await call.run()
    agent = call.engine.agents.get(info.algorithm)
    tenant = call.principal.tenant
    run: Any = (
        call.engine.run(info.run_id, tenant=tenant)
        if agent is None
        else call.engine.run(info.run_id, tenant=tenant, agent=agent)
    )
    wait_s = call.query.wait_s
    result = await (_result_within(call, run, wait_s) if wait_s else run.result(wait=False))
    return answer(result_view(result))


async def _result_within(call: Call[Any, Any], run: Run, wait_s: float) -> Result[Any]:
    """Return the result of a run, or how far it has come by then or when the server stops."""
    waiting = asyncio.ensure_future(run.result(timeout_s=wait_s))
    ending = asyncio.ensure_future(call.services.channels.ending.wait())
    try:
        await asyncio.wait([waiting, ending], return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else await run.result(wait=False)
    finally:
        waiting.cancel()
        ending.cancel()
        await asyncio.wait([waiting, ending])


async def _cancel(call: Call[Empty, CancelRun]) -> ASGIApp:
    run, _ = await call.run()
    cancelled = await run.cancel(call.body.reason, user=call.principal.user)
    view = run_view(await run.info(), call.engine.clock.now())
    return answer(view, 202 if cancelled else 200)


ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/runs",
        handler=_start,
        summary="Start a run, or find the one that the same key has started",
        tag="runs",
        right="run",
        body=StartRun,
        answers={201: RunView, 200: RunView},
        problems=[
            "agent_not_found",
            "upload_not_found",
            "idempotency_mismatch",
            "run_erased",
            "budget_ceiling",
            "budget_spent",
            "open_runs_cap",
            "draining",
        ],
        headers=IDEMPOTENCY_KEY,
    ),
    Route(
        method="GET",
        path="/v1/runs",
        handler=_list,
        summary="List runs",
        tag="runs",
        right="read",
        query=RunFilter,
        answers={200: RunList},
        problems=["invalid_cursor"],
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}",
        handler=_get,
        summary="Look at a run",
        tag="runs",
        right="read",
        answers={200: RunView},
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/result",
        handler=_result,
        summary="Read the result of a run, after waiting for it for a while",
        tag="runs",
        right="read",
        query=WaitFor,
        answers={200: ResultView},
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/cancel",
        handler=_cancel,
        summary="Cancel a run; one that has ended stays as it is",
        tag="runs",
        right="run",
        body=CancelRun,
        answers={202: RunView, 200: RunView},
    ),
]
