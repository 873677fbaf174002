"""`/healthz`, `/readyz`, `/metrics`, `/v1/openapi.json`, `/docs`: for operators and tools."""

from __future__ import annotations

import json
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import ASGIApp

from lib.errors import StoreError
from lib_server.bodies import Empty, Health, OpenAPI
from lib_server.docs_page import POLICY, docs_page
from lib_server.metrics import MEDIA_TYPE, Reading
from lib_server.problems import Problem
from lib_server.routing import JSON, AnyRoute, Call, Route, answer
from lib_server.waiting import MOST_KEPT

_PROBE = "lib_server/ready"


async def _health(call: Call[Empty, None]) -> ASGIApp:
    status = "draining" if call.services.draining else "ok"
    return answer(Health(status=status, version=call.services.version))


async def _ready(call: Call[Empty, None]) -> ASGIApp:
    call.check_not_draining()
    try:
        await call.engine.store.mark(_PROBE)
    except StoreError:
        raise Problem("unavailable", "the event store does not answer", retry_after_s=1) from None
    return answer(Health(status="ok", version=call.services.version))


async def _openapi(call: Call[Empty, None]) -> ASGIApp:
    document = call.services.openapi(call.request.scope.get("root_path", ""))
    return Response(json.dumps(document), media_type=JSON)


async def _metrics(call: Call[Empty, None]) -> ASGIApp:
    if call.principal.tenant is not None:
        raise Problem("forbidden", "expected credentials of no tenant: the counts are of all")
    headers = {"cache-control": "no-store"}
    text = call.services.metrics.text(*await _waiting(call))
    return Response(text, headers=headers, media_type=MEDIA_TYPE)


async def _waiting(call: Call[Empty, None]) -> list[Reading]:
    """Return how many calls wait for a person; nothing while the store does not answer."""
    count = 0
    try:
        async with aclosing(call.services.approvals.calls(call.store, limit=MOST_KEPT)) as calls:
            async for _ in calls:
                count += 1
    except StoreError:
        return []
    about = "Tool calls that wait for a person, in the whole store."
    return [Reading("approvals_pending", about, "gauge", lambda: {"": count})]


async def _docs(call: Call[Empty, None]) -> ASGIApp:
    root = call.request.scope.get("root_path", "")
    page = docs_page(call.services.openapi(root), document_url=f"{root}/v1/openapi.json")
    headers = {
        "cache-control": "no-store",
        "content-security-policy": POLICY,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return Response(page, headers=headers, media_type="text/html")


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/healthz",
        handler=_health,
        summary="The process lives",
        tag="operations",
        right=None,
        answers={200: Health},
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=_ready,
        summary="The event store answers, and new work is taken",
        tag="operations",
        right=None,
        answers={200: Health},
        problems=["draining", "unavailable"],
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=_metrics,
        summary="Counts of this process, for Prometheus",
        tag="operations",
        right="admin",
        answers={200: None},
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        handler=_openapi,
        summary="The description of all routes, as OpenAPI 3.1 has it",
        tag="operations",
        right=None,
        answers={200: OpenAPI},
    ),
    Route(
        method="GET",
        path="/docs",
        handler=_docs,
        summary="This description for people, which loads nothing",
        tag="operations",
        right=None,
        answers={200: None},
    ),
]
