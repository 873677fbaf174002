"""The cost of a call over MCP: `POST /mcp` of `lib_server`, with a key, beside the bare SDK.

    make bench ARGS=mcp_calls
    scripts/bench mcp_calls --rounds 5 --requests 2000

Both offer one tool and are served by uvicorn in a process of their own; requests of 2026-07-28 come
from this process, one after the other over one connection each, in turn, so that both meet the same
machine. Counted is the CPU time of the serving process, whatever else the machine does. The bare
server is the SDK's low-level one, which checks neither a key nor arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import sys
from pathlib import Path
from typing import Any, Final

import uvicorn
from mcp.server.lowlevel import Server as LowLevelServer
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from lib import Agent, Engine, tool
from lib.events import MemoryEventStore
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer
from lib_server import ApiKeyAuthenticator, ApiKeys, Server

SUBJECTS: Final = {"lib_server, with a key": "ours", "the SDK alone": "bare"}
TICKS: Final = os.sysconf("SC_CLK_TCK")
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


# -- what is served --------------------------------------------------------------------------------


async def ours() -> tuple[Any, str]:
    """Return our server, and a key for it."""
    store = MemoryEventStore()
    await store.setup()
    key = (await ApiKeys(store).create(tenant="acme", scopes=["run"])).key

    @tool(effects="none")
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    engine = Engine(store, agents=[Agent(FunctionClient(lambda _: ""), name="agent")])
    auth = ApiKeyAuthenticator()
    return Server(engine, auth=auth, mcp=lambda engine: MCPToolServer([add], engine=engine)), key


async def bare() -> tuple[Any, str]:
    """Return the server of the SDK, which needs no key."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="add", input_schema=schema)])

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        total = params.arguments["a"] + params.arguments["b"]
        return CallToolResult(
            content=[TextContent(text=str(total))], structured_content={"result": total}
        )

    server: Any = LowLevelServer("bare", on_list_tools=list_tools, on_call_tool=call_tool)
    return server.streamable_http_app(stateless_http=True), ""


async def serve(name: str) -> None:
    """Serve one of them, and say where, and by which key."""
    app, key = await {"ours": ours, "bare": bare}[name]()
    # The protocol is named, since asyncio then sends what is written at once.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        print(json.dumps([listening.getsockname()[1], key]), flush=True)
        options: dict[str, Any] = {"log_level": "error", "access_log": False}
        config = uvicorn.Config(app, loop="asyncio", timeout_keep_alive=3_600, **options)
        await uvicorn.Server(config).serve(sockets=[listening])


# -- requests --------------------------------------------------------------------------------------


def request(key: str) -> bytes:
    """Return a call as bytes of HTTP."""
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: localhost:80\r\nauthorization: Bearer {key}\r\n"
        "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: add\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


class Subject:
    """A server in a process of its own, and a connection to it."""

    def __init__(self, name: str) -> None:
        """Choose one of `SUBJECTS`."""
        self.name = name
        self.cpu_us: list[float] = []

    async def start(self) -> None:
        """Start it, and connect to it."""
        command = [__file__, "--serve", SUBJECTS[self.name]]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE
        )
        assert self.process.stdout is not None
        port, key = json.loads(await self.process.stdout.readline())
        self.request = request(key)
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    async def measure(self, requests: int, *, counts: bool) -> None:
        """Send so many requests; the CPU time of one is noted if it counts."""
        before = self._cpu_s()
        for _ in range(requests):
            self.writer.write(self.request)
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            body = json.loads(await self.reader.readexactly(length))
            if body["result"]["content"][0]["text"] != "3":
                raise RuntimeError(f"{self.name} answers {body}")
        if counts:
            self.cpu_us.append((self._cpu_s() - before) / requests * 1e6)

    def _cpu_s(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    async def stop(self) -> None:
        """End its process."""
        self.writer.close()
        self.process.send_signal(signal.SIGTERM)
        await self.process.wait()


async def main() -> None:
    """Measure both, in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--serve", choices=SUBJECTS.values(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        await serve(options.serve)
        return
    subjects = [Subject(name) for name in SUBJECTS]
    for subject in subjects:
        await subject.start()
    try:
        for round_ in range(options.rounds + 1):
            for subject in subjects:
                await subject.measure(options.requests, counts=round_ > 0)
    finally:
        for subject in subjects:
            await subject.stop()
    ours_us, bare_us = (statistics.median(each.cpu_us) for each in subjects)
    for each in subjects:
        low, high = min(each.cpu_us), max(each.cpu_us)
        median = statistics.median(each.cpu_us)
        print(f"{each.name:24} {median:6.0f} µs of CPU a call ({low:.0f} to {high:.0f})")
    print(f"{'ratio':24} {ours_us / bare_us:6.2f}")


if __name__ == "__main__":
    asyncio.run(main())
