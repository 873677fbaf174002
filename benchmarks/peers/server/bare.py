"""A Starlette application with the same routes and nothing behind them: what HTTP itself costs."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

from peers.server import host
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

KEY = "lib_sk_" + "k" * 61
RUN = {
    "id": "run_0123456789",
    "agent": "echo",
    "status": "closed",
    "state": "closed",
    "outcome": "completed",
    "tenant": "acme",
    "user": None,
    "root_id": "run_0123456789",
    "parent_id": None,
    "created_at": "2026-11-01T00:00:00Z",
    "updated_at": "2026-11-01T00:00:01Z",
    "head": 6,
}
followers: set[asyncio.Queue[str]] = set()


def allowed(request: Request) -> bool:
    authorization = request.headers.get("authorization", "").encode()
    return hmac.compare_digest(authorization, f"Bearer {KEY}".encode())


async def get(request: Request) -> Response:
    return JSONResponse(RUN) if allowed(request) else Response(status_code=401)


async def start(request: Request) -> Response:
    if not allowed(request):
        return Response(status_code=401)
    body = json.loads(await request.body())
    return JSONResponse({**RUN, "agent": body["agent"]}, status_code=201)


async def events(request: Request) -> Response:
    if not allowed(request):
        return Response(status_code=401)

    async def contents() -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        followers.add(queue)
        yield "retry: 1000\n\n"
        while True:
            yield f"event: reply.delta\ndata: {json.dumps({'text': await queue.get()})}\n\n"

    return StreamingResponse(contents(), media_type="text/event-stream")


def publish(piece: str) -> None:
    for queue in followers:
        queue.put_nowait(piece)


async def main() -> None:
    app = Starlette(
        routes=[
            Route("/v1/runs/{run_id}", get),
            Route("/v1/runs", start, methods=["POST"]),
            Route("/v1/runs/{run_id}/events", events),
        ]
    )

    async def requests() -> dict[str, Any]:
        return {
            "headers": {"authorization": f"Bearer {KEY}"},
            "get": "/v1/runs/run_0123456789",
            "post": "/v1/runs",
            "body": json.dumps({"agent": "echo", "input": "Hello?"}),
            "content_type": "application/json",
        }

    async def emit(count: int) -> None:
        await host.tick(count, publish)

    async def follow(_: int) -> list[str]:
        return ["GET", "/v1/runs/run_0123456789/events", ""]

    await host.serve(host.plain_uvicorn(app), requests, {"emit": emit, "follow": follow})


if __name__ == "__main__":
    asyncio.run(main())
