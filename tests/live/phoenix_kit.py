"""Shared by tests of a real Arize Phoenix: a sink and what the server says, and logs to send."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.observe import Span, spans_from_events
from lib.observe.sinks.phoenix import PhoenixSink
from lib.testing.agents import make_engine
from lib.testing.logs import make_log
from lib.tools import tool

URL = os.environ.get("LIB_TEST_PHOENIX_URL", "")
KEY = os.environ.get("LIB_TEST_PHOENIX_KEY")
SECRET = "swordfish"

TRACE = """query($id: String!) { getTraceByOtelId(traceId: $id) {
    numSpans startTime endTime session { sessionId }
    rootSpan { spanId name statusCode endTime cumulativeTokenCountTotal } } }"""


@dataclass
class Phoenix:
    """A sink, and what the server says through its own API."""

    project: str
    http: httpx2.AsyncClient
    sinks: list[PhoenixSink] = field(default_factory=list[PhoenixSink])

    def sink(self, **more: Any) -> PhoenixSink:
        settings: dict[str, Any] = {"api_key": KEY, **more}
        self.sinks.append(PhoenixSink(f"{URL}/v1/traces", self.project, **settings))
        return self.sinks[-1]

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.http.get(f"/v1/projects/{self.project}/{path}", params=query)
        return answer.raise_for_status().json()["data"] if answer.status_code != 404 else []

    async def spans(self, trace_id: str, *, count: int) -> dict[str, Any]:
        """Return the spans of a trace by id, once there are so many."""

        async def look() -> dict[str, Any]:
            found = await self.get("spans", trace_id=trace_id, limit=1000)
            return {span["context"]["span_id"]: span for span in found}

        return await until(look, lambda found: len(found) >= count)

    async def trace(self, trace_id: str) -> dict[str, Any]:
        body = {"query": TRACE, "variables": {"id": trace_id}}
        answer = await self.http.post("/graphql", json=body)
        return answer.raise_for_status().json()["data"]["getTraceByOtelId"]

    async def annotations(self, *span_ids: str) -> list[dict[str, Any]]:
        return await self.get("span_annotations", span_ids=list(span_ids), limit=100)


async def until(look: Callable[[], Awaitable[Any]], enough: Callable[[Any], bool]) -> Any:
    """Return what is seen as soon as it is enough; the test's time-out is the limit."""
    while not enough(seen := await look()):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.1)  # noqa: TID251 - a real server takes real time
    return seen


@asynccontextmanager
async def phoenix():
    headers = {"authorization": f"Bearer {KEY}"} if KEY else {}
    # In a thread, since it reads certificates.
    made = await asyncio.to_thread(httpx2.AsyncClient, base_url=URL, headers=headers, timeout=30)
    async with made as http:
        opened = Phoenix(f"lib-{secrets.token_hex(4)}", http)
        yield opened
        for sink in opened.sinks:
            await sink.aclose()


def unique(name: str) -> str:
    return f"{name}-{secrets.token_hex(8)}"


async def agent_spans(**options: Any) -> list[Span]:
    """Return the spans of a real run: two model calls, a tool that works and one that fails."""

    @tool(effects="none")
    async def weather(city: str) -> str:
        """Ask for the weather."""
        if city == "Atlantis":
            raise ValueError(f"no such city, and {SECRET}")
        return f"sunny in {city}, {SECRET}"

    calls = [ToolCall(f"c{n}", "weather", {"city": city}) for n, city in enumerate(CITIES)]
    async with make_engine(ScriptedClient([Reply(tuple(calls)), SECRET]), weather) as engine:
        started = await engine.start(f"How is the weather? {SECRET}")
        await started.result()
        return spans_from_events(await engine.store.read(started.id), **options)


CITIES = ("Bonn", "Atlantis")
START = {"algorithm": "react", "input": [{"role": "user", "content": SECRET}]}
USAGE = {"input_tokens": 100, "output_tokens": 20}
REPLY = {"parts": [{"type": "text", "text": SECRET}], "model": "m-1", "usage": USAGE}


def one_call(run_id: str, *, seconds: float, end: bool = True, **started: Any) -> list[Any]:
    """Return the log of a run with one model call, with or without an end."""
    return make_log(
        (seconds, k.RUN_STARTED, {**START, **started}),
        (seconds + 1, k.LLM_REQUESTED, {"key": "llm/1", "upto": 1, "digest": "d"}),
        (seconds + 2, k.LLM_COMPLETED, {"key": "llm/1", "reply": REPLY}),
        *[(seconds + 3, k.RUN_COMPLETED, {"outcome": "COMPLETED", "output": SECRET})][: int(end)],
        run_id=run_id,
    )


def shown(spans: Sequence[Span]) -> dict[str, tuple[str, str | None]]:
    return {span.span_id: (span.name, span.parent_id) for span in spans}


def stored(found: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {key: (span["name"], span["parent_id"] or None) for key, span in found.items()}
