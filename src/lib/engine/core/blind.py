"""A fold that asks no algorithm: what any run has spent, what is open in it, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lib.engine.core.algorithm import Algorithm, Wait
from lib.events import Event
from lib.llm import Message


class Blind:
    """Stands in for an algorithm that cannot be asked: it is not here, or it fails."""

    name = ""

    def config(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> None:
        """Return nothing."""

    def evolve(self, state: None, event: Event) -> None:
        """Return nothing."""

    def decide(self, state: None) -> Wait:
        """Return that there is nothing to ask for."""
        return Wait()


BLIND: Final[Algorithm[None]] = Blind()
