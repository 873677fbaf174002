"""The OpenAPI document is true: schemathesis finds no answer that it does not describe."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lib import Agent, Engine, tool
from lib.events import MemoryBlobStore, MemoryEventStore
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib_server import ApiKeyAuthenticator, ApiKeys, Server
from lib_server.a2a import A2AConfig
from lib_server.serve import make_uvicorn

HERE = Path(__file__).parent
WAITING = 25  # runs that wait for a person, before the fuzzing of decisions
ENCODING_WARNINGS = "PYTHONWARNDEFAULTENCODING"  # it reads files without naming theirs
EXAMPLES = 300 if os.environ.get("LIB_TEST_LONG") else 3


@pytest.mark.timeout(7200 if os.environ.get("LIB_TEST_LONG") else 600)
async def test_all_checks_of_schemathesis_pass_also_in_sequences(tmp_path: Path) -> None:
    store = MemoryEventStore()
    engine = Engine(store, agents=[agent()], blobs=MemoryBlobStore())
    auth = ApiKeyAuthenticator(refusal_step_s=0)
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(engine, auth=auth, a2a=A2AConfig(description="Answers."))
    running = make_uvicorn(server, proxies=["127.0.0.1"])
    serving = asyncio.create_task(running.serve([listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/openapi.json"
    try:
        await store.setup()
        key = await ApiKeys(store).create(tenant="acme", user="u@acme", scopes=["admin"])
        await fuzz(url, key.key, "examples,coverage,fuzzing,stateful", EXAMPLES, tmp_path)
        for number in range(WAITING):
            await engine.start("a", tenant="acme", idempotency_key=f"waiting {number}")
        only = ("--include-path-regex", "approvals")
        await fuzz(url, key.key, "stateful", max(EXAMPLES, 15), tmp_path, *only)
        feed = await store.feed(limit=1_000_000)
    finally:
        running.handle_exit(signal.SIGTERM, None)
        await serving

    assert any(event.kind == k.APPROVAL_DECIDED for event in feed.events)


async def fuzz(url: str, key: str, phases: str, examples: int, place: Path, *options: str) -> None:
    """Let schemathesis check the routes that a document describes."""
    fuzzing = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli"),
        *("--config-file", str(HERE / "schemathesis.toml"), "run", url),
        *("--phases", phases, "--checks", "all", *options),
        *("--max-examples", str(examples), "--seed", "1", "--continue-on-failure"),
        *("--request-timeout", "60"),
        *("--suppress-health-check", "all", "--warnings", "off", "--no-color"),
        cwd=place,
        env={
            **{name: each for name, each in os.environ.items() if name != ENCODING_WARNINGS},
            "SCHEMATHESIS_HOOKS": "hooks",
            "SCHEMATHESIS_KEY": key,
            "PYTHONPATH": python_path(),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await fuzzing.communicate()
    text = output.decode()
    assert fuzzing.returncode == 0, text[-20_000:]
    assert "Stateful" in text
    assert "Exception in thread" not in text


@tool(approval=True)
def refund() -> str:
    """Pay an order back."""
    return "paid back"


def agent() -> Agent:
    """Return an agent that takes content of every kind, and wants a refund half of the time."""
    kinds = frozenset({"text", "image", "audio", "file"})

    def reply(messages: Sequence[Message]) -> Reply | str:
        last = messages[-1]
        if last.role == "tool" or len(last.text) % 2 == 0:
            return "done"
        return Reply((ToolCall("c", "refund", {}),))

    return Agent(FunctionClient(reply, modalities=kinds), name="echo", tools=[refund])


def python_path() -> str:
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
