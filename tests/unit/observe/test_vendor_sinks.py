"""Tests the sinks of all vendors, each against a stand-in for its backend."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from fakes.otlp_receiver import redirect
from fakes.trace_servers import (
    LangfuseServer,
    LangSmithServer,
    PhoenixServer,
    TraceServer,
)
from fakes.trace_servers.base import too_many
from lib.llm import ScriptedClient
from lib.observe import Observer, OTelSink, spans_from_events
from lib.testing.agents import make_engine
from lib.testing.logs import store_log, talkative_log

from .vendor_kit import LANGFUSE, LANGSMITH, PHOENIX, SECRET, TRACE, Vendor, judged

AnyVendor = Vendor[Any, Any]


@pytest.fixture(params=["langfuse", "langsmith", "phoenix"])
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AnyVendor:
    for name in ("LANGSMITH_PROJECT", "PHOENIX_API_KEY", "PHOENIX_PROJECT_NAME"):
        monkeypatch.delenv(name, raising=False)
    vendors: dict[str, AnyVendor] = {"langfuse": LANGFUSE, "langsmith": LANGSMITH}
    return vendors.get(request.param, PHOENIX)


# -- refusals ----------------------------------------------------------------------------------


def test_a_redirect_is_no_success(vendor: AnyVendor):
    server = vendor.serve()
    server.script = [redirect("http://127.0.0.1:9/", 302)]

    assert vendor.failure(lambda sink, _: sink.export(TRACE), server=server).permanent


def test_a_rate_limit_carries_retry_after(vendor: AnyVendor):
    server = vendor.serve()
    server.script = [too_many("11")]

    error = vendor.failure(lambda sink, _: sink.export(TRACE), server=server)

    assert (error.retry_after_s, error.permanent) == (11, False)


# -- content -----------------------------------------------------------------------------------


def test_no_content_leaves_the_process_without_being_captured(
    vendor: AnyVendor, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "lib")
    spans = spans_from_events(talkative_log(SECRET))

    server = vendor.served(lambda sink, _: sink.export(spans))

    assert len(server.spans) == len(spans) > 10
    assert SECRET.encode() not in server.received
    assert SECRET not in caplog.text


def test_captured_content_arrives(vendor: AnyVendor):
    spans = spans_from_events(talkative_log(SECRET), capture_content=True)

    server = vendor.served(lambda sink, _: sink.export(spans))

    assert SECRET.encode() in server.received


# -- scores ------------------------------------------------------------------------------------


def langfuse_scores(server: LangfuseServer) -> list[tuple[Any, ...]]:
    held = server.scores.values()
    return [(score["name"], score["value"], score["timestamp"][:10]) for score in held]


def langsmith_scores(server: LangSmithServer) -> list[tuple[Any, ...]]:
    return [(held["key"], held["score"]) for held in server.feedback.values()]


def phoenix_scores(server: PhoenixServer) -> list[tuple[Any, ...]]:
    return [(held["name"], held["result"]) for held in server.annotations.values()]


@pytest.mark.parametrize(
    ("vendor", "scores_of", "expected", "calls"),
    [
        ("langfuse", langfuse_scores, ("quality", 0.5, "2026-01-01"), 1),
        ("langsmith", langsmith_scores, ("quality", 0.5), 2),  # it asks for the project first
        ("phoenix", phoenix_scores, ("quality", {"score": 0.5}), 1),
    ],
    indirect=["vendor"],
)
def test_scores_of_the_log_arrive_once_and_without_what_people_wrote(
    vendor: AnyVendor,
    scores_of: Callable[[TraceServer], list[tuple[Any, ...]]],
    expected: tuple[Any, ...],
    calls: int,
):
    log = talkative_log(SECRET)

    async def work(sink: OTelSink, _: TraceServer) -> None:
        async with make_engine(ScriptedClient([])) as engine:
            await store_log(engine.store, log)
            for _again in range(2):
                async with Observer(engine, sink) as observer:
                    await observer.export_trace(log[0].run_id)

    server = vendor.served(work)

    assert scores_of(server) == [expected]
    assert len(server.calls) == calls
    assert SECRET.encode() not in server.received


# -- what it is given --------------------------------------------------------------------------


def test_it_is_a_sink_of_opentelemetry(vendor: AnyVendor):
    async def work(sink: object, _: TraceServer) -> None:
        assert isinstance(sink, OTelSink)

    vendor.served(work)


async def test_the_callers_client_is_used_and_stays_open(vendor: AnyVendor):
    http = await asyncio.to_thread(httpx2.AsyncClient)
    async with vendor.serve() as server, http:
        sink = vendor.sink(server, http=http)
        await judged(sink, server)
        await sink.aclose()

        assert not http.is_closed
        assert server.connections == 1
