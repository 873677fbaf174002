"""Spans exported per second and per CPU second beside OpenTelemetry's exporter, in turns.

    make bench ARGS=export
    make bench ARGS="export --spans 5000 --rounds 3"

A span is a model call with 17 attributes, about 640 bytes on the wire; a big one also carries two
texts of 2 kB. The backend is a process of its own, whose time is not counted; what arrived is asked
of it in the end.

    lib           `Span`s become attributes by the dialect of OpenTelemetry's conventions, are
                  encoded, compressed and posted on the event loop
    lib ready     the same with attributes that are made before the clock starts
    lib sink      the same as lib through an `OTelSink`, which is what applications have
    otel          finished spans with these attributes, made before the clock starts, go through a
                  BatchSpanProcessor to the exporter, in its thread, as it comes (not compressed)
    otel gzip     the same, compressed
    otel tracer   the same as otel with spans that a tracer starts and ends

The burst: so many spans end at once while a task of the same event loop wants to run every
millisecond, and the backend takes its time for each request. Late is how much later than asked
that task runs, while spans are on their way.

The backfill: an observer finds runs in a store, reads their logs, derives their spans and exports
them through an `OTelSink`; 20,000 spans in one run, and in 200 runs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from peers.export.backend import Backend
from peers.export.exporters import BATCH, PEERS, RESOURCE

from lib._util.clock import SYSTEM_CLOCK
from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.events.bus import Bus
from lib.observe import Observer, OTelSink, Span, span_id_of, trace_id_of
from lib.observe.dialect import AttributeValue, Dialect
from lib.observe.dialects import GENAI
from lib.observe.otlp import OTLPSender
from lib.testing.logs import make_log, store_log

TICK_S = 0.001
START_DATA: dict[str, Any] = {"algorithm": "a", "input": []}
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORDS = "the order of a customer was shipped on monday and arrives in two or three days"


# -- the spans ---------------------------------------------------------------------------------


def make_spans(count: int, *, big: bool) -> list[Span]:
    return [make_span(number, big=big) for number in range(count)]


def make_span(number: int, *, big: bool) -> Span:
    run_id = f"run-{number // 20}"
    start = START + timedelta(milliseconds=number)
    span = Span(
        trace_id=trace_id_of(run_id),
        span_id=span_id_of(run_id, "llm", str(number)),
        parent_id=span_id_of(run_id, "run", ""),
        name="chat gpt-4.1-mini",
        kind="llm",
        start=start,
        end=start + timedelta(seconds=1),
        run_id=run_id,
        tenant="acme",
        user=f"user-{number % 50}",
        attributes={
            "gen_ai.request.max_tokens": 4096,
            "gen_ai.request.model": "gpt-4.1-mini",
            "gen_ai.request.temperature": 0.7,
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.response.id": f"resp-{number}",
            "gen_ai.response.model": "gpt-4.1-mini-2025-04-14",
            "gen_ai.usage.input_tokens": 1200 + number % 999,
            "gen_ai.usage.output_tokens": 30 + number % 99,
            "lib.attempts": 1,
            "lib.cost.usd": 0.00001 * number,
        },
    )
    if not big:
        return span
    question = [{"role": "user", "parts": [{"type": "text", "text": prose(number)}]}]
    return replace(span, input=question, output=prose(number + 1))


def prose(seed: int) -> str:
    """Return 2 kB of words that do not come in the same order every time."""
    words = WORDS.split()
    return " ".join(words[(seed * 7 + n * n) % len(words)] + str(n % 13) for n in range(350))[:2000]


# -- the exporters -----------------------------------------------------------------------------


class Nothing:
    """Sends nothing for a second: how late the task is on this machine anyway."""

    def __init__(self, url: str, spans: Sequence[Span], *, queue: int | None) -> None:
        self.spans = spans

    async def export(self) -> None:
        await asyncio.sleep(1)  # noqa: TID251 - what it is for

    async def close(self) -> None:
        """Close nothing."""


class Ours:
    dialect: Dialect = GENAI

    def __init__(self, url: str, spans: Sequence[Span], *, queue: int | None) -> None:
        self.spans = spans
        self.sender = OTLPSender(url, headers={}, batch_size=BATCH)

    async def export(self) -> None:
        await self.sender.send(self.spans, dialect=self.dialect, resource=RESOURCE)

    async def close(self) -> None:
        await self.sender.aclose()


class Ready(Ours):
    """Attributes are made before the clock starts, as OpenTelemetry's are."""

    name = "ready"

    def __init__(self, url: str, spans: Sequence[Span], *, queue: int | None) -> None:
        super().__init__(url, spans, queue=queue)
        self.attributes = {span.span_id: GENAI.attributes(span) for span in spans}
        self.dialect = self

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        return self.attributes[span.span_id]


class Whole(Ours):
    """Goes through a sink; all spans are of one trace and know what it is called."""

    def __init__(self, url: str, spans: Sequence[Span], *, queue: int | None) -> None:
        super().__init__(url, spans, queue=queue)
        facts = {"lib.trace.name": "bench", "session.id": "s"}
        self.spans = [replace(span, trace=facts) for span in spans]
        self.sink = OTelSink(self.sender, service_name="bench")

    async def export(self) -> None:
        await self.sink.export(self.spans)

    async def close(self) -> None:
        await self.sink.aclose()


EXPORTERS: dict[str, Callable[..., Any]] = {
    "lib": Ours,
    "lib ready": Ready,
    "lib sink": Whole,
    **PEERS,
}


# -- measuring ---------------------------------------------------------------------------------


async def lateness(of: Any) -> list[float]:
    """Return by how many milliseconds a ticking task ran late during an export, sorted."""
    late: list[float] = []
    ready = asyncio.Event()

    async def tick() -> None:
        ready.set()
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)  # noqa: TID251 - what is measured
            late.append((time.perf_counter() - began - TICK_S) * 1000)

    ticking = asyncio.create_task(tick())
    await ready.wait()
    await of.export()
    ticking.cancel()
    return sorted(late)


async def rate(name: str, backend: Backend, spans: Sequence[Span]) -> dict[str, float]:
    exporter = EXPORTERS[name](backend.url, spans, queue=len(spans) + 1)
    gc.collect()
    wall, busy = time.perf_counter(), time.process_time()
    await exporter.export()
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    await exporter.close()
    answer = backend.ask("/seen")
    assert answer["spans"] == len(spans), (name, answer)
    return {
        "rate": len(spans) / wall,
        "cpu": busy / len(spans) * 1000,
        "bytes": answer["bytes"] / len(spans),
    }


async def burst(name: str, backend: Backend, spans: Sequence[Span]) -> tuple[list[float], int]:
    exporter = EXPORTERS.get(name, Nothing)(backend.url, spans, queue=None)
    whole, exporter.spans = exporter.spans, exporter.spans[:1]
    await exporter.export()  # which opens the connection
    backend.ask("/seen")
    exporter.spans = whole
    gc.collect()
    late = await lateness(exporter)
    await exporter.close()
    return late, len(spans) - backend.ask("/seen")["spans"]


def compare(backend: Backend, count: int, rounds: int, names: Sequence[str]) -> None:
    for big in (False, True):
        spans = make_spans(count, big=big)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for name in names:
            asyncio.run(rate(name, backend, spans[:BATCH]))  # warm up
        for _ in range(rounds):
            for name in names:
                found[name].append(asyncio.run(rate(name, backend, spans)))
        kind = "big (two texts of 2 kB)" if big else "17 attributes"
        print(f"\n{count:,} spans, {kind}: medians of {rounds} rounds")
        print(f"  {'':11} {'spans/s':>9} {'CPU s per 1,000':>16} {'bytes sent':>11}")
        for name in names:
            one = {key: statistics.median(r[key] for r in found[name]) for key in found[name][0]}
            print(f"  {name:11} {one['rate']:9,.0f} {one['cpu']:16.4f} {one['bytes']:11,.0f}")


def bursts(
    backend: Backend, count: int, delays_ms: Sequence[int], names: Sequence[str], *, big: bool
) -> None:
    spans = make_spans(count, big=big)
    for delay in delays_ms:
        backend.ask(f"/delay/{delay / 1000}")
        print(f"\na burst of {count:,}{' big' * big} spans, the backend takes {delay} ms a request")
        print(f"  {'':11} {'lost':>8} {'late ms: p50':>13} {'p99':>7} {'most':>7}")
        for name in ("(nothing)", *names):
            late, lost = asyncio.run(burst(name, backend, spans))
            p50, p99 = (late[int(len(late) * share)] for share in (0.5, 0.99))
            lost_text = "" if name == "(nothing)" else f"{lost:,}"
            print(f"  {name:11} {lost_text:>8} {p50:13.1f} {p99:7.1f} {late[-1]:7.1f}")


class Backfill:
    """An observer that finds runs of so many tool calls, none of which it has exported."""

    def __init__(self, url: str) -> None:
        self.clock = SYSTEM_CLOCK
        self.store = MemoryEventStore(clock=self.clock)
        self.bus = Bus(self.store)
        self.sink = OTelSink(OTLPSender(url, headers={}, batch_size=BATCH))
        self.took_s = 0.0

    async def fill(self, runs: int, calls: int) -> None:
        await self.store.setup()
        for number in range(runs):
            await store_log(self.store, make_log(*usage_rows(calls), run_id=f"run-{number}"))

    async def export(self) -> None:
        began = time.perf_counter()
        await self.observer.backfill()
        self.took_s = time.perf_counter() - began

    async def lateness(self) -> list[float]:
        async with Observer(self, [self.sink]) as self.observer:
            gc.collect()
            return await lateness(self)


def usage_rows(calls: int) -> list[tuple[float, str, dict[str, Any]]]:
    """Return the events of a run with so many calls of tools."""
    events: list[tuple[float, str, dict[str, Any]]] = [(0, k.RUN_STARTED, START_DATA)]
    for number in range(calls):
        call = {"key": f"t{number}", "call_id": f"c{number}"}
        events.append((1, k.TOOL_REQUESTED, {**call, "name": "x", "args": {}, "effects": "none"}))
        events.append((2, k.TOOL_COMPLETED, {**call, "output": "o"}))
    return [*events, (3, k.RUN_COMPLETED, {"outcome": "COMPLETED"})]


def backfills(backend: Backend, count: int) -> None:
    backend.ask("/delay/0")
    print(f"\na backfill of {count:,} spans by an observer")
    print(f"  {'':24} {'spans/s':>9} {'late ms: p50':>13} {'p99':>7} {'most':>7}")
    for runs in (1, max(count // 100, 1)):

        async def work(runs: int = runs) -> tuple[list[float], float]:
            backfill = Backfill(backend.url)
            await backfill.fill(runs, count // runs)
            late = await backfill.lateness()
            await backfill.sink.aclose()
            return late, backfill.took_s

        late, took_s = asyncio.run(work())
        spans = runs * (count // runs + 1)
        held = backend.ask("/seen")["spans"]
        assert held == spans, (held, spans)
        p50, p99 = (late[int(len(late) * share)] for share in (0.5, 0.99))
        name = f"{runs:,} runs of {spans // runs:,} spans"
        print(f"  {name:24} {spans / took_s:9,.0f} {p50:13.1f} {p99:7.1f} {late[-1]:7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delays-ms", type=int, nargs="*", default=[0, 20, 200])
    parser.add_argument("--exporters", nargs="*", default=list(EXPORTERS), choices=list(EXPORTERS))
    arguments = parser.parse_args()
    with Backend() as backend:
        compare(backend, arguments.spans, arguments.rounds, arguments.exporters)
        for big in (False, True):
            bursts(backend, arguments.spans, arguments.delays_ms, arguments.exporters, big=big)
        backfills(backend, arguments.spans)


if __name__ == "__main__":
    main()
