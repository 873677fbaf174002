"""`lib-server demo`: its agents answer, and one of them asks first."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from server_kit import streaming

from lib_server.cli import main


@asynccontextmanager
async def the_demo(data: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run the command and yield a client of its server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lib_server", "demo", "--port", "0", "--data", str(data)),
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "", "OLLAMA_HOST": "127.0.0.1:1", "PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stderr is not None
    found = None
    async for line in process.stderr:
        if found := re.search(r"running on (http://\S+)", line.decode()):
            break
    assert found is not None
    draining = asyncio.create_task(process.stderr.read())
    try:
        async with httpx2.AsyncClient(base_url=found[1], timeout=120) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        await draining


@pytest.mark.timeout(600)
async def test_its_agents_answer_and_one_asks_first(tmp_path: Path) -> None:
    async with the_demo(tmp_path) as client:
        agents = (await client.get("/v1/agents")).json()["agents"]
        page = await client.get("/console/")
        question = {"agent": "librarian", "input": "What is kept when a process is killed?"}
        started = (await client.post("/v1/runs", json=question)).json()
        answer = (await client.get(f"/v1/runs/{started['id']}/result?wait_s=60")).json()
        paying = {"agent": "cashier", "input": "Pay order 7"}
        run = (await client.post("/v1/runs", json=paying)).json()
        async with streaming(client, f"/v1/runs/{run['id']}/events") as events:
            async for event in events:
                if event.event == "lib.approval.requested":
                    break
        [waiting] = (await client.get("/v1/approvals")).json()["approvals"]
        decision = {"decision": "approve", "arguments_digest": waiting["arguments_digest"]}
        path = f"/v1/runs/{run['id']}/approvals/{waiting['key']}"
        await client.post(path, json=decision)
        result = (await client.get(f"/v1/runs/{run['id']}/result?wait_s=60")).json()
        unclear = (await client.post("/v1/runs", json={**paying, "input": "Hello"})).json()
        reply = (await client.get(f"/v1/runs/{unclear['id']}/result?wait_s=60")).json()

    assert [agent["name"] for agent in agents] == ["librarian", "cashier"]
    assert page.status_code == 200
    assert answer["outcome"] == "COMPLETED"
    assert answer["text"]
    assert result["text"] == "The payment: paid order 7: 100 EUR to Ada"
    assert reply["text"].startswith("Which order")


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = CliRunner().invoke(main, ["demo", "--data", str(tmp_path / "file" / "demo")])

    assert result.exit_code == 1
    assert "cannot be written" in result.output
    assert "--data" in result.output
