"""`/v1/runs/{run_id}/events`: the log of a run, as a page of JSON or as a stream."""

from __future__ import annotations

import json
import re

from starlette.responses import Response
from starlette.types import ASGIApp

from lib_server.bodies import EventPage, EventQuery
from lib_server.channels import event_json
from lib_server.problems import Problem
from lib_server.routing import JSON, AnyRoute, Call, Header, Route, no_content
from lib_server.sse import STREAM_EVENTS, RunStream

_PLACE = re.compile("[0-9]{0,15}")


async def _events(call: Call[EventQuery, None]) -> ASGIApp:
    _, info = await call.run()
    after = _after(call)
    if "text/event-stream" not in call.request.headers.get("accept", ""):
        events = await call.store.read(info.run_id, after=after, limit=call.query.limit)
        page = {"run_id": info.run_id, "events": [*map(event_json, events)], "head": info.head}
        headers = {"cache-control": "no-store"}
        return Response(json.dumps(page), headers=headers, media_type=JSON)
    if info.status == "closed" and after == info.head:
        return no_content()
    services = call.services
    services.quotas.check_streams(call.principal)
    stream = RunStream(
        call.store,
        info,
        after=after,
        channels=services.channels,
        limits=services.limits,
        recheck=call.recheck(),
    )
    return services.quotas.counted(call.principal, stream)


def _after(call: Call[EventQuery, None]) -> int:
    """Return the place behind which to begin; what a client resumes by comes first."""
    header = call.request.headers.get("last-event-id", "")
    if not _PLACE.fullmatch(header):
        raise Problem("malformed", "expected the id of an event as Last-Event-ID")
    return int(header) if header else call.query.after or 0


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/runs/{run_id}/events",
        handler=_events,
        summary="Read the log of a run; as a stream with `Accept: text/event-stream`",
        tag="events",
        right="read",
        query=EventQuery,
        answers={200: EventPage, 204: None},
        problems=["stream_cap"],
        headers={
            "Last-Event-ID": Header(
                "of a stream that is resumed: begin behind this event", _PLACE.pattern
            )
        },
        events=STREAM_EVENTS,
    ),
]
