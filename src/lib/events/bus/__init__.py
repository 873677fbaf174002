"""The bus: carries the events of all runs to groups of handlers, in the order of their commits."""

from __future__ import annotations

from lib.events.bus.bus import Bus
from lib.events.bus.consumer import Handler
from lib.events.bus.dead_letters import DeadLetter

__all__ = ["Bus", "DeadLetter", "Handler"]
