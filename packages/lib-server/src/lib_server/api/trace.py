"""`/v1/runs/{run_id}/trace`: the trace that a run belongs to, as data or as a page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response
from starlette.types import ASGIApp

from lib.events import RunInfo, RunQuery
from lib_server.bodies import Empty, TraceView
from lib_server.problems import Problem
from lib_server.routing import JSON, AnyRoute, Call, Route

if TYPE_CHECKING:
    from lib.evals import Score
    from lib.observe.trace import RunTrace

MOST_EVENTS: Final = 100_000
_CHARS: Final = 20_000
"""Of each piece of content."""

_PAGE_HEADERS: Final = {
    "cache-control": "no-store",
    "content-disposition": 'attachment; filename="trace.html"',
    "x-content-type-options": "nosniff",
}


async def _trace(call: Call[Empty, None]) -> ASGIApp:
    _, info = await call.run()
    runs = await _runs(call, info)
    if "text/html" in call.request.headers.get("accept", ""):
        page = await asyncio.to_thread(_page, info.root_id, runs)
        return Response(page, headers=_PAGE_HEADERS, media_type="text/html; charset=utf-8")
    content = await asyncio.to_thread(_json, runs)
    return Response(content, headers={"cache-control": "no-store"}, media_type=JSON)


async def _runs(call: Call[Empty, None], info: RunInfo) -> Sequence[RunTrace]:
    """Return the runs of a trace, parents first.

    Raises:
        Problem: `too_large` or `run_not_found`.
    """
    found = await call.store.runs(RunQuery(root_id=info.root_id))
    events = sum(each.head for each in found)
    if events > MOST_EVENTS:
        detail = f"the trace has {events} events, above {MOST_EVENTS}: lib trace draws it"
        raise Problem("too_large", detail)
    # imported late, as it takes a while: servers that draw no trace start sooner
    trace: Any = await asyncio.to_thread(import_module, "lib.observe.trace")
    runs = await trace.read_trace(
        call.store,
        info.root_id,
        dead_at=call.engine.clock.now(),
        capture=trace.Capture(content=True, limit=_CHARS),
        wanted=_every_run,
    )
    if not runs:
        raise Problem("run_not_found", "no run has this id")
    return runs


def _every_run(_info: RunInfo, _dead: bool) -> bool:
    return True


def _scores(runs: Sequence[RunTrace]) -> dict[str, list[Score]]:
    scores: dict[str, list[Score]] = {}
    for run in runs:
        for logged in run.scores:
            scores.setdefault(logged.span_id, []).append(logged.score)
    return scores


def _json(runs: Sequence[RunTrace]) -> str:
    document: Any = import_module("lib.observe.view.page.document")
    data = document.trace_data([span for run in runs for span in run.spans], _scores(runs))
    return json.dumps({**data, "content": True}, separators=(",", ":"))


def _page(root_id: str, runs: Sequence[RunTrace]) -> str:
    document: Any = import_module("lib.observe.view.page.document")
    spans = [span for run in runs for span in run.spans]
    page = document.Page(run_id=root_id, spans=spans, content=True, scores=_scores(runs))
    written: str = document.render_page(page)
    return written


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/runs/{run_id}/trace",
        handler=_trace,
        summary="Read the trace of a run as data; as a page that needs nothing else with "
        "`Accept: text/html`",
        tag="runs",
        right="read",
        answers={200: TraceView},
        problems=["too_large"],
    ),
]
