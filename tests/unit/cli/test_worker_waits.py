"""`lib worker` waits for a server that is not there yet, works, and ends on a signal."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers.redis import RedisServer

APP = """
import os

from lib.algorithms import React
from lib.engine import Engine, LLMHandler
from lib.events.urls import open_store
from lib.llm import ScriptedClient

def make():
    handlers = [LLMHandler(ScriptedClient([]))]
    return Engine(open_store(os.environ["STORE"]), handlers, algorithms=[React()])
"""


@contextmanager
def worker(folder: Path, store: str, *more: str) -> Generator[subprocess.Popen[str]]:
    (folder / "late_app.py").write_text(APP, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "lib.cli", "worker", "late_app:make", *more],
        cwd=folder,
        env={**os.environ, "STORE": store},
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(process: subprocess.Popen[str], words: str) -> str:
    """Wait for a line of stderr that holds these words."""
    assert process.stderr is not None
    seen = list[str]()
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"no line with {words!r} in {seen}")


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_a_server_that_is_opened_later_is_found(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        with worker(tmp_path, server.url) as process:
            line_with(process, "the store does not answer, trying again for 300 s")
            server.start()
            line_with(process, "the store answers")
            line_with(process, "working: ")
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
    finally:
        server.stop(signal.SIGKILL)


@pytest.mark.parametrize("url", ["postgresql://lib.127.0.0.1:{}/lib", "redis://127.0.0.1:{}"])
def test_a_signal_ends_the_wait_and_without_a_wait_it_is_an_error(tmp_path: Path, url: str) -> None:
    store = url.format(closed_port())

    with worker(tmp_path, store) as process:
        line_with(process, "the store does not answer")
        process.send_signal(signal.SIGTERM)
        line_with(process, "stopped before the store answered")
        assert process.wait() == 0
    with worker(tmp_path, store, "--wait-for-store", "0") as process:
        assert "Traceback" not in line_with(process, "Error: ")
        assert process.wait() == 1
