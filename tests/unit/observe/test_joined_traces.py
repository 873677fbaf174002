"""A run that is started within a span of the application joins that one's trace."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ReceivedSpan
from opentelemetry.sdk.trace import TracerProvider

from fakes.llm_server import API_KEY, ChatServer
from fakes.otlp_receiver import OTLPReceiver, attributes_of
from fakes.team import boss_of, children_of, task, team
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.llm import ChatClient, FunctionClient, Reply, ScriptedClient, ToolCall
from lib.observe import (
    InMemorySink,
    Observer,
    OTelSink,
    RemoteParent,
    Score,
    Span,
    SpanLink,
    span_id_of,
    spans_from_events,
    trace_id_of,
)
from lib.observe.otlp.sender import OTLPSender
from lib.privacy import PatternRedactor
from lib.testing.agents import make_engine
from lib.testing.aio import run
from lib.testing.http import Handler, HTTPServer, Response
from lib.tools import Tool, ToolContext, tool
from lib.tools.builtin import FetchPolicy, http_fetch_tool

from .vendor_kit import LANGFUSE, LANGSMITH, PHOENIX, SCORE, Vendor

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER, STATE = f"00-{TRACE}-{SPAN}-01", "rojo=00f067aa0ba902b7"
TRACER = TracerProvider().get_tracer("application")


class Kept(MemoryEventStore):
    """A store that stays open: the next engine goes on with it."""

    async def close(self) -> None: ...


def below(run_id: str, family: str, key: str) -> str:
    return f"00-{TRACE}-{span_id_of(run_id, family, key)}-01"


async def played(*tools: Any, store: MemoryEventStore | None = None, **start: Any) -> list[Event]:
    calls = [Reply((ToolCall("c", tools[0].name, {}),), stop="tool_calls")] if tools else []
    async with make_engine(ScriptedClient([*calls, "done"]), *tools, store=store) as engine:
        started = await engine.start("go", **start)
        await started.result()
        return await engine.store.read(started.id)


# -- what is on the log ------------------------------------------------------------------------


async def test_the_headers_are_on_the_log():
    log = await played(traceparent=HEADER, tracestate=STATE)

    assert (log[0].data["traceparent"], log[0].data["tracestate"]) == (HEADER, STATE)


@pytest.mark.parametrize("header", ["", "00-nonsense", f"00-{'0' * 32}-{SPAN}-01"])
async def test_a_malformed_header_of_some_client_starts_a_run_without_it(header: str):
    log = await played(traceparent=header, tracestate=STATE)

    assert log[-1].data["outcome"] == "COMPLETED"
    assert log[0].data.keys().isdisjoint({"traceparent", "tracestate"})


async def test_what_is_no_text_is_refused_before_anything_is_kept():
    async def main() -> list[Any]:
        async with make_engine(ScriptedClient(["done"])) as engine:
            for start in (engine.start("go", traceparent=7), engine.start_session(traceparent=7)):  # pyright: ignore[reportArgumentType] - that is the test
                with pytest.raises(TypeError, match="text or None as traceparent"):
                    await start
            return list(await engine.store.runs())

    assert (await main()) == []


async def test_the_active_span_of_opentelemetry_is_taken_unless_the_caller_names_another_or_none():
    with TRACER.start_as_current_span("request") as span:
        taken, named, none = (
            await played(),
            await played(traceparent=HEADER),
            await played(traceparent=""),
        )
    context = span.get_span_context()
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert taken[0].data["traceparent"].startswith(expected)
    assert named[0].data["traceparent"] == HEADER
    assert "traceparent" not in none[0].data
    assert "traceparent" not in (await played())[0].data


async def test_a_start_that_is_repeated_within_another_trace_is_the_same_run():
    async def main() -> list[Event]:
        async with make_engine(ScriptedClient(["done"])) as engine:
            first = await engine.start("go", idempotency_key="k", traceparent=HEADER)
            await first.result()
            other = HEADER.replace(SPAN, "00f067aa0ba902b7")
            again = await engine.start("go", idempotency_key="k", traceparent=other)
            assert again.id == first.id
            return await engine.store.read(first.id)

    assert (await main())[0].data["traceparent"] == HEADER


async def test_a_redactor_keeps_trace_ids_and_redacts_the_trace_state():
    async def main() -> Event:
        redactor = PatternRedactor()
        async with make_engine(ScriptedClient(["done"]), redactor=redactor) as engine:
            digits = "00-41111111111111114111111111111111-4111111111111111-01"
            started = await engine.start(
                "go", traceparent=digits, tracestate="card=4111111111111111"
            )
            await started.result()
            return (await engine.store.read(started.id))[0]

    data = (await main()).data
    assert data["traceparent"] == "00-41111111111111114111111111111111-4111111111111111-01"
    assert "4111111111111111" not in data["tracestate"]


# -- what calls send on ------------------------------------------------------------------------


async def test_model_servers_and_tools_get_the_span_of_their_call():
    seen = list[ToolContext]()

    @tool(effects="none")
    def look(context: ToolContext) -> str:
        """Look around."""
        seen.append(context)
        return "nothing"

    script = [Reply((ToolCall("c", "look", {}),), stop="tool_calls"), "done"]
    async with ChatServer(script) as server:
        client = ChatClient("m", base_url=server.base_url, api_key=API_KEY)
        async with client, make_engine(client, look) as engine:
            started = await engine.start("go", traceparent=HEADER, tracestate=STATE)
            await started.result()
            log = await engine.store.read(started.id)
    run_id = log[0].run_id
    models = [event.data["key"] for event in log if event.kind == k.LLM_REQUESTED]
    (key,) = [event.data["key"] for event in log if event.kind == k.TOOL_REQUESTED]
    assert [request.headers.get("traceparent") for request in server.requests] == [
        below(run_id, "llm", model) for model in models
    ]
    assert not any("tracestate" in request.headers for request in server.requests)
    assert (seen[0].traceparent, seen[0].tracestate) == (below(run_id, "tool", key), STATE)
    ids = {span.span_id for span in spans_from_events(log)}
    assert {below(run_id, "llm", model)[36:52] for model in models} <= ids
    assert below(run_id, "tool", key)[36:52] in ids


def test_a_run_in_no_trace_sends_nothing_on():
    seen = list[ToolContext]()

    @tool(effects="none")
    def look(context: ToolContext) -> str:
        """Look around."""
        seen.append(context)
        return "nothing"

    async def main() -> ChatServer:
        script = [Reply((ToolCall("c", "look", {}),), stop="tool_calls"), "done"]
        async with ChatServer(script) as server:
            client = ChatClient("m", base_url=server.base_url, api_key=API_KEY)
            async with client, make_engine(client, look) as engine:
                await (await engine.start("go")).result()
        return server

    assert not any("traceparent" in request.headers for request in run(main()).requests)
    assert (seen[0].traceparent, seen[0].tracestate) == (None, None)


async def test_a_header_of_the_clients_own_stays():
    async def main() -> ChatServer:
        async with ChatServer(["done"]) as server:
            own = {"Traceparent": "mine"}
            client = ChatClient("m", base_url=server.base_url, api_key=API_KEY, headers=own)
            async with client, make_engine(client) as engine:
                await (await engine.start("go", traceparent=HEADER)).result()
        return server

    assert [request.headers["traceparent"] for request in (await main()).requests] == ["mine"]


async def test_a_host_that_a_model_has_chosen_learns_nothing_of_the_trace():
    routes: dict[tuple[str, str], Handler] = {("GET", "/"): lambda _: Response.of("nothing")}
    async with HTTPServer(routes) as stranger:
        policy = FetchPolicy(allow_private_networks=True, allowed_ports=(stranger.port,))
        fetch = http_fetch_tool(policy)
        call = ToolCall("c", fetch.name, {"url": f"{stranger.base_url}/"})
        script = ScriptedClient([Reply((call,), stop="tool_calls"), "done"])
        async with make_engine(script, fetch) as engine:
            await (await engine.start("go", traceparent=HEADER, tracestate=STATE)).result()
    (request,) = stranger.requests
    assert not [name for name in request.headers if name.lower().startswith("trace")]
    assert TRACE not in f"{request!r}"


async def test_a_run_that_a_tool_starts_hangs_under_the_call():
    store = Kept()

    @tool(effects="none")
    async def start_another(context: ToolContext) -> str:
        """Start another run."""
        async with make_engine(ScriptedClient(["done"]), store=store) as engine:
            other = await engine.start("go")
            await other.result()
            return other.id

    async def main() -> tuple[list[Event], list[Event]]:
        log = await played(start_another, store=store, traceparent=HEADER)
        (output,) = [event.data["output"] for event in log if event.kind == k.TOOL_COMPLETED]
        return log, await store.read(output)

    log, other = await main()
    (key,) = [event.data["key"] for event in log if event.kind == k.TOOL_REQUESTED]
    assert other[0].data["traceparent"] == below(log[0].run_id, "tool", key)


async def test_agents_below_a_run_are_in_the_same_trace():
    async with team(boss_of(task(0, "count"))) as engine:
        started = await engine.start("go", traceparent=HEADER, tracestate=STATE)
        await started.result()
        child = await children_of(engine.store, started.id)
        boss, child = [await engine.store.read(started.id), *child]
    assert (child[0].data["traceparent"], child[0].data["tracestate"]) == (HEADER, STATE)
    spans = [*spans_from_events(boss), *spans_from_events(child, parent_events=boss)]
    assert {span.trace_id for span in spans} == {TRACE}
    assert [span.run_id for span in spans if span.parent_id is None] == [boss[0].run_id]


async def test_a_session_joins_a_trace_only_on_request():
    client = FunctionClient(lambda _: "hello")
    async with make_engine(client) as engine:
        with TRACER.start_as_current_span("request"):
            alone = await engine.start_session()
        joined = await engine.start_session(traceparent=HEADER)
        await (await joined.send("hi")).result()
        (turn,) = await children_of(engine.store, joined.id)
        alone, joined, turn = [
            await engine.store.read(alone.id),
            await engine.store.read(joined.id),
            turn,
        ]
    assert "traceparent" not in alone[0].data
    assert joined[0].data["traceparent"] == turn[0].data["traceparent"] == HEADER
    (hanging,) = [
        span.parent_id
        for span in spans_from_events(turn, parent_events=joined)
        if span.kind == "agent"
    ]
    assert hanging in {span.span_id for span in spans_from_events(joined)}


# -- what observers export ---------------------------------------------------------------------


async def test_spans_are_in_the_application_s_trace_and_know_their_remote_parent():
    log = await played(traceparent=HEADER, tracestate=STATE)
    own = trace_id_of(log[0].run_id)

    spans = spans_from_events(log)

    assert {span.trace_id for span in spans} == {TRACE}
    assert {span.remote_parent for span in spans} == {RemoteParent(TRACE, SPAN, STATE, own)}
    assert spans[0].parent_id is None


async def received(
    receiver: OTLPReceiver, exporter: Any, store: MemoryEventStore, **options: Any
) -> Sequence[ReceivedSpan]:
    sink = OTelSink(exporter, **options)
    async with (
        make_engine(ScriptedClient(["done"]), store=store) as engine,
        Observer(engine, sink, settle_s=0) as observer,
    ):
        started = await engine.start("go", traceparent=HEADER, tracestate=STATE)
        await started.result()
        await started.score("quality", 0.5)
        assert await observer.drain(120)
    await sink.aclose()
    return receiver.spans


@pytest.mark.parametrize("sdk", [False, True])
async def test_otel_gets_the_run_below_the_application_s_span(sdk: bool):
    store = Kept()

    async with OTLPReceiver() as receiver:
        exporter = OTLPSpanExporter(receiver.url) if sdk else OTLPSender(receiver.url, headers={})
        spans = await received(receiver, exporter, store)
    root = spans[0]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {span.trace_state for span in spans} == {STATE}
    assert root.parent_span_id.hex() == SPAN
    assert [bool(span.flags & 0x200) for span in spans] == [True, False, False]  # a remote parent
    assert {span.parent_span_id for span in spans[1:]} == {root.span_id}
    assert not any(span.links for span in spans)


@pytest.mark.parametrize("sdk", [False, True])
async def test_otel_gets_a_link_instead_if_that_is_wanted(sdk: bool):
    store = Kept()

    async with OTLPReceiver() as receiver:
        exporter = OTLPSpanExporter(receiver.url) if sdk else OTLPSender(receiver.url, headers={})
        spans = await received(receiver, exporter, store, remote_parent="link")
    root, *others = spans
    run_id = attributes_of(root)["lib.run_id"]
    assert {span.trace_id.hex() for span in spans} == {trace_id_of(run_id)}
    assert {span.trace_state for span in spans} == {""}
    assert root.parent_span_id == b""
    (link,) = root.links
    state = "" if sdk else STATE  # the SDK's exporter leaves that of links out
    assert (link.trace_id.hex(), link.span_id.hex(), link.trace_state) == (TRACE, SPAN, state)
    assert {span.parent_span_id for span in others} == {root.span_id}
    assert not any(span.links for span in others)


def test_another_word_for_the_remote_parent_is_refused():
    with pytest.raises(ValueError, match="'parent' or 'link', got 'child'"):
        OTelSink(OTLPSender("http://localhost:1", headers={}), remote_parent="child")  # pyright: ignore[reportArgumentType] - that is the test


def payment(seen: list[ToolContext], begun: asyncio.Event) -> Tool:
    """Return a tool whose first call does not end."""

    @tool(effects="idempotent")
    async def pay(context: ToolContext) -> str:
        """Pay."""
        seen.append(context)
        begun.set()
        if len(seen) == 1:
            await asyncio.Event().wait()
        return "paid"

    return pay


async def test_a_run_that_another_process_goes_on_with_stays_in_the_trace():
    store, seen, begun = Kept(), list[ToolContext](), asyncio.Event()
    pay = payment(seen, begun)

    async def cut_off() -> str:
        client = ScriptedClient([Reply((ToolCall("c", "pay", {}),), stop="tool_calls")])
        async with make_engine(client, pay, store=store) as engine:
            started = await engine.start("go", traceparent=HEADER)
            await begun.wait()
            return started.id

    run_id = await cut_off()
    async with OTLPReceiver() as receiver, ChatServer(["done"]) as server:
        sink = OTelSink(OTLPSender(receiver.url, headers={}))
        model = ChatClient("m", base_url=server.base_url, api_key=API_KEY)
        async with model, make_engine(model, pay, store=store) as engine:
            async with Observer(engine, sink, settle_s=0) as observer:
                await engine.recover()
                await engine.run(run_id).result()
                assert await observer.drain(120)
            log = await store.read(run_id)
        await sink.aclose()
        sent = [request.headers.get("traceparent") for request in server.requests]
        spans = receiver.spans
    assert k.RUN_RESUMED in [event.kind for event in log]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert spans[0].parent_span_id.hex() == SPAN
    assert len({context.traceparent for context in seen}) == 1
    (header,) = sent
    assert header is not None
    assert header[36:52] in {span.span_id.hex() for span in spans}


@pytest.mark.parametrize("vendor", [LANGFUSE, LANGSMITH, PHOENIX], ids=["A", "B", "C"])
def test_backends_that_have_nothing_of_the_application_get_a_trace_of_its_own_and_its_scores(
    vendor: Vendor[Any, Any],
):
    async def work(sink: Any, _: Any) -> None:
        async with make_engine(
            ScriptedClient(["done"]), new_id=iter(["w", "r"]).__next__
        ) as engine:
            async with Observer(engine, sink, settle_s=0) as observer:
                started = await engine.start("go", traceparent=HEADER)
                await started.result()
                await started.score("quality", 0.5, signal_id="s")
                assert await observer.drain(120)
            await sink.score(TRACE, [SCORE], span_id=span_id_of("r", "run", ""))

    server = vendor.served(work)

    assert {span.trace_id.hex() for span in server.spans} == {trace_id_of("r")}
    assert [span.parent_span_id.hex() for span in server.spans if not span.parent_span_id] == [""]
    assert all(TRACE not in f"{request.path}{request.body!r}" for request in posted(server))


def posted(server: Any) -> Sequence[Any]:
    """Return the requests of a backend that were not spans: in these the link names the trace."""
    return [request for request in server.requests if not request.path.endswith("/v1/traces")]


def test_a_backend_that_has_the_application_s_spans_gets_the_run_below_them_and_its_scores():
    async def work(sink: Any, _: Any) -> None:
        async with (
            make_engine(ScriptedClient(["done"]), new_id=iter(["w", "r"]).__next__) as engine,
            Observer(engine, sink, settle_s=0) as observer,
        ):
            started = await engine.start("go", traceparent=HEADER)
            await started.result()
            await started.score("quality", 0.5, signal_id="s")
            assert await observer.drain(120)

    server = PHOENIX.served(work, remote_parent="parent")

    assert {span.trace_id.hex() for span in server.spans} == {TRACE}
    assert server.spans[0].parent_span_id.hex() == SPAN
    assert [name for _, name, _ in server.annotations] == ["quality"]


async def test_a_score_that_is_in_no_log_goes_where_the_run_went():
    log = await played(traceparent=HEADER)
    spans = spans_from_events(log)
    own = trace_id_of(log[0].run_id)

    async def main(trace_id: str, **options: Any) -> ReceivedSpan:
        async with OTLPReceiver() as receiver:
            sink = OTelSink(OTLPSender(receiver.url, headers={}), **options)
            await sink.export(spans)
            await sink.score(trace_id, [Score(name="quality", value=1)])
            await sink.aclose()
            return receiver.spans[-1]

    for wanted, options in ((TRACE, {}), (own, {"remote_parent": "link"})):
        for trace_id in {TRACE, wanted}:
            score = await main(trace_id, **options)
            assert (score.name, score.trace_id.hex()) == ("evaluate quality", wanted)
            assert score.parent_span_id.hex() == spans[0].span_id


async def test_the_sample_is_that_of_the_application_s_trace():
    kept = f"00-{'a' * 16}{'0' * 15}1-{SPAN}-01"  # the last 64 bits decide
    dropped = f"00-{'a' * 16}{'f' * 16}-{SPAN}-01"

    sink = InMemorySink()
    async with (
        make_engine(FunctionClient(lambda _: "done")) as engine,
        Observer(engine, sink, settle_s=0, sample=0.5) as observer,
    ):
        for number in range(8):  # whatever the ids of the runs are
            header = dropped if number % 2 else kept
            await (await engine.start("go", traceparent=header)).result()
        assert await observer.drain(120)
    assert {span.trace_id for span in sink.spans} == {kept[3:35]}


async def test_links_of_a_span_are_sent():
    log = await played()
    link = SpanLink(TRACE, SPAN, STATE)
    root: Span = replace(spans_from_events(log)[0], links=[link])

    async def main() -> ReceivedSpan:
        async with OTLPReceiver() as receiver:
            sink = OTelSink(OTLPSender(receiver.url, headers={}))
            await sink.export([root])
            await sink.aclose()
            return receiver.spans[0]

    (sent,) = (await main()).links
    assert (sent.trace_id.hex(), sent.span_id.hex(), sent.trace_state) == (TRACE, SPAN, STATE)
