"""The page "from zero to a team's agent server in ten minutes" is followed word by word.

Its commands run in one shell, in an empty directory, in their order. What is printed is compared
with the page, where … stands for anything. Only two words differ: what is installed already is not
fetched again, and the port is a free one.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "start-a-teams-server.md"
BLOCK: Final = re.compile(
    r"(?:^<!-- ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
END: Final = "-- end of the output --"


class Shell:
    """One bash, to which commands are sent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, commands: str) -> str:
        """Return what the commands print."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{commands}\necho\necho '{END}'\n".encode())
        lines: list[str] = []
        while (line := (await self._process.stdout.readline()).decode()) != f"{END}\n":
            assert line, "the shell has ended"
            lines.append(line)
        return "".join(lines)[:-1]


@asynccontextmanager
async def a_shell(place: Path, environment: dict[str, str]) -> AsyncGenerator[Shell]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "--norc"),
        cwd=place,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Shell(process)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def a_server(command: str, place: Path, environment: dict[str, str]) -> AsyncGenerator[None]:
    """Run a server from when it takes requests on."""
    process = await asyncio.create_subprocess_shell(
        f"exec {command}", cwd=place, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async for line in process.stderr:
        if b"running on" in line:
            break
    reading = asyncio.create_task(process.stderr.read())
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.gather(process.wait(), reading)


def matches(shown: str, printed: str) -> bool:
    pattern = ".*".join(map(re.escape, shown.split("…")))
    return re.fullmatch(pattern, printed) is not None


@pytest.mark.timeout(600)
async def test_the_page_works_word_by_word(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    page = PAGE.read_text(encoding="utf-8").replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done: list[str] = []
    printed = ""
    async with AsyncExitStack() as stack:
        shell = await stack.enter_async_context(a_shell(tmp_path, environment))
        for mark, kind, text in BLOCK.findall(page):
            done.append(mark or kind)
            if kind == "python":
                await asyncio.to_thread((tmp_path / "team.py").write_text, text, "utf-8")
            elif kind == "text":
                assert matches(text, printed), f"the page shows\n{text}\nand this came\n{printed}"
            elif mark == "install":
                assert "packages/lib-server" in text.splitlines()[-1]
            elif mark == "server":
                command = f"{text.strip()} --port {port}"
                await stack.enter_async_context(a_server(command, tmp_path, environment))
            else:
                printed = await shell.run(text)

    assert done[:2] == ["install", "docs_src/team_server.py"]
    assert (done.count("server"), done.count("text")) == (1, 6)
