"""A process is killed while it is observed: what it has done is at every backend, once."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fakes.otlp_receiver import Hang, OTLPReceiver, attributes_of
from fakes.trace_servers import LangfuseServer, LangSmithServer, PhoenixServer
from lib.evals import Score, score_event
from lib.events import Event, SQLiteEventStore
from lib.observe import Span, spans_from_events
from lib.observe.spans import interrupt

sys.path.insert(0, str(Path(__file__).parent))

from observed import CALLS, observed

OBSERVED = Path(__file__).with_name("observed.py")
DIED = "interrupted"


@dataclass
class Backends:
    """Every backend, on sockets that outlive the process which is killed."""

    folder: Path
    env: dict[str, str]
    otel: OTLPReceiver = field(default_factory=lambda: OTLPReceiver(on_repeat="append"))
    langfuse: LangfuseServer = field(default_factory=LangfuseServer)
    langsmith: LangSmithServer = field(default_factory=LangSmithServer)
    phoenix: PhoenixServer = field(default_factory=PhoenixServer)

    @property
    def servers(self) -> dict[str, OTLPReceiver]:
        return {
            "otel": self.otel,
            "langfuse": self.langfuse,
            "langsmith": self.langsmith,
            "phoenix": self.phoenix,
        }

    @property
    def urls(self) -> dict[str, str]:
        return {
            "otel": self.otel.base_url,
            "langfuse": self.langfuse.host,
            "langsmith": self.langsmith.endpoint,
            "phoenix": self.phoenix.url,
        }

    async def lines(self) -> list[dict[str, Any]]:
        """Return what the sink that writes to a file was given."""
        return await asyncio.to_thread(self._lines)

    def _lines(self) -> list[dict[str, Any]]:
        path = self.folder / "spans.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    async def traffic(self) -> list[int]:
        """Return how much has come so far, everywhere."""
        requests = [len(server.requests) for server in self.servers.values()]
        return [*requests, len(await self.lines())]

    @asynccontextmanager
    async def process(self, **options: Any) -> AsyncGenerator[asyncio.subprocess.Process]:
        """Run the agent in a process of its own, and kill it at the end."""
        config = json.dumps({"urls": self.urls, **options})
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(OBSERVED),
            str(self.folder),
            config,
            stdout=asyncio.subprocess.PIPE,
            env=self.env,
        )
        try:
            yield child
        finally:
            child.kill()
            await child.communicate()

    def held(self, name: str) -> Counter[str]:
        """Return how often a backend has each span."""
        return Counter(span.span_id.hex() for span in self.servers[name].spans)

    def root(self, name: str) -> Any:
        """Return the root as a backend has it."""
        (root,) = [span for span in self.servers[name].spans if not span.parent_span_id]
        return root


@asynccontextmanager
async def backends(
    folder: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Backends]:
    some = Backends(folder, env)
    async with AsyncExitStack() as stack:
        for server in some.servers.values():
            await stack.enter_async_context(server)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", some.otel.base_url)
        some.env = {**env, "OTEL_EXPORTER_OTLP_ENDPOINT": some.otel.base_url}
        yield some


@asynccontextmanager
async def store_of(folder: Path) -> AsyncGenerator[SQLiteEventStore]:
    store = SQLiteEventStore(folder / "runs.db", durability="normal")
    await store.setup()
    try:
        yield store
    finally:
        await store.close()


async def log_of(folder: Path) -> list[Event]:
    async with store_of(folder) as store:
        (info,) = await store.runs()
        return await store.read(info.run_id)


async def judge(folder: Path, name: str) -> None:
    """Record a score of the run, from outside of its process."""
    async with store_of(folder) as store:
        (info,) = await store.runs()
        score = Score(name=name, value=0.5)
        event = score_event(score, signal_id=name, now=info.updated_at)
        await store.append(info.run_id, [event], expected=None)


async def line_with(child: asyncio.subprocess.Process, word: str) -> None:
    assert child.stdout is not None
    assert (await child.stdout.readline()).decode() == f"{word}\n"


def closed(spans: list[Span]) -> Counter[str]:
    return Counter(span.span_id for span in spans if span.end is not None)


def due(spans: list[Span], name: str) -> Counter[str]:
    """Return what a backend is to have: one that keeps scores gets no spans of them."""
    keeps_scores = name in ("langfuse", "langsmith", "phoenix")
    return closed([span for span in spans if not (keeps_scores and span.kind == "evaluator")])


def scores_of(some: Backends) -> list[list[str]]:
    """Return the names of the scores that each backend has, once for each time that one came."""
    posts = [call.json() for call in some.langfuse.calls if call.method == "POST"]
    feedback = [
        call.json()["key"]
        for call in some.langsmith.calls
        if (call.method, call.path) == ("POST", "/feedback")
    ]
    notes = [one for call in some.phoenix.calls for one in call.json()["data"]]
    otel = [name.removeprefix("evaluate ") for name in names(some.otel) if "evaluate" in name]
    return [
        sorted(post["name"] for post in posts),
        sorted(feedback),
        sorted(note["name"] for note in notes),
        sorted(otel),
    ]


def names(server: OTLPReceiver) -> list[str]:
    return [span.name for span in server.spans]


def next_process(some: Backends, *, hours: int = 1) -> Any:
    """Open an observer after the process has died, for which nothing has to settle."""
    return observed(some.folder, some.urls, hours=hours, settle_s=0)


@pytest.mark.parametrize("flush", [False, True])
async def test_a_run_killed_in_its_21st_call_is_exported_complete_and_once(
    flush: bool,
    tmp_path: Path,
    unmeasured: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with backends(tmp_path, unmeasured, monkeypatch) as some:
        async with some.process(wait=True, flush=flush) as child:
            await line_with(child, "working")
            await judge(tmp_path, "before")
        await judge(tmp_path, "after")
        async with next_process(some) as (_, observer):
            assert await observer.flush_open() > 0
        before = await some.traffic()
        async with next_process(some) as (_, observer):
            assert await observer.flush_open() == 0
            assert await observer.backfill() == 0

        assert await some.traffic() == before
        await check_interrupted(some)
        assert scores_of(some)[:3] == [["after", "before"]] * 3


async def check_interrupted(some: Backends) -> None:
    log = await log_of(some.folder)
    last = next(event.at for event in reversed(log) if event.kind != "lib.eval.score")
    spans = interrupt(spans_from_events(log), last)
    tools = {span.span_id for span in spans if span.kind == "tool" and span.status == "ok"}
    assert len(tools) == CALLS - 1
    for name in some.servers:
        held = some.held(name)
        assert held == due(spans, name), name
        root = some.root(name)
        assert root.status.code == root.status.STATUS_CODE_ERROR
        assert attributes_of(root)["error.type"] == DIED
    root_id = spans[0].span_id
    ended = Counter(line["id"] for line in await some.lines() if not line["open"])
    assert ended == closed(spans)
    assert [line["error"] for line in await some.lines() if line["id"] == root_id][-1] == DIED


@pytest.mark.parametrize("kept", [False, True])
async def test_the_next_process_exports_what_a_process_killed_during_export_left(
    kept: bool, tmp_path: Path, unmeasured: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backends(tmp_path, unmeasured, monkeypatch) as some:
        for server in some.servers.values():
            server.script = [Hang(keep=kept)]
        async with some.process(wait=False, settle_s=0) as child:
            while not all(server.exports for server in some.servers.values()):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)  # noqa: TID251 - it happens in another process
            assert child.returncode is None
        # Plain OpenTelemetry cannot be queried for what has arrived; nor can the file, which may
        # have been written by a process that died before it knew.
        await next_exports_by_itself(some, unsure={"otel", "file"} if kept else {"file"})


async def test_the_next_process_exports_runs_that_ended_before_a_crash(
    tmp_path: Path, unmeasured: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backends(tmp_path, unmeasured, monkeypatch) as some:
        async with some.process(wait=False, settle_s=60) as child:
            await line_with(child, "done")
            await judge(tmp_path, "before")
        assert await some.traffic() == [0] * 5
        await judge(tmp_path, "after")
        await next_exports_by_itself(some, unsure=set())
        assert scores_of(some)[:3] == [["after", "before"]] * 3


async def next_exports_by_itself(some: Backends, *, unsure: set[str]) -> None:
    """Let the next process do nothing but live for a while, and look at what has come."""
    before: list[int] = []
    for hours in (1, 2):
        async with next_process(some, hours=hours) as (_, observer):
            assert await observer.drain()  # waits for what the process before has left, too
            before = before or await some.traffic()
    assert await some.traffic() == before
    spans = spans_from_events(await log_of(some.folder))
    once = closed(spans)
    assert len(once) == len(spans)
    for name in some.servers:
        wanted = due(spans, name)
        assert some.held(name) == (wanted + wanted if name in unsure else wanted), name
    lines = await lines_by_id(some)
    assert lines == once or ("file" in unsure and lines == once + once)


async def test_a_resumed_run_that_was_exported_as_interrupted_is_corrected_if_possible(
    tmp_path: Path, unmeasured: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backends(tmp_path, unmeasured, monkeypatch) as some:
        async with some.process(wait=True) as child:
            await line_with(child, "working")
        async with next_process(some) as (_, observer):
            await observer.flush_open()
        await check_interrupted(some)
        async with next_process(some, hours=2) as (engine, observer):
            started = await engine.start("go", idempotency_key="k")
            assert (await started.result()).outcome == "COMPLETED"
            await judge(tmp_path, "after")
            assert await observer.drain()
        before = await some.traffic()
        async with next_process(some, hours=3) as (_, observer):
            assert await observer.flush_open() == await observer.backfill() == 0
        assert await some.traffic() == before

        spans = spans_from_events(await log_of(tmp_path))
        for name in some.servers:
            assert some.held(name) == due(spans, name), name  # each once, the root too
            assert attributes_of(some.root(name))["error.type"] == DIED
        corrected = {line["id"]: line["error"] for line in await some.lines()}
        assert corrected == {span.span_id: None for span in spans}
        again = [span_id for span_id, count in (await lines_by_id(some)).items() if count > 1]
        call = next(span for span in spans if span.attributes.get("lib.resumes"))
        assert sorted(again) == sorted([spans[0].span_id, call.span_id])


async def lines_by_id(some: Backends) -> Counter[str]:
    return Counter(line["id"] for line in await some.lines())
