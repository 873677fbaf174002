"""Shared by tests of deliveries: an engine with judged runs, and a backend in trouble."""

from collections.abc import Callable, Sequence
from typing import Any

from fakes.observed import HandEngine, within
from lib.evals import Score, score_event
from lib.events import Event
from lib.events import kinds as k
from lib.observe import SinkTraits, Span
from lib.testing.logs import at, make_log

CALL: dict[str, Any] = {"key": "t", "call_id": "c", "name": "n", "args": {}, "effects": "none"}


class Engine(HandEngine):
    """An engine whose runs are judged."""

    async def scored(self, run_id: str, value: float | str, **more: Any) -> None:
        """Give a run one score, in number or word."""
        score = Score(name="good", value=value, comment="a secret", meta={"by": "a secret"})
        event = score_event(score, signal_id=f"{run_id}/{value}", now=at(90), **more)
        await self.store.append(run_id, [event], expected=None)

    async def judged(self, run_id: str, *names: str) -> None:
        """Give a run full marks for each of these."""
        for name in names:
            event = score_event(Score(name=name, value=1), signal_id=name, now=at(90))
            await self.store.append(run_id, [event], expected=None)


class Backend:
    """A backend that keeps its spans when processes die, and the sink in front of it.

    Each export meets the next trouble, if there is any left: an error, or what a test does.
    """

    def __init__(self, *trouble: Exception | Callable[[], Any], **traits: Any) -> None:
        self.exports: list[list[str]] = []
        self.spans: list[Span] = []
        self.trouble: list[Exception | Callable[[], Any]] = list(trouble)
        declared: dict[str, Any] = {"destination": "backend", **traits}
        self.traits = SinkTraits(**declared)

    async def export(self, spans: Sequence[Span]) -> None:
        self.exports.append([span.run_id for span in spans])
        if self.trouble:
            trouble = self.trouble.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            await trouble()
        self.spans += spans

    def ids(self) -> list[str]:
        return [span.span_id for span in self.spans]


class QueryableBackend(Backend):
    """A backend that returns what it has."""

    async def stored_span_ids(self, trace_id: str) -> frozenset[str]:
        return frozenset(span.span_id for span in self.spans if span.trace_id == trace_id)


def begun(run_id: str = "run") -> list[Event]:
    return make_log((0, k.RUN_STARTED, {"algorithm": "a", "input": []}), run_id=run_id)


def called(run_id: str = "run") -> list[Event]:
    return make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
        (1, k.TOOL_REQUESTED, CALL),
        (2, k.TOOL_COMPLETED, {"key": "t", "call_id": "c", "output": "x"}),
        run_id=run_id,
    )


def main(body: Callable[[Engine], Any], engine: Engine | None = None) -> Any:
    return within(engine or Engine(), body)
