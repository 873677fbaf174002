"""The stream of a run: each event once, in order, whatever breaks off."""

import asyncio
import random
from collections.abc import Sequence

from server_kit import Sent, all_of, echo_agent, serving, streaming

from lib import Agent, Engine
from lib.events import MemoryEventStore
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.tools import tool
from lib_server import Limits, Server
from lib_server.channels import Subscriber, event_frame


def seqs(events: list[Sent]) -> list[int]:
    return [int(event.id) for event in events if event.id]


async def test_a_stream_is_the_log_and_then_the_end() -> None:
    async with serving(Server(echo_agent())) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        path = f"/v1/runs/{run['id']}/events"
        sent = await all_of(up.client, path)
        page = (await up.client.get(path)).json()

    logged = [event for event in sent if event.id]
    assert [event.data for event in logged] == page["events"]
    assert [event.event for event in logged] == [event["kind"] for event in page["events"]]
    assert seqs(sent) == list(range(1, page["head"] + 1))
    assert (sent[-1].event, sent[-1].data["head"]) == ("run.end", page["head"])


async def test_a_reply_is_streamed_while_it_is_written() -> None:
    async with serving(Server(echo_agent())) as up:
        run = (await up.client.post("/v1/runs", json={"input": "a long sentence"})).json()
        sent = await all_of(up.client, f"/v1/runs/{run['id']}/events")

    texts: dict[str, str] = {}
    for event in sent:
        if event.event == "reply.delta":
            data = event.data
            before = texts.get(data["key"], "")[: data["text_at"]]
            assert len(before) == data["text_at"]
            texts[data["key"]] = before + data["text"]
    assert set(texts.values()) <= {"You wrote: a long sentence"}


async def test_a_stream_that_is_resumed_goes_on_behind_the_last_event() -> None:
    async with serving(Server(echo_agent())) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        path = f"/v1/runs/{run['id']}/events"
        head = seqs(await all_of(up.client, path))[-1]
        by_header = await all_of(up.client, path, last_event_id="2")
        by_query = await all_of(up.client, f"{path}?after=2")
        both = await all_of(up.client, f"{path}?after=1", last_event_id="2")
        stream = {"accept": "text/event-stream", "last-event-id": str(head)}
        after_end = await up.client.get(path, headers=stream)
        beyond = await all_of(up.client, f"{path}?after={head + 5}")
        wrong = await up.client.get(path, headers={**stream, "last-event-id": "x"})

    assert seqs(by_header) == seqs(by_query) == seqs(both) == list(range(3, head + 1))
    assert after_end.status_code == 204
    assert beyond[0].event == "stream.reset"
    assert seqs(beyond) == list(range(1, head + 1))
    assert wrong.status_code == 400


def twenty_steps(messages: Sequence[Message]) -> Reply | str:
    calls = sum(message.role == "tool" for message in messages)
    if calls == 20:
        return "done"
    return Reply(parts=(ToolCall(f"c{calls}", "step", {"number": calls}),))


async def test_random_disconnects_lose_and_repeat_nothing() -> None:
    """Each client leaves at random and resumes by the last id that it has read."""

    async def step(number: int) -> int:
        """Take a step."""
        await asyncio.wait_for(gate.acquire(), 60)
        return number

    gate = asyncio.Semaphore(0)
    chance = random.Random(7)
    agent = Agent(FunctionClient(twenty_steps), tools=[step])

    async def read_some(path: str, seen: list[int]) -> bool:
        """Read on and leave at random; return True at the end of the run."""
        last = {"last_event_id": str(seen[-1])} if seen else {}
        async with streaming(up.client, path, **last) as events:
            async for event in events:
                gate.release()
                seen += [int(event.id)] if event.id else []
                if event.event == "run.end" or chance.random() < 0.4:
                    return event.event == "run.end"
        return False

    async def client(path: str) -> list[int]:
        seen: list[int] = []
        while not await read_some(path, seen):
            pass
        return seen

    async with serving(Server(agent)) as up:
        run = (await up.client.post("/v1/runs", json={"input": "go"})).json()
        path = f"/v1/runs/{run['id']}/events"
        clients = await asyncio.gather(*(client(path) for _ in range(5)))
        head = (await up.client.get(path)).json()["head"]

    assert head > 60
    assert clients == [list(range(1, head + 1))] * 5


async def test_an_idle_stream_beats_and_a_disconnect_leaves_the_run_alone() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    server = Server(Agent(FunctionClient(answer)), limits=Limits(heartbeat_s=0.01))
    async with serving(server) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        path = f"/v1/runs/{run['id']}"
        await begun.wait()
        stream = {"accept": "text/event-stream"}
        async with up.client.stream("GET", f"{path}/events", headers=stream) as answer_:
            lines = answer_.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            async for line in lines:
                if line == ": hb":
                    break
        go_on.set()
        result = (await up.client.get(f"{path}/result?wait_s=60")).json()

    assert result["text"] == "done"


async def test_a_server_that_stops_ends_its_streams_with_a_last_event() -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await never.wait()
        return ""

    async with serving(Server(Agent(FunctionClient(answer)), drain_s=0)) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        await begun.wait()
        async with streaming(up.client, f"/v1/runs/{run['id']}/events") as events:
            sent = [await anext(events)]
            stopping = asyncio.create_task(up.stop())
            sent += [event async for event in events]
        await stopping

    assert sent[-1].event == "server.draining"


async def test_a_server_that_stops_lets_runs_end_for_a_while() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    store = MemoryEventStore()
    engine = Engine(store, agents=[Agent(FunctionClient(answer))])
    async with serving(Server(engine, drain_s=120)) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        await begun.wait()
        async with streaming(up.client, f"/v1/runs/{run['id']}/events") as events:
            await anext(events)
            stopping = asyncio.create_task(up.stop())
            last = [event async for event in events][-1]
        go_on.set()
        await stopping
    await store.setup()
    info = await store.run(run["id"])

    assert last.event == "server.draining"
    assert info is not None
    assert info.outcome == "COMPLETED"


async def test_a_server_that_stops_does_not_wait_for_people() -> None:
    @tool(effects="once", approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent(FunctionClient(lambda _: Reply((ToolCall("c", "pay"),))), tools=[pay])
    async with asyncio.timeout(200), serving(Server(agent, drain_s=3600)) as up:
        session = (await up.client.post("/v1/sessions", json={})).json()
        path = f"/v1/sessions/{session['id']}/messages"
        turn = (await up.client.post(path, json={"input": "pay"})).json()
        async with streaming(up.client, f"/v1/runs/{turn['run_id']}/events") as events:
            async for event in events:
                if event.event == k.APPROVAL_REQUESTED:
                    break


async def test_events_of_another_process_are_streamed() -> None:
    store = MemoryEventStore()
    serve_only = Engine(store, agents=[echo_agent()], drive=False)
    async with serving(Server(serve_only)) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        async with streaming(up.client, f"/v1/runs/{run['id']}/events") as events:
            assert (await anext(events)).event == "lib.run.started"
            async with Engine(store, agents=[echo_agent()]) as worker:
                await worker.recover()
                rest = [event async for event in events]

    assert rest[-1].event == "run.end"


async def test_a_subscriber_is_bounded_and_drops_replies_first() -> None:
    store = MemoryEventStore()
    async with Engine(store, agents=[echo_agent()]) as engine:
        run = await engine.start("hi")
        await run.result()
        frames = [event_frame(event) for event in await store.read(run.id)]
    delta = frames[0]._replace(seq=0)
    subscriber = Subscriber(4)
    for each in (frames[0], frames[1], delta, frames[2], delta):
        subscriber.put(each)
    assert subscriber.take() == frames[:3]
    for each in [*frames, *frames][:5]:
        subscriber.put(each)

    assert subscriber.lagged
    assert subscriber.take() == []
