"""Shared by tests of observers: logs of runs, and a sink that keeps every export."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fakes.observed import HandEngine, observed
from lib.events import Event
from lib.events import kinds as k
from lib.observe import Observer, Span
from lib.testing.logs import make_log


@asynccontextmanager
async def observing(
    *sinks: Any, engine: HandEngine | None = None, **options: Any
) -> AsyncGenerator[tuple[HandEngine, Observer]]:
    """Open a store and an observer that does not wait for anything to settle."""
    engine = engine or HandEngine()
    await engine.store.setup()
    async with observed(engine, *sinks, **options) as observer:
        yield engine, observer


def ended(run_id: str, *, child_of: str = "", **more: Any) -> list[Event]:
    above = {"root": child_of, "parent": {"run_id": child_of, "key": "?"}} if child_of else {}
    return make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": [], **above}),
        (1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
        run_id=run_id,
        **more,
    )


def cut_off(run_id: str = "run") -> list[Event]:
    """Return the log of a run that has made one call and makes another."""

    def call(name: str) -> dict[str, Any]:
        return {"key": name, "call_id": name, "name": "search", "args": {}, "effects": "none"}

    return make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
        (1, k.TOOL_REQUESTED, call("one")),
        (2, k.TOOL_COMPLETED, {"key": "one", "call_id": "one", "output": "x"}),
        (3, k.TOOL_REQUESTED, call("two")),
        run_id=run_id,
    )


def names(spans: Sequence[Span]) -> list[str]:
    return [span.run_id for span in spans]


class Recorder:
    """A sink that keeps every export, and does with it what a test says."""

    def __init__(self, then: Callable[[], Any] | None = None) -> None:
        self.exports: list[Sequence[Span]] = []
        self._then = then

    async def export(self, spans: Sequence[Span]) -> None:
        self.exports.append(spans)
        if self._then is not None:
            await self._then()
