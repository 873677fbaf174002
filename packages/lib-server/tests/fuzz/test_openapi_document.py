"""The OpenAPI document is true: schemathesis finds no answer that it does not describe."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from lib import Agent, Engine
from lib.events import MemoryBlobStore, MemoryEventStore
from lib.llm import FunctionClient
from lib_server import ApiKeyAuthenticator, ApiKeys, Server
from lib_server.serve import make_uvicorn

HERE = Path(__file__).parent
ENCODING_WARNINGS = "PYTHONWARNDEFAULTENCODING"  # it reads files without naming theirs
EXAMPLES = 300 if os.environ.get("LIB_TEST_LONG") else 3


@pytest.mark.timeout(7200 if os.environ.get("LIB_TEST_LONG") else 600)
async def test_all_checks_of_schemathesis_pass_also_in_sequences(tmp_path: Path) -> None:
    store = MemoryEventStore()
    engine = Engine(store, agents=[agent()], blobs=MemoryBlobStore())
    auth = ApiKeyAuthenticator(refusal_step_s=0)
    listening = socket.create_server(("127.0.0.1", 0))
    running = make_uvicorn(Server(engine, auth=auth), proxies=["127.0.0.1"])
    serving = asyncio.create_task(running.serve([listening]))
    try:
        await store.setup()
        key = await ApiKeys(store).create(tenant="acme", user="u@acme", scopes=["admin"])
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/openapi.json"
        fuzzing = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli"),
            *("--config-file", str(HERE / "schemathesis.toml"), "run", url),
            *("--phases", "examples,coverage,fuzzing,stateful", "--checks", "all"),
            *("--max-examples", str(EXAMPLES), "--seed", "1", "--continue-on-failure"),
            *("--request-timeout", "60"),
            *("--suppress-health-check", "all", "--warnings", "off", "--no-color"),
            cwd=tmp_path,
            env={
                **{name: each for name, each in os.environ.items() if name != ENCODING_WARNINGS},
                "SCHEMATHESIS_HOOKS": "hooks",
                "SCHEMATHESIS_KEY": key.key,
                "PYTHONPATH": python_path(),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await fuzzing.communicate()
    finally:
        running.handle_exit(signal.SIGTERM, None)
        await serving

    text = output.decode()
    assert fuzzing.returncode == 0, text[-20_000:]
    assert "Stateful" in text


def agent() -> Agent:
    """Return an agent that takes content of every kind."""
    kinds = frozenset({"text", "image", "audio", "file"})
    return Agent(FunctionClient(lambda _: "done", modalities=kinds), name="echo")


def python_path() -> str:
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
