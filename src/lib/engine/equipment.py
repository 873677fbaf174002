"""What an engine lends to the drivers of its runs."""

from __future__ import annotations

from dataclasses import dataclass

from lib._util.clock import Clock
from lib.engine.admission import Handlers
from lib.engine.attachments import HeldBlobs
from lib.engine.derived import Nursery
from lib.engine.redaction import Redaction
from lib.engine.states import States
from lib.events import EventStore
from lib.tools import Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What an engine lends to the drivers of its runs."""

    store: EventStore
    states: States
    handlers: Handlers
    engine: Nursery
    blobs: HeldBlobs | None
    redacted: Redaction
    clock: Clock
    worker: str
    lease_s: float
    grace_s: float
    deps: Deps
