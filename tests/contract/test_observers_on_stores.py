"""Observers over every event store: each trace arrives once, from however many processes."""

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from lib._util.clock import SYSTEM_CLOCK
from lib.engine import Engine
from lib.llm import FunctionClient
from lib.observe import Observer, SinkTraits, Span, span_id_of
from lib.testing.agents import make_engine
from lib.testing.event_store import StoreKind

sys.path.insert(0, str(Path(__file__).parent))

from test_event_stores import EVENT_STORES, SERVERS

RUNS = 12


class Backend:
    """Counts the spans that it is sent, and forgets none."""

    traits = SinkTraits(destination="backend")

    def __init__(self) -> None:
        self.spans = Counter[str]()

    async def export(self, spans: Sequence[Span]) -> None:
        self.spans.update(span.span_id for span in spans)

    def roots(self, run_ids: Sequence[str]) -> set[int]:
        return {self.spans[span_id_of(run_id, "run", "")] for run_id in run_ids}


@pytest.fixture(params=list(EVENT_STORES))
def kind(request: pytest.FixtureRequest) -> StoreKind:
    if start := SERVERS.get(request.param):
        start()
    return EVENT_STORES[request.param]


@asynccontextmanager
async def process(
    kind: StoreKind, place: Path, backend: Backend
) -> AsyncGenerator[tuple[Engine, Observer]]:
    store = kind.open(place, SYSTEM_CLOCK)
    async with AsyncExitStack() as stack:
        engine = make_engine(FunctionClient(lambda _: "done"), store=store, lease_s=3600)
        await stack.enter_async_context(engine)
        observer = Observer(engine, backend, settle_s=0)
        yield engine, await stack.enter_async_context(observer)


async def finished_runs(engine: Engine) -> list[str]:
    runs = [await engine.start("go") for _ in range(RUNS)]
    return [(await each.result()).run_id for each in runs]


async def test_every_trace_arrives_once(kind: StoreKind, tmp_path: Path) -> None:
    backend = Backend()

    async with process(kind, tmp_path, backend) as (engine, observer):
        runs = await finished_runs(engine)
        assert await observer.drain()
        assert backend.roots(runs) == {1}


async def test_processes_share_the_traces_and_none_is_sent_twice(
    kind: StoreKind, tmp_path: Path
) -> None:
    backend = Backend()

    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(process(kind, tmp_path, backend))
            for _ in range(2 if kind.shared else 1)
        ]
        runs = [run_id for engine, _ in processes for run_id in await finished_runs(engine)]
        for _, observer in processes:
            assert await observer.drain()
        assert backend.roots(runs) == {1}
