"""`lib store verify --deep` decides the logs of all algorithms again, and counts the others."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fakes.team import boss_of, child_of, task, team
from lib.cli import main
from lib.events import Event, EventStore, NewEvent, SQLiteEventStore
from lib.events import kinds as k
from lib.events.paging import each_run
from lib.llm import ScriptedClient
from lib.testing.agents import make_engine
from lib.testing.aio import run

APP = """
from lib.algorithms import React
from lib.engine import Engine, LLMHandler
from lib.events import MemoryEventStore
from lib.llm import ScriptedClient

class Twice(React):
    def config(self):
        return {"twice": True, **super().config()}

def agents():
    handlers = [LLMHandler(ScriptedClient([]))]
    return Engine(MemoryEventStore(), handlers, algorithms=[Twice("twice", system="again")])
"""


def verify(*words: object) -> Result:
    arguments = ["store", "verify", *map(str, words)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


async def fill(store: EventStore, ids: dict[str, str]) -> None:
    """Make a run, an agent's with a child, and a session with three turns."""
    async with make_engine(ScriptedClient(["done"]), store=kept(store)) as engine:
        alone = await engine.start("go")
        await alone.result()
    async with team(boss_of(task(0, "count")), store=kept(store)) as engine:
        lead = await engine.start("go")
        await lead.result()
        session = await engine.start_session("helper")
        for text in ("one", "two", "three"):
            turn = await session.send(text)
            await turn.result()
        await session.close()
        await session.run.result()
        child = await child_of(store, lead.id)
    ids |= {"root": alone.id, "named": lead.id, "child": child.run_id, "turn": turn.run_id}


def kept(store: EventStore) -> Any:
    return Open(store)


class Open:
    """A store that stays open when an engine closes it."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None: ...


async def copy(source: Path, target: Path, change: Callable[[Event], dict[str, Any]]) -> None:
    """Copy logs with changed payloads, as damage to a store would leave them."""
    old, new = SQLiteEventStore(source), SQLiteEventStore(target)
    await old.setup()
    await new.setup()
    async for info in each_run(old):
        log = await old.read(info.run_id)
        events = [NewEvent(e.kind, change(e), e.at, None, e.user) for e in log]
        await new.append(info.run_id, events, expected=0)
    await old.close()
    await new.close()


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    ids: dict[str, str] = {}

    async def make() -> None:
        store = SQLiteEventStore(tmp_path / "runs.db")
        await store.setup()
        await fill(store, ids)
        await store.close()

    run(make())
    return tmp_path / "runs.db", ids


def test_a_sound_store_of_all_kinds_of_runs_is_decided_whole(
    stores: tuple[Path, dict[str, str]],
) -> None:
    path, _ = stores

    result = verify(path, "--deep")

    assert (result.exit_code, result.stdout) == (
        0,
        "runs: 7, events: 40, faults: 0, decided again: 7\n",
    )


def test_a_damaged_digest_is_found_in_every_kind_of_run(
    stores: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    path, ids = stores
    damaged = set(ids.values())

    def change(event: Event) -> dict[str, Any]:
        if event.run_id in damaged and event.kind == k.LLM_REQUESTED:
            damaged.remove(event.run_id)  # one each
            return {**event.data, "digest": "0" * 64}
        return event.data

    run(copy(path, tmp_path / "damaged.db", change))

    result = verify(tmp_path / "damaged.db", "--deep", "--json")

    assert result.exit_code == 1
    faults = [json.loads(line) for line in result.stdout.splitlines()]
    assert {(each["run"], each["rule"]) for each in faults} == {
        (run_id, "request-digest") for run_id in ids.values()
    }
    assert len(faults) == 4
    assert verify(tmp_path / "damaged.db").exit_code == 0, "only --deep decides again"


def test_what_cannot_be_decided_is_counted_with_the_reason_and_an_app_decides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "verified_app.py").write_text(APP, encoding="utf-8")
    begun = {"algorithm": "twice", "input": [{"role": "user", "content": "go"}]}
    config = {"twice": True, "max_steps": 3}
    request = {"key": "llm/1", "upto": 1, "digest": "0" * 64}

    async def make() -> None:
        store = SQLiteEventStore(path)
        async with make_engine(ScriptedClient(["done"]), store=store) as engine:
            await (await engine.start("go")).result()
            at = engine.clock.now()
            for run_id in ("custom-1", "custom-2"):
                log = [
                    NewEvent(k.RUN_STARTED, {**begun, "config": config}, at),
                    NewEvent(k.LLM_REQUESTED, request, at),
                ]
                await store.append(run_id, log, expected=0)
            await store.append(
                "broken",
                [
                    NewEvent(k.RUN_STARTED, {"algorithm": "react", "input": []}, at),
                    NewEvent(k.TOOL_COMPLETED, {"key": "t", "call_id": "c", "output": ""}, at),
                ],
                expected=0,
            )

    run(make())

    result = verify(path, "--deep", "--json")
    assert result.exit_code == 1
    fault, broken, undecided = (json.loads(line) for line in result.stdout.splitlines())
    assert (fault["run"], fault["rule"]) == ("broken", "result")
    assert (
        undecided
        == {
            "algorithm": "twice",
            "undecided": 2,
            "reason": "its algorithm is not here",
        }
        or broken["algorithm"] == "twice"
    )
    shown = verify(path, "--deep").stdout
    assert "its algorithm is not here" in shown
    assert "another rule is broken" in shown
    assert shown.endswith("runs: 4, events: 10, faults: 1, decided again: 1\n")

    with_app = verify(path, "--deep", "--app", "verified_app:agents", "--json")
    found = [json.loads(line) for line in with_app.stdout.splitlines()]
    assert {each["run"] for each in found if each.get("rule") == "request-digest"} == {
        "custom-1",
        "custom-2",
    }
    assert verify(path, "--app", "verified_app:agents").exit_code == 2
