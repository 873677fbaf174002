"""The route table: every method of every path that the server has."""

from __future__ import annotations

from typing import Final

from lib_server.api import agents, events, health, runs
from lib_server.routing import AnyRoute

ROUTES: Final[tuple[AnyRoute, ...]] = (
    *agents.ROUTES,
    *runs.ROUTES,
    *events.ROUTES,
    *health.ROUTES,
)
