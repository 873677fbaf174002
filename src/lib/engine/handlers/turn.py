"""Turns of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lib._util.json import digest
from lib.engine.core.algorithm import TurnRequest
from lib.engine.core.budget import Budget, grant
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.base import Admission, Call
from lib.events import Event
from lib.events import kinds as k
from lib.llm import ToolSpec


def turn_run_id(session_id: str, key: str) -> str:
    """Return the id of the run that answers a turn; starting it again finds it there."""
    return digest("turn", session_id, key)[:32]


class TurnHandler:
    """Has a run of its own answer each turn of a session; every engine has one."""

    kind = k.TURN_STARTED
    request_type = TurnRequest
    offers: Sequence[ToolSpec] = ()

    def admit(self, request: TurnRequest, admission: Admission) -> PendingEvent:
        """Return the intent to answer a turn, with what its run may spend."""
        ceiling = Budget.from_json(dict(request.budget or {}))
        data: dict[str, Any] = {
            "key": request.key,
            "run_id": turn_run_id(admission.run_id, request.key),
            "algorithm": request.algorithm,
            "upto": admission.upto,
        }
        budget = grant(admission.remaining, ceiling, sharers=admission.sharers).to_json()
        return PendingEvent(k.TURN_STARTED, {**data, "budget": budget} if budget else data)

    async def handle(self, call: Call[TurnRequest]) -> Sequence[PendingEvent]:
        """Start the turn's run unless it is there, and return how it ended."""
        decided, data = call.decided, call.event.data
        result = await call.children.run(
            call.event,
            algorithm=data["algorithm"],
            input=decided.input,
            budget=data.get("budget"),
            user=decided.user,
            upto=data["upto"],
            client_tools=decided.client_tools,
        )
        names = {"key": data["key"], "signal_id": data["key"]}
        return [PendingEvent(k.TURN_COMPLETED, {**names, **result.to_json()})]

    def recover(self, request: Event) -> PendingEvent | None:
        """Wait for the turn's run again: its worker goes on with it."""
        return None
