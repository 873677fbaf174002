"""The client against real servers: each event once and in order, whatever is cut or restarted."""

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest
from cutting_proxy import CuttingProxy
from server_kit import OneKey, Up, echo_agent, serving

from lib import Agent, Budget, Engine
from lib.events import MemoryBlobStore, MemoryEventStore
from lib.llm import FunctionClient, Image, Message, Reply, ToolCall
from lib.resilience import RetryPolicy
from lib.tools import tool
from lib_server import (
    AccessDenied,
    Client,
    ClientError,
    InvalidRequest,
    RequestConflict,
    ResourceNotFound,
    Server,
    StreamReset,
    SyncClient,
)
from lib_server.bodies import AttachmentPart, DeltaView, EventView, UploadPart, UserMessage
from lib_server.client.stream import Parser
from lib_server.serve import make_uvicorn

QUICK = RetryPolicy(attempts=1000, base_s=0.005, cap_s=0.02, deadline_s=120.0)


@asynccontextmanager
async def speaking(server: Server, **options: Any) -> AsyncGenerator[tuple[Client, Up]]:
    """Serve, and yield a client of it."""
    async with (
        serving(server) as up,
        Client(f"http://127.0.0.1:{up.port}", retries=QUICK, **options) as client,
    ):
        yield client, up


# -- calls -------------------------------------------------------------------------------------


async def test_a_run_is_started_streamed_and_listed() -> None:
    async with speaking(Server([echo_agent(name="echo")])) as (client, _):
        [agent] = await client.agents()
        run = await client.start("hi", agent="echo", budget=Budget(tokens=1000))
        items = [item async for item in client.stream(run)]
        ended = await client.run(run.id)
        again = [item async for item in client.stream(run, after=ended.head)]
        result = await client.result(run)
        for _number in range(4):
            await client.start("more")
        listed = [each.id async for each in client.runs(agent="echo")]

    events = [item for item in items if isinstance(item, EventView)]
    assert agent.name == "echo"
    assert [event.seq for event in events] == list(range(1, ended.head + 1))
    assert again == []
    assert (result.outcome, result.text) == ("COMPLETED", "You wrote: hi")
    assert len(listed) == 5
    assert listed[-1] == run.id


async def test_deltas_put_together_are_the_reply() -> None:
    async with speaking(Server([echo_agent(name="echo")])) as (client, _):
        run = await client.start("a long sentence of several words")
        texts: dict[str, str] = {}
        async for item in client.stream(run):
            if isinstance(item, DeltaView):
                texts[item.key] = texts.get(item.key, "")[: item.text_at] + item.text
        only_events = [item async for item in client.stream(run, deltas=False)]

    assert set(texts.values()) <= {"You wrote: a long sentence of several words"}
    assert all(isinstance(item, EventView) for item in only_events)


async def test_lists_go_on_over_pages() -> None:
    async with speaking(Server([echo_agent(name="echo")])) as (client, _):
        runs = await asyncio.gather(*(client.start(str(number)) for number in range(210)))
        found = [run.id async for run in client.runs()]

    assert sorted(found) == sorted(run.id for run in runs)


async def test_a_start_under_a_key_is_one_run() -> None:
    async with speaking(Server([echo_agent(name="echo")])) as (client, _):
        first = await client.start("hi", key="order-7")
        second = await client.start("hi", key="order-7")
        with pytest.raises(InvalidRequest) as other:
            await client.start("ho", key="order-7")

    assert first.id == second.id
    assert other.value.code == "idempotency_mismatch"


async def test_problems_are_typed_errors() -> None:
    async with speaking(Server([echo_agent(name="echo")], auth=OneKey("read")), api_key="acme") as (
        client,
        up,
    ):
        with pytest.raises(ResourceNotFound) as missing:
            await client.run("no such run?")
        with pytest.raises(AccessDenied) as denied:
            await client.start("hi")
        async with Client(f"http://127.0.0.1:{up.port}", api_key="secret-key") as stranger:
            with pytest.raises(AccessDenied) as unknown:
                await stranger.agents()
            with pytest.raises(AccessDenied):
                _ = [item async for item in stranger.stream("x")]
        with pytest.raises(InvalidRequest) as invalid:
            _ = [run async for run in client.runs(user="")]

    assert (missing.value.status, missing.value.code) == (404, "run_not_found")
    assert (missing.value.request_id or "").startswith("req_")
    assert (denied.value.status, denied.value.more) == (403, {"scope": "run"})
    assert unknown.value.status == 401
    assert "secret-key" not in str(unknown.value)
    assert (invalid.value.status, invalid.value.errors[0]["pointer"]) == (422, "user")


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(ValueError, match="base_url"):
        Client("localhost:8000")
    with pytest.raises(RuntimeError, match="async with"):
        await Client("http://localhost").agents()


@tool(approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid back {order}"


def pays_back(messages: Any) -> Reply | str:
    if messages[-1].role == "tool":
        return "done"
    return Reply(parts=(ToolCall("call-1", "refund", {"order": "A/7"}),))


async def test_a_call_is_approved_by_what_was_seen() -> None:
    agent = Agent(FunctionClient(pays_back), tools=[refund])
    async with speaking(Server([agent])) as (client, _):
        run = await client.start("7")
        async with aclosing(client.stream(run)) as items:
            async for item in items:
                if isinstance(item, EventView) and item.kind == "lib.approval.requested":
                    break
        waiting = await client.result(run, timeout_s=0)
        [approval] = [each async for each in client.approvals()]
        approved = await client.approve(approval, comment="fine")
        again = await client.approve(approval, comment="fine")
        with pytest.raises(RequestConflict) as other:
            await client.deny(approval)
        result = await client.result(run)
        decided = [each.status async for each in client.approvals(run)]

    assert waiting.outcome is None
    assert waiting.waiting_for is not None
    assert approved == again
    assert other.value.code == "already_decided"
    assert other.value.more["decision"] == "approved"
    assert result.text == "done"
    assert decided == ["approved"]


async def test_a_session_is_held_and_its_turns_are_streamed() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(messages: Any) -> str:
        begun.set()
        await go_on.wait()
        return f"You wrote: {messages[-1].text}"

    async with speaking(Server([Agent(FunctionClient(answer))])) as (client, _):
        session = await client.start_session()
        first = await client.send(session, "one")
        second = await client.send(session, "two")  # its run begins after that of the first
        streaming = asyncio.create_task(_all(client.stream(second)))
        await begun.wait()
        go_on.set()
        events = await streaming
        results = [(await client.result(turn)).text for turn in (first, second)]
        history = [each["content"] for each in await client.history(session)]
        closed = await client.close_session(session)
        seen = await client.session(session)

    assert events
    assert results == ["You wrote: one", "You wrote: two"]
    assert history == ["one", "You wrote: one", "two", "You wrote: two"]
    assert closed.id == seen.id == session.id
    assert len(seen.turns) == 2


async def _all(items: AsyncGenerator[Any]) -> list[Any]:
    return [item async for item in items]


def sizes(messages: Any) -> str:
    return ",".join(
        str(len(part.data or b"")) for part in messages[-1].parts if isinstance(part, Image)
    )


async def test_scores_and_uploads_count_once() -> None:
    seeing = Agent(FunctionClient(sizes, modalities=frozenset({"text", "image"})))
    engine = Engine("memory:", agents=[seeing], blobs=MemoryBlobStore())
    async with speaking(Server(engine)) as (client, _):
        blob = await client.upload(bytes(300_000), "image/png")
        uploaded = AttachmentPart(type="image", upload=UploadPart(digest=blob.digest))
        inline = AttachmentPart(type="image", data=b"\xff\xfb", media_type="image/png")
        run = await client.start([UserMessage(content=[uploaded, inline])])
        result = await client.result(run)
        content = await client.download(blob.digest)
        await client.score(run, "helpful", 1, key="k")
        await client.score(run, "helpful", 1, key="k")
        await client.score(run, "polite", value=True)
        scores = await client.scores(run)

    assert result.text == "300000,2"
    assert content == bytes(300_000)
    assert [(score.name, score.value) for score in scores] == [("helpful", 1.0), ("polite", True)]


async def test_cancelling_a_run_ends_it() -> None:
    never = asyncio.Event()

    async def answer(_: object) -> str:
        await never.wait()
        return ""

    async with speaking(Server([Agent(FunctionClient(answer))])) as (client, _):
        run = await client.start("hi")
        await client.cancel(run, "enough")
        result = await client.result(run)

    assert result.outcome == "CANCELLED"


# -- cuts and restarts -------------------------------------------------------------------------


STEPS = 12


def steps(messages: Sequence[Message]) -> Reply | str:
    done = sum(message.role == "tool" for message in messages)
    if done == STEPS:
        return "done"
    return Reply(parts=(ToolCall(f"c{done}", "step", {"number": done}),))


def stepping(gate: asyncio.Semaphore | None = None) -> Agent:
    """Return an agent that takes steps, each once the gate lets it."""

    @tool(effects="idempotent")
    async def step(number: int) -> int:
        """Take a step."""
        if gate is not None:
            await gate.acquire()
        return number

    return Agent(FunctionClient(steps), name="stepping", tools=[step])


@pytest.mark.parametrize("seed", range(4))
async def test_connections_cut_at_any_byte_lose_and_repeat_nothing(seed: int) -> None:
    async with serving(Server([stepping()])) as up:
        async with CuttingProxy(up.port, seed, most=2500).running() as proxy:
            url = f"http://127.0.0.1:{proxy.port}"
            async with Client(url, retries=QUICK, random=random.Random(seed).random) as client:
                runs = await asyncio.gather(*(client.start(str(number)) for number in range(8)))
                streams = await asyncio.gather(
                    *(_all(client.stream(run, deltas=False)) for run in runs)
                )
                results = [await client.result(run) for run in runs]
        listed = (await up.client.get("/v1/runs")).json()["runs"]

    assert proxy.cuts > 10
    assert len(listed) == 8  # no start has run twice
    for run, events, result in zip(runs, streams, results, strict=True):
        head = next(each["head"] for each in listed if each["id"] == run.id)
        assert [event.seq for event in events] == list(range(1, head + 1))
        assert result.text == "done"


class Restarting:
    """Servers that come and go on one port, over one store."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._store = MemoryEventStore()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port: int = listening.getsockname()[1]

    @asynccontextmanager
    async def up(self) -> AsyncGenerator[None]:
        """Serve until the end of the block, and stop as SIGTERM does."""
        engine = Engine(self._store, agents=[self._agent])
        server = Server(engine, drain_s=0)
        running = make_uvicorn(server, port=self.port)
        listening = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        task = asyncio.create_task(running.serve([listening]))
        try:
            yield
        finally:
            running.handle_exit(15, None)
            await task


async def test_a_stream_goes_on_over_restarts_of_the_server() -> None:
    gate, changed = asyncio.Semaphore(0), asyncio.Event()
    servers = Restarting(stepping(gate))
    seen: list[int] = []

    async def read(client: Client, run_id: str) -> None:
        async for event in client.stream(run_id, deltas=False):
            assert isinstance(event, EventView)
            seen.append(event.seq)
            changed.set()

    async def passed(count: int) -> None:
        while len(seen) < count:
            gate.release()
            changed.clear()
            with suppress(TimeoutError):  # the step that this lets pass may be of a dead server
                await asyncio.wait_for(changed.wait(), 0.05)

    async with Client(f"http://127.0.0.1:{servers.port}", retries=QUICK) as client:
        async with servers.up():
            run = await client.start("go")
            reading = asyncio.create_task(read(client, run.id))
            await passed(5)
        for _number in range(3):
            async with servers.up():
                await passed(len(seen) + 5)
        async with servers.up():
            for _number in range(STEPS):
                gate.release()
            await reading
            head = (await client.run(run)).head
            result = await client.result(run)

    assert seen == list(range(1, head + 1))
    assert result.text == "done"


async def test_a_server_that_is_down_is_waited_for_as_long_as_the_policy_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    policy = RetryPolicy(attempts=3, base_s=0.0)
    async with Client(f"http://127.0.0.1:{port}", retries=policy) as client:
        with pytest.raises(ClientError) as down:
            await client.agents()
        with pytest.raises(ClientError) as no_stream:
            _ = [item async for item in client.stream("x")]

    assert down.value.retryable
    assert down.value.status is None
    assert no_stream.value.retryable
    assert str(port) not in str(down.value)


class Scripted:
    """A server that answers each request with the next of these bytes, and closes."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._answers.pop(0))
        await writer.drain()
        writer.close()


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def sse(*events: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n"
    return head + b"".join(events)


def event(seq: int) -> bytes:
    data = f'{{"seq":{seq},"kind":"k","at":"2026-11-23T00:00:00Z","user":null,"data":{{}}}}'
    return f"id: {seq}\nevent: k\ndata: {data}\n\n".encode()


class WaitingClock:
    """A clock that notes how long it would sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> Any:
        raise AssertionError("the time of day is not read")

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)


async def test_limits_are_waited_out_as_long_as_the_server_says() -> None:
    clock = WaitingClock()
    end = b"event: run.end\ndata: {}\n\n"
    server = Scripted(
        answer("429 Too Many Requests", retry_after="7"),
        answer("503 Service Unavailable", retry_after="2"),
        sse(event(1), event(2), b"event: server.draining\ndata: {}\n\n"),
        sse(event(2), event(3), event(4)[:30]),
        answer("502 Bad Gateway", b"<html>"),
        sse(event(4), end),
    )
    async with server.running() as url, Client(url, clock=clock, random=lambda: 0.0) as client:
        items = client.stream("x")
        seqs = [item.seq async for item in items if isinstance(item, EventView)]

    assert seqs == [1, 2, 3, 4]
    assert clock.slept == [7.0, 2.0, 0.0, 0.0, 0.0]
    lines = [line for each in server.requests for line in each.split(b"\r\n")]
    resumed_at = [line.split()[-1] for line in lines if b"event-id" in line]
    assert resumed_at == [b"0", b"0", b"0", b"2", b"3", b"3"]


async def test_a_log_that_lost_its_end_and_a_run_that_was_erased_are_errors() -> None:
    reset = Scripted(sse(b'event: stream.reset\ndata: {"head":1}\n\n', event(1)))
    async with reset.running() as url, Client(url) as client:
        with pytest.raises(StreamReset):
            _ = [item async for item in client.stream("x", after=9)]
    erased = Scripted(sse(event(1), b"event: run.erased\ndata: {}\n\n"))
    async with erased.running() as url, Client(url) as client:
        with pytest.raises(ResourceNotFound) as gone:
            _ = [item async for item in client.stream("x")]

    assert gone.value.code == "run_erased"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_however_they_are_cut(size: int) -> None:
    content = (
        b": hb\n\nretry: 1\n\n" + event(1) + b"event: a\r\ndata: x\r\ndata: \xc3\xa4\r\n\r\nid: 2"
    )
    parser = Parser()
    found = [
        message
        for start in range(0, len(content), size)
        for message in parser.feed(content[start : start + size])
    ]

    assert [message.event for message in found] == ["k", "a"]
    assert found[1].data == "x\nä"


# -- without a loop ----------------------------------------------------------------------------


async def test_the_client_without_a_loop_does_the_same() -> None:
    def work(url: str) -> tuple[list[int], str, list[str]]:
        with SyncClient(url, retries=QUICK) as client:
            run = client.start("hi", agent="echo")
            seqs = [item.seq for item in client.stream(run) if isinstance(item, EventView)]
            for _item in client.stream(run):
                break
            with pytest.raises(ResourceNotFound):
                client.run("nothing")
            listed = [each.id for each in client.runs()]
            text = client.result(run).text
        with pytest.raises(RuntimeError, match="with SyncClient"):
            client.agents()
        return seqs, text, listed

    async with serving(Server([echo_agent(name="echo")])) as up:
        url = f"http://127.0.0.1:{up.port}"
        seqs, text, listed = await asyncio.to_thread(work, url)

    assert seqs == list(range(1, len(seqs) + 1))
    assert text == "You wrote: hi"
    assert len(listed) == 1


def test_every_method_of_the_client_is_one_of_the_other() -> None:
    for name, value in vars(Client).items():
        if not name.startswith("_") and name != "aclose" and callable(value):
            assert vars(SyncClient)[name].__wrapped__ is value, name
