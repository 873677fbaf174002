"""A task whose client and server are both killed is found finished afterwards."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_kit import url_of

from lib._util.clock import SYSTEM_CLOCK

HERE = Path(__file__).parent


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)  # blocks, so outside of an event loop


async def started(place: Path, store_url: str, *command: str) -> Process:
    environment = {**os.environ, "A2A_PLACE": str(place), "A2A_STORE": store_url}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=HERE, env=environment, stdout=PIPE
    )


async def tasks(url: str) -> list[dict[str, Any]] | None:
    """Return the tasks of a server, None while it starts."""
    async with httpx2.AsyncClient(headers={"a2a-version": "1.0"}) as http:
        try:
            return (await http.get(f"{url}/a2a/tasks")).json()["tasks"]
        except httpx2.TransportError:
            return None


async def test_a_task_whose_client_and_server_are_killed_is_found_finished(
    tmp_path: Path, store_url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    serve = ("-m", "uvicorn", "a2a_killed_app:server", "--port", port, "--log-level", "error")
    client = ("a2a_killed_app.py", url)

    server = await started(tmp_path, store_url, *serve)
    while await tasks(url) is None:
        await SYSTEM_CLOCK.sleep(0.05)
    calling = await started(tmp_path, store_url, *client)
    while not (tmp_path / "begun").exists():
        await SYSTEM_CLOCK.sleep(0.05)
    for process in (calling, server):
        process.kill()
        await process.wait()
    (tmp_path / "open").touch()
    server = await started(tmp_path, store_url, *serve)
    while [each["status"]["state"] for each in await tasks(url) or ()] != ["TASK_STATE_COMPLETED"]:
        await SYSTEM_CLOCK.sleep(0.05)
    output, _ = await (await started(tmp_path, store_url, *client)).communicate()
    found = await tasks(url) or []
    server.kill()
    await server.wait()

    assert "Seat 42 to Rome is yours." in output.decode()
    assert len(found) == 1
