"""`lib_server` over a store in memory, with API keys."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
from peers.server import host

from lib import Agent, Engine
from lib.events import EventStore, open_store
from lib.llm import Delta, FunctionClient, Message, Reply, Text, ToolCall
from lib.tools import tool
from lib_server import ApiKeyAuthenticator, Server
from lib_server.auth.keys import ApiKeys
from lib_server.serve import make_uvicorn


class Ticking(FunctionClient):
    """Replies in the pieces that it is given, until it is given an empty one."""

    def __init__(self) -> None:
        super().__init__(lambda _: "")
        self.pieces: asyncio.Queue[str] = asyncio.Queue()

    async def stream(self, messages: Any, **options: Any) -> AsyncIterator[Delta | Reply]:
        whole = ""
        while piece := await self.pieces.get():
            whole += piece
            yield Delta(text=piece)
        yield Reply((Text(whole),))


@tool(approval=True)
def refund(order: int) -> str:
    """Give the customer the money back."""
    return f"order {order} refunded"


def ask(_: Sequence[Message]) -> Reply:
    return Reply((ToolCall("c1", "refund", {"order": 7}),), stop="tool_calls")


class Ours:
    """The server, its engine and the commands of its process."""

    def __init__(self, store: EventStore, key: str) -> None:
        self.headers = {"authorization": f"Bearer {key}"}
        self.ticking = Ticking()
        echo = Agent(FunctionClient(lambda _: "Hello.", keep_calls=0), name="echo")
        careful = Agent(FunctionClient(ask), name="careful", tools=[refund])
        agents = [echo, careful, Agent(self.ticking, name="ticking")]
        self.engine = Engine(store, agents=agents)
        self.running = make_uvicorn(Server(self.engine, auth=ApiKeyAuthenticator()))

    async def requests(self) -> dict[str, Any]:
        done = await self.engine.start("Hello?", agent="echo", tenant="acme")
        await done.result()
        return {
            "headers": self.headers,
            "get": f"/v1/runs/{done.id}",
            "post": "/v1/runs",
            "body": json.dumps({"agent": "echo", "input": "Hello?"}),
            "content_type": "application/json",
        }

    async def directly(self, count: int) -> None:
        """Drive so many runs without HTTP, sixteen at a time; pieces of replies are kept, too."""

        async def some() -> None:
            for _ in range(count // 16):
                run = await self.engine.start("Hello?", agent="echo", tenant="acme", stream=True)
                await run.result()

        await asyncio.gather(*(some() for _ in range(16)))

    async def idle(self, _: int) -> None:
        await self.engine.hosting.wait_idle(60)

    async def emit(self, count: int) -> None:
        await host.tick(count, self.ticking.pieces.put_nowait)

    async def follow(self, _: int) -> list[str]:
        return await self.started("ticking")

    async def wait(self, _: int) -> list[str]:
        return await self.started("careful")

    async def started(self, agent: str) -> list[str]:
        """Start a run over HTTP and return the request of its stream."""
        url, body = host.url_of(self.running), {"agent": agent, "input": "Hello?"}
        async with httpx2.AsyncClient(base_url=url, headers=self.headers) as client:
            run = (await client.post("/v1/runs", json=body)).raise_for_status().json()
        return ["GET", f"/v1/runs/{run['id']}/events", ""]


async def main() -> None:
    gc.collect()
    gc.freeze()  # as `lib-server serve` does
    store = open_store("memory:")
    await store.setup()
    key = await ApiKeys(store).create(tenant="acme", scopes=["read", "run"])
    ours = Ours(store, key.key)
    commands = ("directly", "idle", "emit", "follow", "wait")
    await host.serve(ours.running, ours.requests, {name: getattr(ours, name) for name in commands})


if __name__ == "__main__":
    asyncio.run(main())
