"""agno's AgentOS over its database in memory, with its security key."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx2
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.settings import AgnoAPISettings
from peers.server import host

KEY = "k" * 48
RUN_ID = re.compile(r'"run_id": ?"([^"]+)"')
pieces: asyncio.Queue[str] = asyncio.Queue()


@dataclass
class Scripted(Model):
    """Answers at once; as a stream, in the pieces that it is given."""

    id: str = "scripted"

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(role="assistant", content="Hello.")

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.invoke()

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        while piece := await pieces.get():
            yield ModelResponse(role="assistant", content=piece)

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


async def main() -> None:
    os.environ["AGNO_TELEMETRY"] = "false"
    agent = Agent(id="echo", model=Scripted(), db=InMemoryDb(), telemetry=False)
    settings = AgnoAPISettings(os_security_key=KEY)
    app = AgentOS(agents=[agent], settings=settings, telemetry=False).get_app()
    form = "application/x-www-form-urlencoded"
    running = host.plain_uvicorn(app)
    headers = {"authorization": f"Bearer {KEY}"}
    reading: list[asyncio.Task[None]] = []

    async def requests() -> dict[str, Any]:
        transport = httpx2.ASGITransport(app=app)
        client = httpx2.AsyncClient(transport=transport, base_url="http://os", headers=headers)
        answer = await client.post(
            "/agents/echo/runs", data={"message": "Hello?", "stream": "false"}
        )
        answer.raise_for_status()
        run = answer.json()
        return {
            "headers": headers,
            "get": f"/sessions/{run['session_id']}/runs/{run['run_id']}?type=agent",
            "post": "/agents/echo/runs",
            "body": urlencode({"message": "Hello?", "stream": "false"}),
            "content_type": form,
        }

    async def follow(_: int) -> list[str]:
        """Start a run in the background, whose first event holds its id."""
        began: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def read() -> None:
            client = httpx2.AsyncClient(headers=headers, timeout=None)
            body = {"message": "Count.", "stream": "true", "background": "true"}
            url = host.url_of(running) + "/agents/echo/runs"
            async with client.stream("POST", url, data=body) as answer:
                async for line in answer.aiter_lines():
                    if (found := RUN_ID.search(line)) and not began.done():
                        began.set_result(found[1])

        reading.append(asyncio.create_task(read()))
        return ["POST", f"/agents/echo/runs/{await asyncio.wait_for(began, 30)}/resume", ""]

    async def emit(count: int) -> None:
        await host.tick(count, pieces.put_nowait)

    await host.serve(running, requests, {"emit": emit, "follow": follow})


if __name__ == "__main__":
    asyncio.run(main())
