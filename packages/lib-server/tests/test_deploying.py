"""The files of the page "Deploy a server" work: the unit's command, nginx and Caddy."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest
from server_kit import streaming

from lib.events import open_store
from lib_server import ApiKeys

ROOT: Final = Path(__file__).parents[3]
FILES: Final = dict(
    re.findall(
        r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$",
        (ROOT / "docs" / "how-to" / "deploy-a-server.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
BIN: Final = Path(sys.executable).parent
CERTIFICATES: Final = ROOT / "tests" / "data" / "builtin" / "tls"
APP: Final = """
from lib import Agent, tool
from lib.llm import FunctionClient, Reply, ToolCall

@tool(effects="once", approval=True)
def refund(order: int) -> str:
    \"\"\"Pay an order back.\"\"\"
    return "paid"

def think(messages):
    call = ToolCall("c1", "refund", {"order": 7})
    return "done" if messages[-1].role == "tool" else Reply((call,), stop="tool_calls")

def agents():
    return [Agent(FunctionClient(think), name="support", tools=[refund])]
"""


def needs(program: str) -> str:
    """Return the path of a program that a machine may lack."""
    if (found := shutil.which(program)) is None:
        pytest.skip(f"{program} is not installed")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@asynccontextmanager
async def a_process(*command: str, place: Path) -> AsyncGenerator[asyncio.subprocess.Process]:
    environment = {**os.environ, "HOME": str(place), "PYTHONPATH": str(place)}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=place, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until_it_answers(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.05)  # noqa: TID251 - other processes have no clock of ours


def unit_command(place: Path, port: int) -> list[str]:
    """Return the command of the unit, with its paths and its port replaced."""
    (command,) = re.findall(r"^ExecStart=(.*)$", FILES["agents.service"], re.MULTILINE)
    command = command.replace("/srv/agents/.venv/bin", str(BIN))
    return [*shlex.split(command.replace("/var/lib/agents", str(place))), "--port", str(port)]


def proxy_of(kind: str, place: Path, port: int, behind: int) -> tuple[list[str], str]:
    """Return the command of a proxy on a port, and the URL under which it is reached."""
    if kind == "caddy":
        text = FILES["Caddyfile"].replace("agents.example.com", f"http://localhost:{port}")
        text = "{\n    admin off\n}\n" + text.replace("127.0.0.1:8000", f"127.0.0.1:{behind}")
        (place / "Caddyfile").write_text(text, encoding="utf-8")
        return [needs("caddy"), "run", "--config", "Caddyfile"], f"http://localhost:{port}"
    text = FILES["nginx.conf"].replace("listen 443", f"listen 127.0.0.1:{port}")
    text = text.replace("agents.example.com", "localhost")
    text = text.replace("/etc/ssl/agents.pem", str(CERTIFICATES / "good.pem"))
    text = text.replace("/etc/ssl/agents.key", str(CERTIFICATES / "good.pem"))
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{behind}")
    whole = f"pid {place}/nginx.pid; events {{}} http {{ access_log off; {text} }}"
    (place / "nginx.conf").write_text(whole, encoding="utf-8")
    command = [needs("nginx"), "-p", str(place), "-c", str(place / "nginx.conf")]
    return [
        *command,
        "-e",
        "stderr",
        "-g",
        "daemon off; master_process off;",
    ], f"https://localhost:{port}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["nginx", "caddy"])
async def test_a_stream_passes_a_proxy_and_brings_the_end(kind: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    store = open_store(str(tmp_path / "runs.db"))
    await store.setup()
    key = await ApiKeys(store).create(tenant="acme", scopes=["read", "run"])
    await store.close()
    behind, port = free_port(), free_port()
    command, url = proxy_of(kind, tmp_path, port, behind)
    trusted = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    headers = {"authorization": f"Bearer {key.key}"}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            a_process(*unit_command(tmp_path, behind), place=tmp_path)
        )
        await stack.enter_async_context(a_process(*command, place=tmp_path))
        client = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=url, headers=headers, verify=trusted, timeout=60)
        )
        await until_it_answers(client)

        order = {"agent": "support", "input": "Refund order 7."}
        own = await client.post("/v1/runs", json=order, headers={"origin": url})
        foreign = await client.post("/v1/runs", json=order, headers={"origin": "https://evil.test"})
        assert (own.status_code, foreign.json()["code"]) == (201, "foreign_origin")

        async with streaming(client, f"/v1/runs/{own.json()['id']}/events") as events:
            assert (await anext(events)).event == "lib.run.started"  # and the run goes on
            server.send_signal(signal.SIGTERM)
            assert [each.event async for each in events][-1] == "server.draining"
        assert await server.wait() == 0


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    verify = needs("systemd-analyze")
    text = FILES["agents.service"].replace("/srv/agents/.venv/bin", str(BIN))
    unit = tmp_path / "agents.service"
    unit.write_text(text.replace("User=agents", "User=root"), encoding="utf-8")

    done = subprocess.run(
        [verify, "verify", str(unit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")
