"""A server on a real socket in the loop of a test, and a reader of its streams."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from lib import Agent
from lib.llm import FunctionClient
from lib_server import Principal, Server, Unauthenticated
from lib_server.serve import DrainingServer, make_uvicorn
from servers import postgres, redis


def echo_agent(**options: Any) -> Agent:
    """Return an agent that repeats what the user says."""
    return Agent(FunctionClient(lambda messages: f"You wrote: {messages[-1].text}"), **options)


class OneKey:
    """Knows one key for each tenant: `Bearer TENANT`, with a user and all scopes but admin."""

    def __init__(self, *scopes: str) -> None:
        self._scopes = frozenset(scopes or ("read", "run", "approve"))

    def recognizes(self, token: str) -> bool:
        return True

    async def authenticate(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthenticated("missing")
        scheme, _, tenant = authorization.partition(" ")
        if scheme != "Bearer" or tenant not in {"acme", "umbrella"}:
            raise Unauthenticated("unknown")
        scopes: frozenset[object] = frozenset(self._scopes)
        return Principal(key_id=tenant, tenant=tenant, user=f"u@{tenant}", scopes=scopes)  # pyright: ignore[reportArgumentType] - names of scopes


def as_(tenant: str) -> dict[str, str]:
    return {"authorization": f"Bearer {tenant}"}


def url_of(kind: str, place: Path) -> str:
    """Return the URL of a store; starts its server, which blocks."""
    if kind == "postgres":
        separator = "&" if "?" in postgres.url() else "?"
        return f"{postgres.url()}{separator}schema={postgres.schema_of(place)}"
    if kind == "redis":
        return f"{redis.url()}?prefix={redis.prefix_of(place)}"
    return str(place / "log.db")


@dataclass(slots=True)
class Up:
    """A server that serves.

    Attributes:
        client: speaks to it.
        running: stops it.
    """

    client: httpx2.AsyncClient
    running: DrainingServer
    task: asyncio.Task[None]
    port: int

    async def stop(self) -> None:
        """Stop it as SIGTERM does."""
        self.running.handle_exit(signal.SIGTERM, None)
        await self.task


@asynccontextmanager
async def serving(server: Server, *, port: int = 0, **options: Any) -> AsyncGenerator[Up]:
    """Serve on this machine until the end of the block: on this port, or a free one."""
    listening = socket.create_server(("127.0.0.1", port))
    port = listening.getsockname()[1]
    running = make_uvicorn(server, port=port)
    task = asyncio.create_task(running.serve([listening]))
    url = f"http://127.0.0.1:{port}"
    async with httpx2.AsyncClient(base_url=url, timeout=60, **options) as client:
        up = Up(client, running, task, port)
        try:
            await client.get("/healthz")
            yield up
        finally:
            await up.stop()


@dataclass(slots=True)
class Sent:
    """A server-sent event.

    Attributes:
        id: of the event, "" if it has none.
        event: its name.
        data: its data, read as JSON.
    """

    id: str
    event: str
    data: Any


@asynccontextmanager
async def streaming(
    client: httpx2.AsyncClient, path: str, **headers: str
) -> AsyncGenerator[AsyncIterator[Sent]]:
    """Open a stream and yield its events; of one that is over, only the end."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers["accept"] = "text/event-stream"
    async with client.stream("GET", path, headers=headers) as answer:
        if answer.status_code == 204:
            yield only_the_end()
            return
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream"
        yield parsed(answer.aiter_lines())


async def only_the_end() -> AsyncIterator[Sent]:
    """Yield what a client makes of 204: the run has ended, and nothing has come since."""
    yield Sent("", "run.end", None)


async def parsed(lines: AsyncIterator[str]) -> AsyncIterator[Sent]:
    """Yield the events that these lines hold."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            data = json.loads(fields["data"])
            yield Sent(fields.get("id", ""), fields.get("event", "message"), data)
        fields = {}


async def all_of(client: httpx2.AsyncClient, path: str, **headers: str) -> list[Sent]:
    """Return the events of a stream, which ends by itself."""
    async with streaming(client, path, **headers) as events:
        return [event async for event in events]
