"""A real Chroma server on loopback: one a process, started on its first use."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Final

import httpx2

from lib.errors import install_command

_HOST: Final = "127.0.0.1"
_START_S: Final = 240.0
_POLL_S: Final = 0.02
_lock = threading.Lock()
_ports: list[int] = []


def chroma_server() -> tuple[str, int]:
    """Return host and port of this process's server; it ends with the process. Blocks.

    What it holds outlives a test: take a prefix of your own, or `forget_collections`.

    Raises:
        RuntimeError: it does not start, or chromadb is not installed.
    """
    with _lock:
        if not _ports:
            _ports.append(_started())
        return _HOST, _ports[0]


def forget_collections() -> None:
    """Delete all that this process's server holds: listing grows slow with what tests leave."""
    host, port = chroma_server()
    database = f"http://{host}:{port}/api/v2/tenants/default_tenant/databases/default_database"
    http = _client()
    for collection in http.get(f"{database}/collections").raise_for_status().json():
        http.delete(f"{database}/collections/{collection['name']}").raise_for_status()


@cache
def _client() -> httpx2.Client:
    return httpx2.Client(timeout=_START_S)


def _started() -> int:
    command = _command()
    if command is None:
        raise RuntimeError(f"there is no command 'chroma': {install_command('chroma')}")
    folder = tempfile.mkdtemp(prefix="lib-chroma-")
    port = _free_port()
    with Path(folder, "log").open("wb") as log:
        server = subprocess.Popen(
            [command, "run", "--path", folder, "--host", _HOST, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    atexit.register(_stop, server, folder)
    deadline = time.monotonic() + _START_S
    while not _listens(port):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"chroma did not start: {Path(folder, 'log').read_text('utf-8')[-500:]}"
            )
        time.sleep(_POLL_S)
    return port


def _command() -> str | None:
    return shutil.which("chroma", path=str(Path(sys.executable).parent)) or shutil.which("chroma")


def _stop(server: subprocess.Popen[bytes], folder: str, patience_s: float = 5.0) -> None:
    server.terminate()
    try:
        server.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as probe:
        return probe.getsockname()[1]


def _listens(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True
