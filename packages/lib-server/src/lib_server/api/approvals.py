"""`/v1/approvals`: tool calls that wait for a person, and decisions about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

from starlette.types import ASGIApp

from lib.engine import Run, WaitingCall
from lib.errors import NotPending, RunNotFound
from lib.events import Event
from lib.events import kinds as k
from lib.events.payloads import fits
from lib_server.bodies import ApprovalList, ApprovalView, Decide, Empty, PageOfRuns
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer


def _view(call: WaitingCall, agent: str) -> ApprovalView:
    return ApprovalView(
        run_id=call.run_id,
        agent=agent,
        key=call.key,
        call_id=call.call_id,
        tool=call.name,
        arguments=dict(call.arguments),
        arguments_digest=call.arguments_digest,
        reason=call.reason,
        tenant=call.tenant,
        since=call.since,
        status="pending",
    )


def approvals_in(log: Iterable[Event]) -> dict[str, ApprovalView]:
    """Return the calls of a run that wait, or have waited, for a person, by key."""
    found: dict[str, ApprovalView] = {}
    agent = ""
    for event in log:
        if not fits(event.kind, event.data):
            continue
        if event.kind == k.RUN_STARTED:
            agent = event.data["algorithm"]
        elif event.kind == k.APPROVAL_REQUESTED:
            found[event.data["key"]] = _view(WaitingCall.of(event), agent)
        elif event.kind == k.RUN_COMPLETED:
            for each in found.values():
                _withdraw(each)
        else:
            _follow(found.get(event.data.get("key", "")), event)
    return found


def _follow(call: ApprovalView | None, event: Event) -> None:
    """Bring a call up to date with an event of its key; the first decision counts."""
    if call is None or call.status != "pending":
        return
    if event.kind == k.APPROVAL_DECIDED:
        call.status = "approved" if event.data["approved"] else "denied"
        call.decided_by, call.decided_at = event.user, event.at
        call.comment = event.data.get("comment", "")
    elif event.kind in (k.TOOL_REQUESTED, *k.RESULTS):
        _withdraw(call)


def _withdraw(call: ApprovalView) -> None:
    if call.status == "pending":
        call.status = "withdrawn"


async def page_of_runs(calls: Any, limit: int) -> tuple[list[Any], str | None]:
    """Return the calls of the first runs that have `limit` together, and the cursor behind them.

    Args:
        calls: an async generator of calls with a `run_id`, run by run.
        limit: how many at least, if there are.

    Raises:
        Problem: `invalid_cursor`.
    """
    found: list[Any] = []
    try:
        async with aclosing(calls):
            async for call in calls:
                if len(found) >= limit and call.run_id != found[-1].run_id:
                    return found, found[-1].run_id
                found.append(call)
    except RunNotFound:
        raise Problem("invalid_cursor", "start the list again without a cursor") from None
    return found, None


async def agents_of(call: Call[Any, Any], found: Iterable[Any]) -> dict[str, str]:
    """Return the agents of the runs of these calls, by run id; "" for one that was erased since."""
    infos = {run_id: await call.store.run(run_id) for run_id in {each.run_id for each in found}}
    return {run_id: "" if info is None else info.algorithm for run_id, info in infos.items()}


# -- handlers --------------------------------------------------------------------------------------


async def _list(call: Call[PageOfRuns, None]) -> ASGIApp:
    query = call.query
    waiting = call.services.approvals.calls(
        call.store, tenant=call.principal.tenant, after=query.cursor
    )
    found, cursor = await page_of_runs(waiting, query.limit)
    agents = await agents_of(call, found)
    approvals = [_view(each, agents[each.run_id]) for each in found]
    return answer(ApprovalList(approvals=approvals, next_cursor=cursor))


async def _of_run(call: Call[Empty, None]) -> ASGIApp:
    _, info = await call.run()
    found = approvals_in(await call.store.read(info.run_id))
    return answer(ApprovalList(approvals=list(found.values()), next_cursor=None))


async def _decide(call: Call[Empty, Decide]) -> ASGIApp:
    run, _ = await call.run()
    return answer(await decide(call, run, call.path("key"), call.body))


async def decide(
    call: Call[Any, Any], run: Run, key: str, body: Decide, *, signal_id: str | None = None
) -> ApprovalView:
    """Decide about a call of a run, and return it.

    Args:
        call: the request.
        run: of the call.
        key: names the call in its run.
        body: the decision.
        signal_id: names the decision in the log; None makes a name.

    Raises:
        Problem: `approval_not_found`, `digest_mismatch`, `already_decided`, `not_pending`.
    """
    found = _found(await call.store.read(run.id), key)
    if body.arguments_digest != found.arguments_digest:
        detail = "look at the call again: its arguments are others than those of the decision"
        raise Problem("digest_mismatch", detail)
    if found.status == "pending":
        await _append(run, key, body, call.principal.user, signal_id)
        found = _found(await call.store.read(run.id), key)
    return _checked(found, body, call.principal.user)


def _found(log: Sequence[Event], key: str) -> ApprovalView:
    found = approvals_in(log).get(key)
    if found is None:
        raise Problem("approval_not_found", "no call of this key waits, or has waited")
    return found


async def _append(
    run: Run, key: str, body: Decide, user: str | None, signal_id: str | None
) -> None:
    signal = run.approve if body.decision == "approve" else run.deny
    try:
        await signal(key, comment=body.comment, user=user, signal_id=signal_id)
    except NotPending:  # decided since
        return


def _checked(found: ApprovalView, body: Decide, user: str | None) -> ApprovalView:
    """Return the call if it was decided as requested; of several decisions the first one counts.

    Raises:
        Problem: `already_decided` or `not_pending`.
    """
    if found.status == "withdrawn":
        raise Problem("not_pending", "the run goes on, or has ended, without a decision")
    wanted = "approved" if body.decision == "approve" else "denied"
    if (found.status, found.decided_by, found.comment) == (wanted, user, body.comment):
        return found
    at = None if found.decided_at is None else found.decided_at.isoformat()
    facts: dict[str, Any] = {
        "decision": found.status,
        "decided_by": found.decided_by,
        "decided_at": at,
    }
    raise Problem("already_decided", "the first decision counts", **facts)


_OF_RUN = "/v1/runs/{run_id}/approvals"

ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/approvals",
        handler=_list,
        summary="List the tool calls of all open runs that wait for a person",
        tag="approvals",
        right="read",
        query=PageOfRuns,
        answers={200: ApprovalList},
        problems=["invalid_cursor"],
    ),
    Route(
        method="GET",
        path=_OF_RUN,
        handler=_of_run,
        summary="List the tool calls of a run that wait, or have waited, for a person",
        tag="approvals",
        right="read",
        answers={200: ApprovalList},
        problems=["run_not_found"],
    ),
    Route(
        method="POST",
        path=f"{_OF_RUN}/{{key:path}}",
        handler=_decide,
        summary="Approve or deny a tool call; the same decision may be sent again",
        tag="approvals",
        right="approve",
        body=Decide,
        answers={200: ApprovalView},
        problems=[
            "run_not_found",
            "approval_not_found",
            "digest_mismatch",
            "already_decided",
            "not_pending",
        ],
    ),
]
