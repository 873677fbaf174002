import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lib import Agent, Engine, Run
from lib.errors import RunNotFound
from lib.events import Event
from lib.llm import FunctionClient

echo = Agent(FunctionClient(lambda messages: f"You wrote: {messages[-1].text}"), name="echo")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """Keep one engine for the life of the application, and take up what the last one left."""
    async with Engine("runs.db", agents=[echo]) as engine:
        await engine.recover()
        app.state.engine = engine
        yield


async def start(request: Request) -> Response:
    """POST /runs: a repeated request with the same key gives the same run."""
    engine: Engine = request.app.state.engine
    text = (await request.json())["input"]
    run = await echo.start(engine, text, key=request.headers.get("idempotency-key"))
    return JSONResponse({"run": run.id}, status_code=202)


async def stream(request: Request) -> Response:
    """GET /runs/ID/events: the log as server-sent events; `Last-Event-ID` goes on from there."""
    engine: Engine = request.app.state.engine
    run = engine.run(request.path_params["run_id"])
    try:
        await run.info()
    except RunNotFound:
        return JSONResponse({"error": "no such run"}, status_code=404)
    after = int(request.headers.get("last-event-id", "0"))
    return StreamingResponse(server_sent(run, after), media_type="text/event-stream")


async def server_sent(run: Run, after: int) -> AsyncIterator[str]:
    async for event in run.events(after=after):
        yield f"id: {event.seq}\nevent: {event.kind}\ndata: {data_of(event)}\n\n"


def data_of(event: Event) -> str:
    """Say what the page may see: not everything that is in a log is meant for a browser."""
    return json.dumps({"output": event.data.get("output")})


routes = [
    Route("/runs", start, methods=["POST"]),
    Route("/runs/{run_id}/events", stream),
]
app = Starlette(routes=routes, lifespan=lifespan)


async def main() -> None:
    async with (
        lifespan(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://app") as browser,
    ):
        key = {"Idempotency-Key": "click-1"}
        first = await browser.post("/runs", json={"input": "Hello"}, headers=key)
        again = await browser.post("/runs", json={"input": "Hello"}, headers=key)
        print(first.status_code, first.json() == again.json())
        events = f"/runs/{first.json()['run']}/events"
        lines = (await browser.get(events, headers={"Last-Event-ID": "2"})).text.splitlines()
        print("\n".join(line for line in lines if line))
        print((await browser.get("/runs/unknown/events")).status_code)


if __name__ == "__main__":
    asyncio.run(main())
