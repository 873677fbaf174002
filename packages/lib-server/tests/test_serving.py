"""Agents are made in the server's own loop, and other machines need an authenticator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from server_kit import OneKey, echo_agent, serving

from lib import Agent, Engine
from lib.events import MemoryEventStore
from lib_server import Server
from lib_server.cli import main
from lib_server.serve import make_uvicorn

made_in: list[asyncio.AbstractEventLoop] = []


def engine() -> Engine:
    made_in.append(asyncio.get_running_loop())
    return Engine(MemoryEventStore(), agents=[echo_agent()])


async def engine_later() -> Engine:
    return engine()


def several() -> list[Agent]:
    made_in.append(asyncio.get_running_loop())
    return [echo_agent(name="first"), echo_agent(name="second")]


@asynccontextmanager
async def with_a_life() -> AsyncGenerator[Engine]:
    async with engine() as opened:
        yield opened


@pytest.mark.parametrize("factory", [engine, engine_later, several, with_a_life])
async def test_a_factory_is_called_in_the_loop_of_the_server(factory: Callable[[], Any]) -> None:
    made_in.clear()
    server = Server(factory)
    assert made_in == []

    async with serving(server) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        result = (await up.client.get(f"/v1/runs/{run['id']}/result?wait_s=60")).json()

    assert made_in == [asyncio.get_running_loop()]
    assert result["text"] == "You wrote: hi"


def test_the_command_listens_on_this_machine_unless_callers_are_authenticated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "served_app.py").write_text("def agents():\n    return []\n", encoding="utf-8")

    result = CliRunner().invoke(main, ["serve", "served_app:agents", "--host", "0.0.0.0"])
    shown = CliRunner().invoke(main, ["serve", "--help"]).output

    assert result.exit_code == 2
    assert "without an authenticator" in result.output
    assert "127.0.0.1" in shown
    assert make_uvicorn(Server(echo_agent())).config.host == "127.0.0.1"
    make_uvicorn(Server(echo_agent(), auth=OneKey()), host="0.0.0.0")
