"""`lib memory` shows what is remembered of whom, and lets people correct and forget it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lib.cli.main import main
from lib.memory import Memory
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.vector import Record, SQLiteVectorStore

ANN = ["--tenant", "acme", "--user", "ann"]


def call(*arguments: object, **options: Any) -> Result:
    return CliRunner().invoke(main, ["memory", *map(str, arguments)], **options)


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    async def fill() -> None:
        clock = ManualClock()
        async with Memory(tmp_path / "memory.db", clock=clock) as memory:
            for user, text, key in (
                ("ann", "Lives in Paris", "home"),
                ("ann", "Lives in Berlin", "home"),
                ("ann", "Likes \x1b[31mtea", ""),
                ("bob", "Likes beer", ""),
            ):
                clock.advance(86_400)
                await memory.remember(text, tenant="acme", user=user, key=key, source="r1")

    run(fill())
    return tmp_path / "memory.db"


def test_list_names_owners_then_facts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows(call("list", path, "--json")) == [
        {"tenant": "acme", "user": "ann", "facts": 2},
        {"tenant": "acme", "user": "bob", "facts": 1},
    ]
    assert [row["text"] for row in rows(call("list", path, *ANN, "--json"))] == [
        "Likes tea",
        "Lives in Berlin",
    ]
    shown = call("list", path, *ANN, "--superseded").stdout
    assert "Lives in Paris (superseded by" in " ".join(shown.split())
    assert call("list", path, "--tenant", "acme", "--user", "eve").stdout == ""
    monkeypatch.setenv("LIB_MEMORY_STORE", str(path))
    assert len(rows(call("list", *ANN, "--json"))) == 2


def test_show_takes_the_beginning_of_an_id(path: Path) -> None:
    old = rows(call("list", path, *ANN, "--superseded", "--json"))[-1]

    assert rows(call("show", path, old["id"][:6], *ANN, "--json")) == [old]
    assert (
        "why: it tells the same, and was said later" in call("show", path, old["id"], *ANN).output
    )
    missing = call("show", path, "zzz", *ANN)
    assert (missing.exit_code, "there is no fact 'zzz'" in missing.output) == (1, True)
    foreign = call("show", path, old["id"], "--tenant", "acme", "--user", "bob")
    assert foreign.exit_code == 1


def test_correct_and_forget(path: Path) -> None:
    fact = rows(call("list", path, *ANN, "--json"))[1]

    [new] = rows(call("correct", path, fact["id"], "Lives in Bonn", *ANN, "--json"))
    refused = call("forget", path, new["id"], *ANN, input="n\n")
    gone = rows(call("forget", path, new["id"], *ANN, "--yes", "--json"))

    assert (new["text"], new["key"]) == ("Lives in Bonn", "home")
    assert (refused.exit_code, "Lives in Bonn" in refused.stderr) == (1, True)
    assert gone == [{"facts": 3}]  # with Berlin and Paris, whose place it had taken
    assert b"Berlin" not in path.read_bytes()
    assert call("correct", path, fact["id"], " ", *ANN).exit_code == 2


def test_forget_all_asks_whose(path: Path) -> None:
    assert call("forget", path, "--all", "--yes").exit_code == 2
    assert call("forget", path, *ANN, "--yes").exit_code == 2
    assert call("forget", path, "x", "--all", *ANN).exit_code == 2
    assert call("forget", path, "--all", *ANN, "--yes").stdout == "facts: 3\n"
    assert rows(call("list", path, "--json")) == [{"tenant": "acme", "user": "bob", "facts": 1}]
    assert call("forget", path, "--all", "--tenant", "acme", "--yes").stdout == "facts: 1\n"


def test_export_and_expire(path: Path) -> None:
    everything = rows(call("export", path))

    assert [(row["user"], row["text"]) for row in everything] == [
        ("ann", "Likes tea"),
        ("ann", "Lives in Berlin"),
        ("ann", "Lives in Paris"),
        ("bob", "Likes beer"),
    ]
    assert len(rows(call("export", path, "--user", "bob"))) == 1
    assert call("expire", path).exit_code == 2
    assert rows(call("expire", path, "--older-than", "1d", "--json")) == [{"facts": 4}]


def test_a_memory_with_an_embedder_asks_for_its_model(tmp_path: Path) -> None:
    async def fill() -> None:
        store = SQLiteVectorStore(tmp_path / "memory.db", dimension=3)
        meta: dict[str, Any] = {"user": "ann", "current": True, "key": "", "said_at": 1.0}
        record = Record("f1", [1.0, 0.0, 0.0], "Likes tea", {**meta, "since": 1.0})
        await store.upsert([record], namespace="#memory/ann")
        await store.close()

    run(fill())
    refused = call("correct", tmp_path / "memory.db", "f1", "x", "--user", "ann")

    assert (refused.exit_code, "name its --model" in refused.output) == (2, True)
    assert len(rows(call("list", tmp_path / "memory.db", "--user", "ann", "--json"))) == 1


def test_no_store_is_made(tmp_path: Path) -> None:
    assert call("list", tmp_path / "none.db").exit_code == 2
    assert not (tmp_path / "none.db").exists()


def test_erasing_a_run_reaches_the_memory(tmp_path: Path, path: Path) -> None:
    from lib import Agent
    from lib.llm import ScriptedClient

    agent = Agent(ScriptedClient(["Hello."]))

    async def answer() -> str:
        async with agent.engine(tmp_path / "runs.db") as engine:
            started = await agent.start(engine, "Hi", tenant="acme", user="ann")
            await started.result()
            async with Memory(path) as memory:
                await memory.remember("Only here", tenant="acme", user="ann", source=started.id)
            return started.id

    run_id = run(answer())
    arguments = ["erase-run", str(tmp_path / "runs.db"), run_id, "--memory", str(path), "--json"]
    counted = CliRunner().invoke(main, ["privacy", *arguments, "--dry-run"])
    erased = CliRunner().invoke(main, ["privacy", *arguments, "--yes"])

    assert json.loads(counted.stdout) == json.loads(erased.stdout)
    assert json.loads(erased.stdout)["vectors"] == 1
    assert b"Only here" not in path.read_bytes()
