"""`lib worker` refuses wrong arguments with the rule and the way out."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lib.cli import main

Call = Callable[..., Result]

AGENTS = """
import asyncio
import os
import signal
from contextlib import asynccontextmanager

from lib.algorithms import React
from lib.engine import Engine
from lib.errors import SchemaTooNew, StoreError
from lib.events import MemoryEventStore
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.testing.agents import make_engine
from lib.tools import tool

number = 3

def nothing():
    return None

async def late_nothing():
    return None

class Holder:
    async def __aenter__(self):
        return "no engine"

    async def __aexit__(self, *_):
        return None

def needy(url):
    return None

written_in_c = dict

def client():
    return Engine(MemoryEventStore(), [], algorithms=[React()], drive=False)

def broken():
    raise LookupError("no configuration")

@tool(effects="none", timeout_s=None)
async def end() -> str:
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()

attempts = []

@asynccontextmanager
async def late():
    attempts.append("")
    if len(attempts) < 3:
        raise StoreError("no answer", retryable=True)
    async with ending() as engine:
        yield engine

def stopped_early():
    os.kill(os.getpid(), signal.SIGTERM)
    raise StoreError("no answer", retryable=True)

def down():
    raise StoreError("no answer", retryable=True)

def too_new():
    raise SchemaTooNew("runs.db", found=9, supported=2)

@asynccontextmanager
async def ending():
    client = ScriptedClient([Reply((ToolCall("a", "end"),), stop="tool_calls")])
    store = MemoryEventStore()
    async with (
        Engine(store, [], algorithms=[React()], drive=False) as starter,
        make_engine(client, end, store=store) as engine,
    ):
        await starter.start("go")
        yield engine
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "their_agents.py").write_text(AGENTS, encoding="utf-8")
    (tmp_path / "their_lack.py").write_text("import surely_not_there\n", encoding="utf-8")

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["worker", *arguments])

    return call


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("their_agents", "expected a function that makes an engine as module:name, such as"),
        (":factory", "such as app.agents:make_engine, got ':factory'"),
        ("not_there:make", "there is no module 'not_there'"),
        ("their_agents.deeper:make", "there is no module 'their_agents.deeper'"),
        ("their_agents:make", "module 'their_agents' has no function 'make'"),
        ("their_agents:number", "module 'their_agents' has no function 'number'"),
        ("their_agents:nothing", "the factory returned NoneType, not an Engine: return one"),
        ("their_agents:late_nothing", "the factory returned NoneType, not an Engine"),
        ("their_agents:Holder", "the factory returned str, not an Engine"),
        ("their_agents:client", "made with drive=False"),
        ("their_agents:needy", "'needy' of module 'their_agents' needs arguments: name a function"),
        ("their_agents:written_in_c", "the factory returned dict, not an Engine"),
    ],
)
def test_the_error_of_a_wrong_factory_names_the_way_out(
    worker: Call, spec: str, message: str
) -> None:
    result = worker(spec)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("more", [("--max-runs", "0"), ("--drain-s", "-1")])
def test_a_number_out_of_range_is_a_wrong_call(worker: Call, more: tuple[str, str]) -> None:
    assert worker("their_agents:client", *more).exit_code == 2


def test_what_a_module_itself_lacks_or_a_factory_raises_is_not_hidden(worker: Call) -> None:
    assert isinstance(worker("their_lack:make").exception, ModuleNotFoundError)
    assert isinstance(worker("their_agents:broken").exception, LookupError)


def test_each_change_of_state_is_a_line_of_stderr(worker: Call) -> None:
    result = worker("their_agents:ending", "--max-runs", "1")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "lib worker: working: up to 1 runs of session, react",
        "lib worker: interrupting 1 runs",
        "lib worker: stopped",
    ]


def test_a_store_that_does_not_answer_at_the_start_is_tried_again(worker: Call) -> None:
    result = worker("their_agents:late")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines()[:3] == [
        "lib worker: the store does not answer, trying again for 300 s: no answer",
        "lib worker: the store answers",
        "lib worker: working: up to 32 runs of session, react",
    ]


def test_a_signal_ends_the_wait_for_a_store_at_once(worker: Call) -> None:
    result = worker("their_agents:stopped_early")

    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == "lib worker: stopped before the store answered"


@pytest.mark.parametrize(("factory", "message"), [("down", "no answer"), ("too_new", "layout 9")])
def test_a_store_that_is_not_waited_for_is_one_line(
    worker: Call, factory: str, message: str
) -> None:
    result = worker(f"their_agents:{factory}", "--wait-for-store", "0")

    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("Error: ")


def test_the_command_is_listed_with_the_others() -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    assert "worker Drive the runs of a store that have no worker." in " ".join(text.split())
