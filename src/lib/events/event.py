"""The event: one fact of a run, and the only thing that is ever stored of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class Event:
    """A stored fact. `(run_id, seq)` is its identity; nobody changes it after the append.

    Attributes:
        run_id: the run whose log holds it.
        seq: its place in that log, from 1, without holes.
        kind: what happened; the library's own kinds start with `lib.` (see `kinds`).
        data: the payload: plain JSON, defaults left out, unknown keys kept.
        at: when the writer wrote it, in UTC. Not an order: `seq` is.
        tenant: who owns the run; the same for every event of a run and its children.
        user: who caused the event.
    """

    run_id: str
    seq: int
    kind: str
    data: dict[str, Any]
    at: datetime
    tenant: str | None = None
    user: str | None = None


@dataclass(slots=True)
class NewEvent:
    """A fact on its way into a log, which gives it its `seq` and its tenant."""

    kind: str
    data: dict[str, Any]
    at: datetime
    tenant: str | None = None
    user: str | None = None
