"""The event: one fact of a run. Nothing else is stored of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class Event:
    """A stored fact. `(run_id, seq)` is its identity; it never changes after the append.

    Attributes:
        run_id: the run whose log holds it.
        seq: its number in that log, from 1, without gaps.
        kind: what happened; the library's own kinds start with `lib.` (see `kinds`).
        data: the payload: plain JSON, defaults left out, unknown keys kept.
        at: when the writer wrote it, in UTC. Not an order: `seq` is.
        tenant: the owner of the run; the same for every event of a run and its children.
        user: the user that caused the event.
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
    """A fact to append; the log adds its `seq` and its tenant."""

    kind: str
    data: dict[str, Any]
    at: datetime
    tenant: str | None = None
    user: str | None = None
