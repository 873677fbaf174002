"""The route table: every method of every path that the server has."""

from __future__ import annotations

from typing import Final

from lib_server.api import (
    agents,
    approvals,
    blobs,
    events,
    health,
    keys,
    me,
    outcomes,
    runs,
    scores,
    sessions,
    spend,
    trace,
)
from lib_server.frontends import agui, vercel
from lib_server.mcp import metadata
from lib_server.mcp import route as mcp
from lib_server.openai import chat, responses
from lib_server.routing import AnyRoute

ROUTES: Final[tuple[AnyRoute, ...]] = (
    *agents.ROUTES,
    *runs.ROUTES,
    *events.ROUTES,
    *trace.ROUTES,
    *approvals.ROUTES,
    *outcomes.ROUTES,
    *scores.ROUTES,
    *sessions.ROUTES,
    *blobs.ROUTES,
    *chat.ROUTES,
    *responses.ROUTES,
    *vercel.ROUTES,
    *agui.ROUTES,
    *spend.ROUTES,
    *me.ROUTES,
    *keys.ROUTES,
    *mcp.ROUTES,
    *metadata.ROUTES,
    *health.ROUTES,
)
