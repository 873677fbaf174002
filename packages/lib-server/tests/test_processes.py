"""Servers and workers as processes of their own, over one store."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import mcp_task_client
from server_kit import all_of, streaming

from lib.events import SQLiteEventStore
from lib_server import ApiKeys

HERE = Path(__file__).parent


@dataclass(slots=True)
class Process:
    """A process that serves or works.

    Attributes:
        process: of the system.
        client: speaks to it, if it serves.
        line: what the first line of interest in its log has said.
    """

    process: asyncio.subprocess.Process
    client: httpx2.AsyncClient
    line: str

    async def stop(self) -> int:
        """Stop it by SIGTERM and return how it ended."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(300):
            return await self.process.wait()


@asynccontextmanager
async def started(
    store: Path | str, *command: str, until: str, **variables: str
) -> AsyncGenerator[Process]:
    """Start a process and yield it once its log has a line like this.

    Args:
        store: what it works on.
        command: a module and its arguments.
        until: the line, as a pattern.
        variables: of its environment.
    """
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        env=os.environ | {"SERVED_STORE": str(store), "PYTHONPATH": path} | variables,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(300):
        log = b""
        while not (found := re.search(until.encode(), log)):
            line = await process.stderr.readline()
            assert line, log.decode()
            log += line
    draining = asyncio.create_task(process.stderr.read())
    line = found[1].decode() if found.groups() else ""
    url = line if line.startswith("http") else "http://localhost"
    async with httpx2.AsyncClient(base_url=url, timeout=300) as client:
        running = Process(process, client, line)
        try:
            yield running
        finally:
            await running.stop()
            await draining


def serving_process(store: Path | str, *options: str) -> AbstractAsyncContextManager[Process]:
    command = ("lib_server", "serve", "served_app:agents", "--store", str(store), "--port", "0")
    return started(store, *command, *options, until=r"running on (http://[\d.:]+)")


async def test_a_run_of_one_server_is_streamed_and_answered_by_another(tmp_path: Path) -> None:
    store = tmp_path / "log.db"
    async with serving_process(store) as one, serving_process(store) as two:
        order, key = {"input": "hi"}, {"idempotency-key": "k"}
        run = (await one.client.post("/v1/runs", json=order, headers=key)).json()
        again = await two.client.post("/v1/runs", json=order, headers=key)
        sent = await all_of(two.client, f"/v1/runs/{run['id']}/events")
        result = (await two.client.get(f"/v1/runs/{run['id']}/result?wait_s=60")).json()
        codes = [await one.stop(), await two.stop()]

    assert (again.status_code, again.json()["id"]) == (200, run["id"])
    ids = [int(event.id) for event in sent if event.id]
    assert ids == list(range(1, len(ids) + 1))
    assert sent[-1].event == "run.end"
    assert result["text"].startswith("pid ")
    assert codes == [0, 0]


async def test_a_worker_drives_what_a_server_only_serves(tmp_path: Path) -> None:
    store = tmp_path / "log.db"
    async with serving_process(store, "--no-drive") as server:
        run = (await server.client.post("/v1/runs", json={"input": "hi"})).json()
        async with streaming(server.client, f"/v1/runs/{run['id']}/events") as events:
            first = await anext(events)
            waiting = (await server.client.get(f"/v1/runs/{run['id']}")).json()
            worker = ("lib.cli", "worker", "served_app:engine")
            async with started(store, *worker, until="working") as working:
                rest = [event async for event in events]
                result = (await server.client.get(f"/v1/runs/{run['id']}/result")).json()
                code = await working.stop()

    assert (first.event, waiting["state"]) == ("lib.run.started", "queued")
    assert rest[-1].event == "run.end"
    assert result["text"] == f"pid {working.process.pid}"
    assert code == 0


async def test_keys_come_and_go_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with serving_process(path, "--auth", "keys") as server:

        async def status(key: str) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return (await server.client.get("/v1/runs", headers=headers)).status_code

        async with SQLiteEventStore(path) as store:
            keys = ApiKeys(store)
            made = await keys.create(tenant="acme")
            before = await status(made.key)
            await keys.revoke(made.record.key_id)
            async with asyncio.timeout(300):
                while await status(made.key) == 200:
                    pass  # until the server has read the key again

    assert before == 200


async def test_sigterm_ends_every_stream_with_a_last_event(tmp_path: Path) -> None:
    count = 100
    async with serving_process(tmp_path / "log.db", "--no-drive") as server:
        run = (await server.client.post("/v1/runs", json={"input": "hi"})).json()
        async with AsyncExitStack() as stack:
            path = f"/v1/runs/{run['id']}/events"
            limits = httpx2.Limits(max_connections=None)
            client = await stack.enter_async_context(
                httpx2.AsyncClient(base_url=server.client.base_url, timeout=300, limits=limits)
            )
            streams = [
                await stack.enter_async_context(streaming(client, path)) for _ in range(count)
            ]
            for stream in streams:
                await anext(stream)
            stopping = asyncio.create_task(server.stop())
            last = [[event async for event in stream][-1] for stream in streams]
            code = await stopping

    assert [event.event for event in last] == ["server.draining"] * count
    assert code == 0


async def test_a_task_whose_client_and_server_are_killed_is_found_finished(tmp_path: Path) -> None:
    store = tmp_path / "log.db"
    command = ("lib_server", "serve", "served_app:engine", "--port", "0")
    listening = r"running on (http://[\d.:]+)"
    first = started(store, *command, until=listening, SERVED_HANGS="1", SERVED_LEASE_S="1")
    async with first as server:
        url = f"{server.line}/mcp"
        calling = started(store, "mcp_task_client", url, until=r"task (\w+)")
        async with calling as client:
            task_id = client.line
            for killed in (client, server):
                killed.process.kill()
                await killed.process.wait()
    async with started(store, *command, until=listening) as server:
        result = await mcp_task_client.end_of(f"{server.line}/mcp", task_id)
        pid = server.process.pid

    assert [block["text"] for block in result["content"]] == [f"pid {pid}"]
