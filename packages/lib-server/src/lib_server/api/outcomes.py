"""`/v1/unknown-calls`: tool calls that may have had their effect, and what became of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp

from lib.engine import UnknownCall
from lib.errors import NotPending
from lib.events import kinds as k
from lib.events.payloads import fits
from lib_server.api.approvals import agents_of, page_of_runs
from lib_server.bodies import (
    Empty,
    PageOfRuns,
    Settle,
    SettlementView,
    UnknownCallList,
    UnknownCallView,
)
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer


def _view(call: UnknownCall, agent: str) -> UnknownCallView:
    return UnknownCallView(
        run_id=call.run_id,
        agent=agent,
        key=call.key,
        call_id=call.call_id,
        tool=call.name,
        arguments=dict(call.arguments),
        tenant=call.tenant,
        since=call.since,
    )


async def _list(call: Call[PageOfRuns, None]) -> ASGIApp:
    query = call.query
    unknown = call.services.unknown.calls(
        call.store, tenant=call.principal.tenant, after=query.cursor
    )
    found, cursor = await page_of_runs(unknown, query.limit)
    agents = await agents_of(call, found)
    calls = [_view(each, agents[each.run_id]) for each in found]
    return answer(UnknownCallList(calls=calls, next_cursor=cursor))


async def _settle(call: Call[Empty, Settle]) -> ASGIApp:
    run, _ = await call.run()
    key, body, user = call.path("key"), call.body, call.principal.user
    if body.result is not None and not body.happened:
        detail = "expected no result of what has not happened"
        raise Problem("invalid", errors=[("/result", detail)])
    with suppress(NotPending):  # settled before, or never unknown
        await run.settle(key, happened=body.happened, result=body.result, user=user)
    settled = await _settlement(call, run.id, key)
    if settled is None:
        raise Problem("not_pending", "the outcome of no call of this key is unknown")
    if (settled.happened, settled.settled_by) != (body.happened, user):
        facts: dict[str, Any] = {"happened": settled.happened, "settled_by": settled.settled_by}
        raise Problem("already_settled", "the first settlement counts", **facts)
    return answer(settled)


async def _settlement(call: Call[Empty, Settle], run_id: str, key: str) -> SettlementView | None:
    """Return the first settlement of a call of a run, None without one."""
    for event in await call.store.read(run_id):
        is_it = event.kind == k.CALL_SETTLED and fits(event.kind, event.data)
        if is_it and event.data["key"] == key:
            return SettlementView(
                run_id=run_id,
                key=key,
                happened=event.data["happened"],
                settled_by=event.user,
                settled_at=event.at,
            )
    return None


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/unknown-calls",
        handler=_list,
        summary="List the tool calls of all runs whose outcome is unknown",
        tag="unknown calls",
        right="read",
        query=PageOfRuns,
        answers={200: UnknownCallList},
        problems=["invalid_cursor"],
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/unknown-calls/{key:path}",
        handler=_settle,
        summary="Put on record what became of a tool call; the same may be sent again",
        tag="unknown calls",
        right="approve",
        body=Settle,
        answers={200: SettlementView},
        problems=["not_pending", "already_settled"],
    ),
]
