"""`lib mcp serve` over real pipes: nothing but the protocol is on the wire, and nothing stays."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp_types import TextContent

LIMIT_S = 120  # against hanging only
AT_ONCE = 2_500 if os.environ.get("LIB_TEST_LONG") else 500
SHOP = """
print("imported")

import asyncio
import os
import threading
import time

from lib import Agent, tool
from lib.engine import Engine
from lib.llm import FunctionClient
from lib.mcp import MCPToolServer


@tool(effects="none")
def shout(word: str) -> str:
    "Print, in every way there is."
    print("printed")
    os.write(1, b"written")
    os.system("echo from a child")
    return word.upper()


@tool(effects="none")
async def count(n: int) -> int:
    "Count."
    return n + 1


@tool(timeout_s=None)
def hang() -> None:
    "Hang in a thread."
    print("hangs", flush=True)
    time.sleep(100_000)


@tool(effects="none")
async def held() -> list[int]:
    "What the process holds."
    return [len(os.listdir("/proc/self/fd")), threading.active_count(), len(asyncio.all_tasks())]


def tools():
    print("made")
    return [shout, count, hang, held]


async def engine():
    return Engine("memory:", agents=[Agent(FunctionClient(lambda _: "hello"), name="clerk")])


def nothing():
    return 1
"""
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return tmp_path


def arguments(factory: str) -> list[str]:
    return ["-m", "lib.cli", "mcp", "serve", factory]


@asynccontextmanager
async def started(
    shop: Path, env: dict[str, str], factory: str = "shop:tools"
) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments(factory),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=shop,
        env=env,
        limit=2**20,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def call(number: int, name: str, **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments, "_meta": META}
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(request).encode() + b"\n"


async def answer(process: Process) -> Any:
    assert process.stdout is not None
    return json.loads(await process.stdout.readline())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_prints_is_no_answer(shop: Path, unmeasured: dict[str, str], mode: str) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=arguments("shop:tools"), cwd=shop, env=unmeasured
    )
    async with Client(parameters, mode=mode) as client:
        result = await client.call_tool("shout", {"word": "hello"})

    assert result.content == [TextContent(text="HELLO")]


async def test_every_byte_on_the_wire_is_a_message(shop: Path, unmeasured: dict[str, str]) -> None:
    lines = [call(1, "shout", word="a"), b"no json\n", b'{"jsonrpc": "2.0"}\n', b"\n", b"\xff\n"]
    async with started(shop, unmeasured) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join([*lines, call(2, "count", n=1)]))
        answers = [await answer(process), await answer(process)]
        out, err = await process.communicate(b"")

    assert out == b""
    assert {each["id"]: each["result"]["content"][0]["text"] for each in answers} == {
        1: "A",
        2: "2",
    }
    for words in (b"imported", b"made", b"printed", b"written", b"from a child"):
        assert words in err


async def test_an_agent_of_an_engine_is_served(shop: Path, unmeasured: dict[str, str]) -> None:
    async with started(shop, unmeasured, "shop:engine") as process:
        assert process.stdin is not None
        process.stdin.write(call(1, "clerk", task="hello"))

        assert (await answer(process))["result"]["content"][0]["text"] == "hello"


async def test_the_process_ends_with_its_input_although_a_tool_hangs(
    shop: Path, unmeasured: dict[str, str]
) -> None:
    async with started(shop, unmeasured) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(call(1, "hang"))
        while b"hangs" not in await process.stderr.readline():
            pass
        process.stdin.write(call(2, "count", n=1))
        answered = await answer(process)  # one that hangs keeps no other waiting
        process.stdin.close()
        status = await process.wait()

    assert (answered["id"], status) == (2, 0)


async def test_a_cancelled_call_has_no_answer_and_keeps_no_other_waiting(
    shop: Path, unmeasured: dict[str, str]
) -> None:
    async with started(shop, unmeasured) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(call(1, "hang"))
        while b"hangs" not in await process.stderr.readline():
            pass
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        process.stdin.write(json.dumps(cancel).encode() + b"\n")
        process.stdin.write(call(2, "count", n=1))

        assert (await answer(process))["id"] == 2


async def test_the_process_ends_with_its_client(shop: Path, unmeasured: dict[str, str]) -> None:
    async with started(shop, unmeasured) as process:
        assert process.stdin is not None
        process.stdin.write(call(1, "count", n=1))
        await answer(process)
        transport: Any = vars(process)["_transport"]
        process.stdin.write(b"".join(call(number, "count", n=1) for number in range(100)))
        for pipe in (1, 0):  # what the system closes of a client that was killed
            transport.get_pipe_transport(pipe).close()
        status = await process.wait()

    assert status == 0


async def test_thousands_of_calls_leave_nothing_behind(
    shop: Path, unmeasured: dict[str, str]
) -> None:
    held: list[list[int]] = []
    async with started(shop, unmeasured) as process:
        stdin = process.stdin
        assert stdin is not None

        async def send(first: int, last: int) -> None:
            for number in range(first, last):
                stdin.write(call(number, "count", n=number))
                await stdin.drain()

        for first in range(0, 4 * AT_ONCE, AT_ONCE):
            sending = asyncio.create_task(send(first, first + AT_ONCE))
            answers = [await answer(process) for _ in range(AT_ONCE)]
            await sending
            assert {each["id"] for each in answers} == set(range(first, first + AT_ONCE))
            stdin.write(call(-1, "held"))
            held.append(json.loads((await answer(process))["result"]["content"][0]["text"]))

    assert held[-1] == held[0]


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("shop", "expected an MCPToolServer, or a function that makes one, as module:name"),
        ("shop:missing", "has no object 'missing'"),
        ("shop:nothing", "expected tools as a list"),
    ],
)
async def test_what_cannot_be_served_is_said_on_standard_error(
    shop: Path, unmeasured: dict[str, str], factory: str, words: str
) -> None:
    async with started(shop, unmeasured, factory) as process:
        out, err = await process.communicate(b"")

    assert (process.returncode, out) == (2, b"")
    assert words in err.decode()
