"""Shared by tests of `PineconeVectorStore`: a store of a server, and what the server was sent."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fakes.pinecone_server import API_KEY, HurryingClock, PineconeServer
from lib.resilience import RetryPolicy
from lib.vector import PineconeVectorStore

ONCE = RetryPolicy(attempts=1)


@asynccontextmanager
async def opened(
    server: PineconeServer, *, index: bool = True, **arguments: Any
) -> AsyncGenerator[PineconeVectorStore]:
    if index:
        server.make_index("test", dimension=arguments.get("dimension", 2))
    defaults: dict[str, Any] = {
        "dimension": 2,
        "api_key": API_KEY,
        "index_name": "test",
        "clock": HurryingClock(),
        "jitter": lambda: 0.0,
    }
    async with server.client() as client:
        everything: dict[str, Any] = {**defaults, "client": client, **arguments}
        yield PineconeVectorStore(**everything)


def bodies(server: PineconeServer, path: str) -> list[Any]:
    return [body for _, url, body in server.requests if url == path]
