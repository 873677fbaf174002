"""`lib store runs`, `unknown`, `settle` and `unlock`: what becomes of runs, and what to do."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fakes.team import boss_of, task, team
from lib.cli import main
from lib.events import NewEvent, SQLiteEventStore
from lib.events import kinds as k
from lib.testing.aio import run
from lib.testing.clock import ManualClock

AT = ManualClock().now()
START: dict[str, Any] = {"algorithm": "react", "input": []}


def call(*words: object, **options: Any) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, words)], catch_exceptions=False, **options)


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def event(kind: str, **data: Any) -> NewEvent:
    return NewEvent(kind, data, AT)


async def store_of(path: Path, logs: dict[str, list[NewEvent]]) -> SQLiteEventStore:
    store = SQLiteEventStore(path)
    await store.setup()
    for run_id, events in logs.items():
        await store.append(run_id, [event(k.RUN_STARTED, **START), *events], expected=0)
    return store


async def idle(store: SQLiteEventStore, run_id: str) -> None:
    """Have a worker find nothing to do in a run."""
    (lease,) = await store.claim("w", ttl_s=60, run_id=run_id)
    info = await store.run(run_id)
    assert info is not None
    await store.release(lease, idle_at=info.head)


def requested(key: str = "tool/1/c1", **more: Any) -> NewEvent:
    data = {"key": key, "call_id": key[-2:], "name": "pay", "args": {"amount": 5}}
    return event(k.TOOL_REQUESTED, **data, effects="once", idempotency_key="i", **more)


def failed(reason: str, key: str = "tool/1/c1") -> NewEvent:
    data = {"key": key, "call_id": key[-2:], "reason": reason}
    return event(k.TOOL_FAILED, **data, code="unknown", message="m")


def test_each_run_says_what_it_does_or_waits_for(tmp_path: Path) -> None:
    request: dict[str, Any] = {"key": "tool/1/c1", "call_id": "c1", "name": "pay", "args": {}}
    logs: dict[str, list[NewEvent]] = {
        "ended": [event(k.RUN_COMPLETED, outcome="COMPLETED")],
        "fresh": [],
        "asks": [event(k.APPROVAL_REQUESTED, **request)],
        "put-off": [event(k.RUN_RESUMED, worker="w", epoch=1, error={"type": "KeyError"})],
        "works": [],
        "dead": [],
        "idle": [],
        "lost-track": [requested(), failed("unknown")],
    }

    async def fill() -> None:
        store = await store_of(tmp_path / "runs.db", logs)
        for run_id in ("asks", "idle"):
            await idle(store, run_id)
        await store.claim("w", ttl_s=3600, run_id="works")
        await store.claim("w", ttl_s=0, run_id="dead")
        await store.close()

    run(fill())

    listed = lines(call("runs", tmp_path / "runs.db", "--json"))
    assert {each["run"]: (each["state"], each["unknown"]) for each in listed} == {
        "ended": ("COMPLETED", 0),
        "fresh": ("waiting for a worker", 0),
        "asks": ("waiting for a person", 0),
        "put-off": ("waiting for time", 0),
        "works": ("working", 0),
        "dead": ("owner dead", 0),
        "idle": ("waiting for a signal", 0),
        "lost-track": ("waiting for a worker", 1),
    }
    assert [each["run"] for each in listed] == list(reversed(logs)), "the newest first"
    shown = call("runs", tmp_path / "runs.db", "--open").stdout
    assert "waiting for a person" in shown
    assert "owner dead" in shown


def test_that_there_are_more_runs_is_said_with_their_number(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await store_of(tmp_path / "runs.db", {f"run-{n}": [] for n in range(103)})
        await store.close()

    run(fill())

    result = call("runs", tmp_path / "runs.db")
    assert result.stderr == "the newest 100 of 103 runs: --limit 103 lists all\n"
    assert result.stdout.splitlines()[1].split()[0] == "run-102"
    assert call("runs", tmp_path / "runs.db", "--limit", 103).stderr == ""


def test_roots_are_totals_of_their_trees_with_separators(tmp_path: Path) -> None:
    async def fill() -> str:
        store = SQLiteEventStore(tmp_path / "runs.db")
        async with team(boss_of(task(0, "a"), task(1, "b")), store=store) as engine:
            started = await engine.start("go")
            await started.result()
            return started.id

    root = run(fill())

    alone = {each["run"]: each for each in lines(call("runs", tmp_path / "runs.db", "--json"))}
    (tree,) = lines(call("runs", tmp_path / "runs.db", "--roots", "--json"))
    assert len(alone) == 3
    assert (tree["run"], tree["runs"], tree["state"]) == (root, 3, "COMPLETED")
    for name in ("events", "input_tokens", "output_tokens", "llm_calls", "cost"):
        assert tree[name] == sum(each[name] for each in alone.values())
    head, row = call("runs", tmp_path / "runs.db", "--roots").stdout.splitlines()
    assert head.split()[6:9] == ["runs", "events", "unknown"]
    assert root in row


def test_large_numbers_have_separators(tmp_path: Path) -> None:
    usage = {"input_tokens": 1234567, "output_tokens": 7654}
    reply: dict[str, Any] = {"parts": [], "model": "m", "usage": usage}
    log = [
        event(k.LLM_REQUESTED, key="llm/1", upto=1, digest="d"),
        event(k.LLM_COMPLETED, key="llm/1", reply=reply),
    ]

    async def fill() -> None:
        await (await store_of(tmp_path / "runs.db", {"run": log})).close()

    run(fill())

    row = call("runs", tmp_path / "runs.db").stdout.splitlines()[1]
    assert "1,234,567" in row
    assert "7,654" in row


def test_calls_of_unknown_outcome_are_listed_until_they_are_settled(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    logs = {
        "alpha-1": [requested(), failed("unknown")],
        "alpha-2": [
            requested(),
            failed("cancelled"),
            requested("tool/2/c2"),
            failed("error", "tool/2/c2"),
        ],
        "never-made": [requested(unstarted=True), failed("unknown")],
    }

    async def fill() -> None:
        await (await store_of(path, logs)).close()

    run(fill())

    assert [
        (each["run_id"], each["key"], each["arguments"])
        for each in lines(call("unknown", path, "--json"))
    ] == [
        ("alpha-1", "tool/1/c1", {"amount": 5}),
        ("alpha-2", "tool/1/c1", {"amount": 5}),
    ]
    assert "alpha-1" in call("unknown", path).stdout

    settled = call(
        "settle", path, "alpha-1", "c1", "--happened", "--result", '"paid"', "--user", "ada"
    )
    assert settled.stdout == "settled: pay tool/1/c1 of run alpha-1 happened\n"
    assert call("settle", path, "alpha-2", "tool/1", "--did-not-happen").exit_code == 0
    nothing = call("unknown", path)
    assert (nothing.stdout, nothing.stderr) == ("", "no call has an unknown outcome\n")
    (first,) = [
        e for e in lines(call("events", path, "alpha-1", "--json")) if e["kind"] == k.CALL_SETTLED
    ]
    assert (first["user"], first["data"]["happened"], first["data"]["result"]) == (
        "ada",
        True,
        "paid",
    )
    assert call("verify", path, "--json").exit_code == 0


def settled_with(path: Path, *words: object) -> dict[str, Any]:
    """Return what the log of `run` holds of a settlement."""

    async def fill() -> None:
        await (await store_of(path, {"run": [requested(), failed("unknown")]})).close()

    run(fill())
    done = call("settle", path, "run", "c1", "--happened", *words)
    assert done.exit_code == 0, done.output
    (found,) = [
        e for e in lines(call("events", path, "run", "--json")) if e["kind"] == k.CALL_SETTLED
    ]
    return found["data"]


def test_what_a_person_types_goes_through_a_redactor_before_it_is_on_the_log(
    tmp_path: Path,
) -> None:
    typed = {"no": 17, "to": "ann@example.com", "card": "4111 1111 1111 1111"}

    data = settled_with(tmp_path / "runs.db", "--result", json.dumps(typed))

    assert (data["key"], data["result"]["no"]) == ("tool/1/c1", 17)
    assert "ann@example.com" not in json.dumps(data)
    assert "4111" not in json.dumps(data)


def test_the_redactor_is_that_of_an_engine_of_yours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settling_app.py").write_text(
        """
from lib.algorithms import React
from lib.engine import Engine, LLMHandler
from lib.events import MemoryEventStore
from lib.llm import ScriptedClient

class Words:
    def redact(self, text):
        return text.replace("blue", "[COLOUR]")

def engine():
    handlers = [LLMHandler(ScriptedClient([]))]
    return Engine(MemoryEventStore(), handlers, algorithms=[React()], redactor=Words())
""",
        encoding="utf-8",
    )

    data = settled_with(
        tmp_path / "runs.db", "--result", '"blue ann@example.com"', "--app", "settling_app:engine"
    )

    assert data["result"] == "[COLOUR] ann@example.com"


def test_a_call_is_settled_once_whatever_is_said_later(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = settled_with(path, "--result", '"paid"')

    for again in ("--happened", "--did-not-happen"):
        refused = call("settle", path, "run", "c1", again)
        assert (refused.exit_code, "no call of this run is unknown" in refused.stderr) == (1, True)

    events = lines(call("events", path, "run", "--json"))
    assert [e["data"] for e in events if e["kind"] == k.CALL_SETTLED] == [first]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("alpha-1", "c1"), 2, "--happened or --did-not-happen"),
        (("alpha-1", "c1", "--did-not-happen", "--result", "1"), 2, "--result goes with"),
        (("alpha-1", "c1", "--happened", "--result", "{"), 2, "expected JSON"),
        (("alpha-1", "c9", "--happened"), 1, "those of this run are 'tool/1/c1', 'tool/2/c2'"),
        (("alpha-1", "tool", "--happened"), 1, "give the whole key"),
        (("alpha", "c1", "--happened"), 1, "is the beginning of 2 runs"),
        (("beta", "c1", "--happened"), 1, "no run 'beta'"),
        (("alpha-2", "c1", "--happened"), 1, "no call of this run is unknown"),
    ],
)
def test_a_wrong_settlement_writes_nothing(
    tmp_path: Path, words: tuple[str, ...], status: int, message: str
) -> None:
    path = tmp_path / "runs.db"
    two = [requested(), failed("unknown"), requested("tool/2/c2"), failed("unknown", "tool/2/c2")]

    async def fill() -> None:
        await (await store_of(path, {"alpha-1": two, "alpha-2": []})).close()

    run(fill())
    before = call("check", path, "--json").stdout

    result = call("settle", path, *words)

    assert result.exit_code == status
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert call("check", path, "--json").stdout == before


@pytest.mark.parametrize("claims", [1, 7])
def test_unlock_ends_a_lease_says_whose_it_was_and_others_take_over(
    tmp_path: Path, claims: int
) -> None:
    path = tmp_path / "runs.db"

    async def fill() -> None:
        store = await store_of(path, {"run-1": []})
        for _ in range(claims - 1):
            (lease,) = await store.claim("before", ttl_s=60, run_id="run-1")
            await store.release(lease)
        await store.claim("dead-worker", ttl_s=3600, run_id="run-1")
        await store.close()

    run(fill())

    refused = call("unlock", path, "run", input="n\n")
    assert (refused.exit_code, "held by dead-worker until" in refused.stdout) == (1, True)
    done = call("unlock", path, "run", "--yes")
    assert (
        done.exit_code,
        done.stdout.startswith("ended: the lease of run run-1, held by dead-worker"),
    ) == (0, True)

    async def take() -> bool:
        store = SQLiteEventStore(path)
        await store.setup()
        await asyncio.sleep(0.002)  # noqa: TID251 - the lease ends in a millisecond
        (lease,) = await store.claim("next", ttl_s=60, run_id="run-1")
        await store.release(lease)
        await store.close()
        return lease.takeover

    assert run(take())
    assert "no worker holds run 'run-1'" in call("unlock", path, "run-1", "--yes").stderr
