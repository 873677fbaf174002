"""The world of `test_observer_machine.py`: backends, processes, and logs that grow.

A "process" is an observer with a bus of its own, whose tasks are known and die together; from then
on it reaches neither store nor backend.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal, cast

from lib.errors import ExportError
from lib.evals import Score
from lib.events import Event, EventStore, MemoryEventStore, NewEvent, RunInfo
from lib.events import kinds as k
from lib.events.bus import Bus
from lib.observe import Observer, SinkTraits, Span, spans_from_events
from lib.testing.clock import ManualClock

from .process_kit import Mortal, SlowStore

MARKER = "hunter2-swordfish"
GROUP = "machine"
SINK_TIMEOUT_S = 30.0

ScoreKey = tuple[str, str, str, Any, Any]
"""A score as a backend knows it: trace, span, name, value and time."""


# -- backends ----------------------------------------------------------------------------------


class Backend:
    """The backend of a sink, which outlives every process."""

    def __init__(self, name: str, updates: Literal["replace", "first"], *, knows: bool) -> None:
        self.updates: Literal["replace", "first"] = updates
        self.name, self.knows = name, knows
        self.held: dict[str, list[Span]] = {}
        self.scores = Counter[ScoreKey]()
        self.script: list[str] = []
        self.refused: set[str] = set()
        self.ever_refused: set[str] = set()
        self.calls = 0

    async def meet(self, action: Callable[[], None]) -> None:
        """Do the action, or what the script says instead."""
        self.calls += 1
        word = self.script.pop(0) if self.script else "well"
        if word.endswith("after"):
            action()
        match word.partition(" ")[0]:
            case "fails":
                raise ExportError("no")
            case "asks":
                raise ExportError("later", retry_after_s=7)
            case "explodes":
                raise ZeroDivisionError
            case "hangs":
                await asyncio.Event().wait()
            case _:
                action()

    def take(self, spans: Sequence[Span]) -> None:
        assert MARKER not in repr(spans)
        for span in spans:
            versions = self.held.setdefault(span.span_id, [])
            if self.updates == "replace":
                versions[:] = [span]
            elif self.knows or not versions:
                versions.append(span)

    def judge(self, trace_id: str, span_id: str, scores: Sequence[Score]) -> None:
        assert MARKER not in repr(scores)
        assert span_id in self.held  # not before what it is of
        for score in scores:
            self.scores[trace_id, span_id, score.name, score.value, score.at] += 1


class Sink:
    """A process's connection to a backend."""

    def __init__(self, backend: Backend, process: Process, at_once: int) -> None:
        self._backend, self._process = backend, process
        self.traits = SinkTraits(
            destination=backend.name, updates=backend.updates, traces_per_export=at_once
        )

    async def export(self, spans: Sequence[Span]) -> None:
        await self._process.breathe()
        if any(span.trace_id in self._backend.refused for span in spans):
            self._backend.ever_refused |= {span.trace_id for span in spans}
            raise ExportError("never", permanent=True)
        await self._backend.meet(lambda: self._backend.take(spans))
        await self._process.breathe()

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        await self._process.breathe()
        assert span_id is not None
        await self._backend.meet(lambda: self._backend.judge(trace_id, span_id, scores))
        await self._process.breathe()


class QueryableSink(Sink):
    """A process's connection to a backend that returns what it has."""

    async def stored_span_ids(self, trace_id: str) -> frozenset[str]:
        await self._process.breathe()
        found = set[str]()
        held = self._backend.held
        await self._backend.meet(
            lambda: found.update(i for i, spans in held.items() if spans[0].trace_id == trace_id)
        )
        return frozenset(found)


# -- processes ---------------------------------------------------------------------------------


class Process(Mortal):
    """An observer and its bus, as one process of many has them."""

    def __init__(
        self,
        store: EventStore,
        backends: Sequence[Backend],
        *,
        clock: ManualClock,
        dice: Random,
        settle_s: float,
        room: int,
        at_once: int,
    ) -> None:
        super().__init__(dice)
        self.clock, self.closing = clock, False
        self.store = cast(EventStore, SlowStore(store, self))
        self.bus = Bus(self.store, clock=clock)
        sinks = [(QueryableSink if one.knows else Sink)(one, self, at_once) for one in backends]
        self.observer = Observer(
            self,
            sinks,
            settle_s=settle_s,
            sink_timeout_s=SINK_TIMEOUT_S,
            max_tracked=room,
            group=GROUP,
        )

    async def close(self) -> None:
        self.closing = True
        await self.observer.__aexit__(None, None, None)
        self._pump.cancel()
        self.alive = False

    async def start(self) -> None:
        self._pump = self.call(self.bus.run())
        await self.observer.__aenter__()


# -- the logs ----------------------------------------------------------------------------------


class Growing:
    """The logs of some traces, which grow by one thing after the other."""

    def __init__(self, store: MemoryEventStore, clock: ManualClock) -> None:
        self.store, self._clock = store, clock
        self.logs: dict[str, list[Event]] = {}
        self.roots: list[str] = []
        self._open: dict[str, list[tuple[str, str]]] = {}
        self._count = 0

    async def info(self, run_id: str) -> RunInfo:
        info = await self.store.run(run_id)
        assert info is not None
        return info

    async def add(self, run_id: str, *entries: tuple[str, dict[str, Any]]) -> None:
        """Append events at the time of the clock."""
        log = self.logs.setdefault(run_id, [])
        events = [NewEvent(kind, data, self._clock.now()) for kind, data in entries]
        log += await self.store.append(run_id, events, expected=len(log))

    def _number(self) -> int:
        self._count += 1
        return self._count

    async def start(self, parent: tuple[str, str] | None = None) -> None:
        run_id = f"run-{self._number()}"
        data: dict[str, Any] = {"algorithm": "a", "input": [{"role": "user", "content": MARKER}]}
        if parent is not None:
            above, key = parent
            root = (await self.info(above)).root_id
            data |= {"root": root, "parent": {"run_id": above, "key": key}}
        else:
            self.roots.append(run_id)
        self._open[run_id] = []
        await self.add(run_id, (k.RUN_STARTED, data))

    async def start_child(self, run_id: str) -> None:
        await self.ask(run_id)
        await self.start((run_id, self._open[run_id][-1][1]))

    async def ask(self, run_id: str) -> None:
        key = f"tool/{self._number()}"
        self._open[run_id].append(("tool", key))
        call = {"key": key, "call_id": key, "name": "look", "args": {"at": MARKER}}
        await self.add(run_id, (k.TOOL_REQUESTED, {**call, "effects": "none"}))

    async def think(self, run_id: str) -> None:
        key = f"llm/{self._number()}"
        self._open[run_id].append(("llm", key))
        await self.add(run_id, (k.LLM_REQUESTED, {"key": key, "upto": 1, "digest": "d"}))

    async def answer(self, run_id: str, *, well: bool) -> None:
        if self._open[run_id]:
            await self.add(run_id, _answer(*self._open[run_id].pop(0), well=well))

    async def resume(self, run_id: str) -> None:
        if await self.store.claim("worker", ttl_s=20, run_id=run_id):
            await self.add(run_id, (k.RUN_RESUMED, {"worker": "worker", "epoch": 2}))

    async def own(self, run_id: str) -> None:
        await self.store.claim("worker", ttl_s=10, run_id=run_id)

    async def end(self, run_id: str, *, well: bool) -> None:
        answers = [_answer(family, key, well=well) for family, key in self._open[run_id]]
        self._open[run_id] = []
        outcome = {"outcome": "COMPLETED" if well else "FAILED", "output": MARKER}
        await self.add(run_id, *answers, (k.RUN_COMPLETED, outcome))

    async def score(self, run_id: str, *, again: bool, of_span: bool) -> None:
        scores = [event.data for event in self.logs[run_id] if event.kind == k.EVAL_SCORE]
        if again and scores:
            await self.add(run_id, (k.EVAL_SCORE, scores[0]))
            return
        name = f"score-{self._number()}"
        data: dict[str, Any] = {"signal_id": name, "name": name, "value": 0.5}
        data |= {"comment": MARKER, "meta": {"why": MARKER}}
        if of_span:
            spans = spans_from_events(self.logs[run_id])
            data["span_id"] = [span for span in spans if span.kind != "evaluator"][-1].span_id
        await self.add(run_id, (k.EVAL_SCORE, data))


def _answer(family: str, key: str, *, well: bool) -> tuple[str, dict[str, Any]]:
    error = {"type": "Error", "message": MARKER}
    parts = [{"type": "text", "text": MARKER}]
    match family, well:
        case "tool", True:
            return k.TOOL_COMPLETED, {"key": key, "call_id": key, "output": MARKER}
        case "tool", False:
            failure = {"reason": "error", "code": "failed", "message": MARKER}
            return k.TOOL_FAILED, {"key": key, "call_id": key, **failure}
        case _, True:
            return k.LLM_COMPLETED, {"key": key, "reply": {"parts": parts}}
        case _:
            return k.LLM_FAILED, {"key": key, "reason": "error", "error": error}
