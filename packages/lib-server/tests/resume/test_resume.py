"""Streams survive what servers, workers and clients do: each event comes once, and in order.

Clients leave at random and resume by the last id that they have read, on any server. Meanwhile
servers and workers are stopped, killed and started again. A seed chooses all of it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_kit import Sent, parsed

from lib._util.clock import SYSTEM_CLOCK
from servers import postgres, redis

from .processes import Local, Part, Process, SharedStore

LONG = bool(os.environ.get("LIB_TEST_LONG"))
RUNS, DISTURBANCES = (200, 60) if LONG else (4, 3)
AT_ONCE = 8
STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "",
    "sqlite": lambda place: f"sqlite:///{place}/log.db",
    "postgres": lambda _: postgres.fresh_url(),
    "redis": lambda _: redis.fresh_url(),
}
Gone = (httpx2.TransportError, httpx2.StreamError)


class World:
    """Servers, workers, and how much the clients have read."""

    def __init__(self, servers: Sequence[Part], workers: Sequence[Part], seed: int) -> None:
        self.servers, self.workers = servers, workers
        self.dice = random.Random(seed)
        self.http = httpx2.AsyncClient(timeout=120)
        self.read = self.replies = 0
        self.left = RUNS * 2
        self._changed = asyncio.Event()

    def note(self) -> None:
        """Note that a client has read something, has ended, or that a part has started."""
        self._changed.set()

    async def change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def url(self) -> str:
        """Return the address of a server that takes requests, as soon as there is one."""
        while not (urls := [each.url for each in self.servers if each.url]):
            await SYSTEM_CLOCK.sleep(0.02)  # one is being started
        return self.dice.choice(urls)

    async def send(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer of any server to a request that may be sent again and again."""
        while True:
            try:
                url = await self.url()
                answer = await self.http.request(method, f"{url}{path}", **options)
            except Gone:
                continue
            if answer.status_code < 300:
                return answer.json()
            assert answer.status_code == 503, answer.text

    async def disturb(self) -> None:
        """Stop or kill a part, and start it again, as often as there is something to disturb."""
        for _ in range(DISTURBANCES):
            target = self.read + self.dice.randrange(10, 80)
            while self.read < target and self.left:
                await self.change()
            if not self.left:
                return
            part = self.dice.choice([*self.servers, *self.workers])
            await part.stop(self.dice.choice([signal.SIGKILL, signal.SIGTERM]))
            await part.start()


class Writing:
    """A reply, as far as its pieces have come over one connection.

    Attributes:
        is_whole: False if pieces were lost, which may be: the reply in the log replaces them.
    """

    def __init__(self) -> None:
        self._version = (0, 0)
        self.text = ""
        self.is_whole = True

    def take(self, piece: dict[str, Any]) -> None:
        version = (piece["epoch"], piece["attempt"])
        assert version >= self._version, "a piece of an attempt that another one has superseded"
        if version > self._version:
            self._version, self.text, self.is_whole = version, "", True
        assert piece["text_at"] >= len(self.text), "a piece came twice"
        self.is_whole = self.is_whole and piece["text_at"] == len(self.text)
        self.text += piece["text"]


class Client:
    """Follows one run to its end, with many disconnects.

    Attributes:
        events: that it has seen, without pieces of replies.
        replies: how far each reply came in pieces before its event, if none of them was lost.
    """

    def __init__(self, world: World, run_id: str, seed: int) -> None:
        self._world, self._run_id = world, run_id
        self._dice = random.Random(f"{seed} {run_id}")
        self._last = 0
        self._ended = False
        self.events: list[Sent] = []
        self.replies: list[tuple[str, str]] = []

    async def follow(self) -> None:
        while not self._ended:
            url = await self._world.url()
            try:
                await self._read(f"{url}/v1/runs/{self._run_id}/events")
            except Gone:
                continue
        self._world.left -= 1
        self._world.note()

    async def _read(self, url: str) -> None:
        wanted = self._dice.randrange(1, 60)
        headers = {"accept": "text/event-stream"}
        if self._last:
            headers["last-event-id"] = str(self._last)
        writing: dict[str, Writing] = {}
        async with self._world.http.stream("GET", url, headers=headers) as answer:
            self._ended = answer.status_code == 204
            if answer.status_code != 200:
                assert answer.status_code in {204, 503}
                return
            async for event in parsed(answer.aiter_lines()):
                self._take(event, writing)
                wanted -= 1
                self._world.read += 1
                self._world.note()
                if wanted == 0 or self._ended:
                    return

    def _take(self, event: Sent, writing: dict[str, Writing]) -> None:
        assert event.event != "stream.reset"
        if event.id:
            self._last = int(event.id)
            self.events.append(event)
        if event.event == "run.end":
            self._ended = True
        elif event.event == "reply.delta":
            writing.setdefault(event.data["key"], Writing()).take(event.data)
        elif event.event == "lib.llm.completed":
            key = event.data["data"]["key"]
            if key in writing and writing[key].is_whole:
                self.replies.append((key, writing.pop(key).text))


@asynccontextmanager
async def a_world(kind: str, place: Path, seed: int) -> AsyncGenerator[World]:
    url = await asyncio.to_thread(STORES[kind], place)
    servers: list[Part]
    workers: list[Part]
    if kind == "memory":
        store = SharedStore()
        servers, workers = (
            [Local("server", store), Local("server", store)],
            [Local("worker", store)],
        )
    else:
        servers = [Process("server", url), Process("server", url, drive=False)]
        workers = [Process("worker", url)]
    await servers[0].start()  # which sets the store up
    await asyncio.gather(*(each.start() for each in [*servers[1:], *workers]))
    world = World(servers, workers, seed)
    try:
        async with world.http:
            yield world
    finally:
        await asyncio.gather(*(each.stop(signal.SIGKILL) for each in [*servers, *workers]))


async def follow(world: World, number: int, seed: int, turn: asyncio.Semaphore) -> None:
    """Start a run, follow it with two clients, and hold what they have seen against the log."""
    async with turn:
        body, key = {"input": f"run {number}"}, {"idempotency-key": f"{seed}-{number}"}
        run_id = (await world.send("POST", "/v1/runs", json=body, headers=key))["id"]
        clients = [Client(world, run_id, seed + each) for each in range(2)]
        await asyncio.gather(*(client.follow() for client in clients))
        log = await world.send("GET", f"/v1/runs/{run_id}/events?limit=1000")
    assert log["events"][-1]["kind"] == "lib.run.completed"
    assert log["events"][-1]["data"]["outcome"] == "COMPLETED"
    replies = {
        event["data"]["key"]: text_of(event["data"]["reply"])
        for event in log["events"]
        if event["kind"] == "lib.llm.completed"
    }
    for client in clients:
        world.replies += len(client.replies)
        assert [event.data for event in client.events] == log["events"]
        assert [int(event.id) for event in client.events] == list(range(1, log["head"] + 1))
        for name, text in client.replies:
            assert replies[name].startswith(text)


def text_of(reply: dict[str, Any]) -> str:
    return "".join(part["text"] for part in reply["parts"] if part["type"] == "text")


@pytest.mark.timeout(7200 if LONG else 900)
@pytest.mark.parametrize("kind", STORES)
async def test_each_client_sees_each_event_once_and_in_order(kind: str, tmp_path: Path) -> None:
    seed = 1
    async with a_world(kind, tmp_path, seed) as world:
        turn = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.disturb())
            for number in range(RUNS):
                group.create_task(follow(world, number, seed, turn))
        listed, cursor = set[str](), ""
        while cursor is not None:
            page = await world.send("GET", f"/v1/runs?limit=200{cursor and f'&cursor={cursor}'}")
            listed |= {run["id"] for run in page["runs"]}
            cursor = page["next_cursor"]

    assert world.replies > 0, "pieces of replies come, too"
    assert len(listed) == RUNS, "a start that is sent again starts nothing"
