"""A client that takes tasks over MCP; as a program it starts one, shows its id, and waits."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client import Client, ClientSession
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolRequest, CallToolRequestParams
from pydantic import TypeAdapter

from lib.mcp.task_types import TASKS, GetTaskRequest, TaskParams

RAW: Any = TypeAdapter(dict[str, Any])  # results as they are on the wire


@asynccontextmanager
async def connected(url: str, **headers: str) -> AsyncGenerator[ClientSession]:
    async with httpx2.AsyncClient(headers=headers, timeout=300) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, extensions=[advertise(TASKS)]) as client:
            yield client.session


async def start(session: ClientSession, name: str, task: str) -> dict[str, Any]:
    params = CallToolRequestParams(name=name, arguments={"task": task})
    return await session.send_request(CallToolRequest(params=params), RAW)


async def get(session: ClientSession, task_id: str) -> dict[str, Any]:
    return await session.send_request(GetTaskRequest(params=TaskParams(task_id=task_id)), RAW)


async def end_of(url: str, task_id: str) -> dict[str, Any]:
    """Return the result of a task, once there is one."""
    async with connected(url) as session:
        while (task := await get(session, task_id))["status"] == "working":  # noqa: ASYNC110 - as clients do
            await asyncio.sleep(0.05)  # noqa: TID251 - as clients poll
    assert task["status"] == "completed", task
    result: dict[str, Any] = task["result"]
    return result


async def main(url: str) -> None:
    async with connected(url) as session:
        created = await start(session, "pid", "hello")
        sys.stderr.write(f"task {created['taskId']}\n")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
