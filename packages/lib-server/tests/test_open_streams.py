"""Streams, and requests that wait, when their key is revoked or their server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from server_kit import Sent, Up, parsed, serving, streaming

from lib import Agent, Engine
from lib.events import MemoryEventStore, NewEvent
from lib.llm import FunctionClient, Message
from lib.testing.clock import ManualClock
from lib_server import ApiKeyAuthenticator, ApiKeys, Limits, Server
from lib_server.auth.keys import NewKey

OFTEN_S = 0.005  # between the looks at the clock, which stands still


@dataclass
class World:
    """A server whose agent writes nothing before `go_on`, and a clock that the test moves."""

    up: Up
    clock: ManualClock
    keys: ApiKeys
    go_on: asyncio.Event
    store: MemoryEventStore

    def bearer(self, key: NewKey) -> dict[str, str]:
        return {"authorization": f"Bearer {key.key}"}

    async def start(self, key: NewKey) -> str:
        """Start a run and return the path of its stream."""
        answer = await self.up.client.post(
            "/v1/runs", json={"input": "hi"}, headers=self.bearer(key)
        )
        return f"/v1/runs/{answer.json()['id']}/events"


@asynccontextmanager
async def a_world() -> AsyncGenerator[World]:
    clock, store, go_on = ManualClock(), MemoryEventStore(), asyncio.Event()

    async def answer(_: Sequence[Message]) -> str:
        await go_on.wait()
        return "done"

    auth = ApiKeyAuthenticator(clock=clock, refusal_step_s=0)
    engine = Engine(store, agents=[Agent(FunctionClient(answer))], clock=clock)
    server = Server(engine, auth=auth, limits=Limits(heartbeat_s=OFTEN_S), drain_s=0)
    async with serving(server) as up:
        yield World(up, clock, ApiKeys(store, clock=clock), go_on, store)
        go_on.set()


async def rest(events: AsyncIterator[Sent]) -> list[Sent]:
    return [event async for event in events]


async def test_the_stream_of_a_revoked_key_ends_with_stream_unauthorized() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme")
        path = await world.start(key)
        async with streaming(world.up.client, path, **world.bearer(key)) as events:
            first = await anext(events)
            await world.keys.revoke(key.record.key_id)
            world.clock.advance(61)
            last = (await rest(events))[-1]
        again = await world.up.client.get(path, headers=world.bearer(key))

    assert first.id == "1"
    assert last.event == "stream.unauthorized"
    assert last.id == "", "the place from which a client with a new key resumes stays as it is"
    assert again.status_code == 401


async def test_the_stream_of_an_expired_key_ends_with_stream_unauthorized() -> None:
    async with a_world() as world:
        end = world.clock.now() + timedelta(seconds=90)
        key = await world.keys.create(tenant="acme", expires_at=end)
        path = await world.start(key)
        async with streaming(world.up.client, path, **world.bearer(key)) as events:
            await anext(events)
            world.clock.advance(61)
            await until_checked(world)
            world.clock.advance(61)
            last = (await rest(events))[-1]

    assert last.event == "stream.unauthorized"


async def until_checked(world: World) -> None:
    """Return after some looks at the clock: a stream that ends then has ended."""
    for _ in range(5):
        await world.up.client.get("/healthz")


async def test_a_valid_key_keeps_its_stream_when_another_one_is_revoked() -> None:
    async with a_world() as world:
        kept = await world.keys.create(tenant="acme")
        revoked = await world.keys.create(tenant="acme")
        path = await world.start(kept)
        async with streaming(world.up.client, path, **world.bearer(kept)) as events:
            await anext(events)
            await world.keys.revoke(revoked.record.key_id)
            world.clock.advance(61)
            await until_checked(world)
            world.go_on.set()
            last = (await rest(events))[-1]

    assert last.event == "run.end"


@asynccontextmanager
async def waiting_turn(world: World, key: NewKey) -> AsyncGenerator[AsyncIterator[Sent]]:
    """Yield the stream of a turn that waits for the turn before it."""
    client, bearer = world.up.client, world.bearer(key)
    session = await client.post("/v1/sessions", json={}, headers=bearer)
    path = f"{session.headers['location']}/messages"
    await client.post(path, json={"input": "one"}, headers=bearer)
    stream = {"accept": "text/event-stream", **bearer}
    async with client.stream("POST", path, json={"input": "two"}, headers=stream) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": hb"
        yield parsed(lines)


async def test_a_stream_that_waits_for_its_turn_ends_when_its_key_is_revoked() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme")
        async with waiting_turn(world, key) as events:
            await world.keys.revoke(key.record.key_id)
            world.clock.advance(61)
            sent = await rest(events)

    assert [event.event for event in sent] == ["stream.unauthorized"]


async def test_a_stream_that_waits_for_its_turn_is_ended_by_a_server_that_stops() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme")
        async with waiting_turn(world, key) as events:
            stopping = asyncio.create_task(world.up.stop())
            sent = await rest(events)
        await stopping

    assert [event.event for event in sent] == ["server.draining"]


async def test_a_request_that_waits_for_a_result_is_answered_by_a_server_that_stops() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme")
        path = (await world.start(key)).replace("/events", "/result?wait_s=60")
        tasks = world.up.running.server_state.tasks
        before = set(tasks)
        waiting = asyncio.create_task(world.up.client.get(path, headers=world.bearer(key)))
        while tasks <= before:  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0)  # noqa: TID251 - lets the request arrive
        await world.up.stop()
        answer = await waiting

    assert (answer.status_code, answer.json()["outcome"]) == (200, None)


async def test_a_replay_ends_when_its_key_is_revoked() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme")
        path = await world.start(key)
        run_id = path.split("/")[3]
        async with streaming(world.up.client, path, **world.bearer(key)) as events:
            world.go_on.set()
            head = int([event for event in await rest(events) if event.id][-1].id)
        extra = [
            NewEvent("note", {"text": "x" * 4000}, world.clock.now(), "acme") for _ in range(3000)
        ]
        await world.store.append(run_id, extra, expected=head)
        async with streaming(world.up.client, path, **world.bearer(key)) as events:
            await anext(events)
            await world.keys.revoke(key.record.key_id)
            world.clock.advance(61)
            sent = await rest(events)

    assert sent[-1].event == "stream.unauthorized"
    assert len(sent) < 5000


async def test_no_id_of_an_event_makes_the_server_fail() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme")
        path = await world.start(key)
        bearer = world.bearer(key)["authorization"].encode()
        places = ["0" * 5000, "9" * 5000, "9" * 17, "-1", "1.0", "²", "0x1"]
        statuses = [
            (
                await world.up.client.get(
                    path, headers=[(b"last-event-id", place.encode()), (b"authorization", bearer)]
                )
            ).status_code
            for place in places
        ]

    assert statuses == [400] * len(places)
