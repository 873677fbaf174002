"""`lib store` tells what is in a store, and changes nothing in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lib.cli import main
from lib.cli.stores import StoreParam
from lib.events import NewEvent, SQLiteEventStore
from lib.events import kinds as k
from lib.events.store import LAYOUT_VERSION
from lib.events.urls import parse_store_url
from lib.testing.aio import run
from lib.testing.clock import ManualClock

from .runs_kit import BEGUN, filled

SINCE = f"{ManualClock().now():%Y-%m-%d %H:%M:%S}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one finished run of tenant acme and one that waits to be driven."""
    return filled(tmp_path, {"run-two": BEGUN}, tenant="acme", text="acted")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, arguments)], catch_exceptions=False)


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_check_tells_the_layout_and_how_much_there_is(path: Path) -> None:
    result = call("check", path, "--json")

    assert (result.exit_code, lines(result)) == (
        0,
        [
            {
                "store": str(path),
                "layout": LAYOUT_VERSION,
                "supported": LAYOUT_VERSION,
                "runs": 2,
                "open": 1,
                "events": 9,
            }
        ],
    )


def test_no_runs_is_a_line_for_people_and_nothing_for_programs(path: Path) -> None:
    for more in ([], ["--by", "model"]):
        shown = call("runs", path, "--tenant", "another", *more)
        assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "no runs\n")
        lines_of_json = call("runs", path, "--tenant", "another", *more, "--json")
        assert (lines_of_json.exit_code, lines_of_json.output) == (0, "")


def test_runs_are_listed_for_people_and_for_programs(path: Path) -> None:
    unused = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0}
    unused |= {"cache_write_tokens": 0, "reasoning_tokens": 0, "calls": 0, "unpriced": 0}
    done: dict[str, object] = {
        "run": "run-one",
        "algorithm": "react",
        "tenant": "acme",
        "status": "COMPLETED",
        "state": "COMPLETED",
        "runs": 1,
        "events": 8,
        "unknown": 0,
        "created": "2026-01-01T00:00:00+00:00",
        "seconds": 0.0,
        "llm_calls": 2,
        "tool_calls": 1,
        "guard_calls": 0,
        **unused,
        "calls": 2,
        "input_tokens": 22,
        "output_tokens": 3,
        "unpriced": 2,
        "known_cost": 0.0,
        "cost": None,
    }
    waits = {**done, "run": "run-two", "tenant": None, "status": "open", "events": 1}
    waits["state"] = "waiting for a worker"
    waits |= {"llm_calls": 0, "tool_calls": 0, **unused, "cost": 0.0}

    assert lines(call("runs", path, "--json")) == [waits, done]
    assert lines(call("runs", f"sqlite:///{path}", "--open", "--json")) == [waits]
    assert lines(call("runs", path, "--tenant", "acme", "--json")) == [done]
    assert lines(call("runs", path, "--limit", 1, "--json")) == [waits]
    assert call("runs", path, "--tenant", "another").stdout == ""
    shown = call("runs", path).stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["run", "run-two", "run-one"]


def test_stored_control_characters_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    async def fill() -> None:
        store = SQLiteEventStore(tmp_path / "runs.db", clock=ManualClock())
        await store.setup()
        data: dict[str, Any] = {"algorithm": "[/red]\x1b[31m", "input": []}
        event = NewEvent(k.RUN_STARTED, data, ManualClock().now(), tenant="[bold]\n[/x]")
        await store.append("run", [event], expected=0)
        await store.close()

    run(fill())
    shown = call("runs", tmp_path / "runs.db").stdout
    assert "[/red] [31m" in shown
    assert "[bold] [/x]" in shown
    assert "\x1b" not in shown


def test_events_are_a_table_without_content_and_json_with_it(path: Path) -> None:
    shown = call("events", path, "run-one").stdout
    events = lines(call("events", path, "run-one", "--json"))

    assert "lib.tool.completed" in shown
    assert "acted" not in shown
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert events[4]["data"] == {"key": "tool/1/c1", "call_id": "c1", "output": "acted"}


def test_a_sound_store_verifies(path: Path) -> None:
    result = call("verify", path, "--deep")

    summary = "runs: 2, events: 9, faults: 0, decided again: 2\n"
    assert (result.exit_code, result.stdout) == (0, summary)


def test_a_fault_is_shown_and_sets_the_exit_status(path: Path) -> None:
    async def harm() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        result = {"key": "tool/1/never", "call_id": "never", "output": "?"}
        new = NewEvent(k.TOOL_COMPLETED, result, ManualClock().now())
        await store.append("run-two", [new], expected=1)
        await store.close()

    run(harm())
    blobs = path.parent / "blobs"
    blobs.mkdir()

    result = call("verify", path, "--blobs", blobs, "--json")

    assert result.exit_code == 1
    assert [(fault["run"], fault["seq"]) for fault in lines(result)] == [("run-two", 2)]
    assert "faults: 1" in call("verify", path).stdout


@pytest.mark.parametrize("command", ["check", "runs", "verify"])
def test_nothing_is_written_by_looking(path: Path, command: str) -> None:
    before = path.read_bytes()

    assert call(command, path).exit_code == 0
    assert path.read_bytes() == before


def test_what_is_not_there_is_a_wrong_call_and_not_a_new_file(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.db"

    assert call("runs", missing).exit_code == 2
    assert "unknown scheme 'mysql'" in call("runs", "mysql://localhost").stderr
    assert "outlives this command" in call("runs", "memory:").stderr
    assert "no event store at ':memory:'" in call("runs", ":memory:").stderr
    assert not missing.exists()


@pytest.mark.parametrize(
    "path",
    [
        "postgresql://me:secret@db/a@b",
        "mysql://me:secret@db/app",
        "host=db password=secret",
        "v.db?table=x",
        "long" * 100,
    ],
)
def test_what_is_no_path_of_a_file_is_a_wrong_call_that_shows_no_password(path: str) -> None:
    result = call("check", path)

    assert (result.exit_code, "secret" in result.stderr) == (2, False)
    assert "Invalid value for 'STORE'" in result.stderr


def test_a_place_that_was_named_before_stays_what_it_is(path: Path) -> None:
    place = parse_store_url(path)

    assert StoreParam().convert(place, None, None) is place


def test_an_unknown_run_and_a_damaged_store_are_one_line_and_no_traceback(
    path: Path, tmp_path: Path
) -> None:
    unknown = call("events", path, "run-three")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: no run 'run-three' in this store\n")

    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"not a database" * 100)
    result = call("check", damaged)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")


def test_the_command_lists_its_subcommands_without_loading_them() -> None:
    assert CliRunner().invoke(main, ["store", "runs", "-h"]).exit_code == 0
    shown = CliRunner().invoke(main, ["--help"])

    assert "demo" in shown.stdout
    assert "store" in shown.stdout
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2
    assert CliRunner().invoke(main, ["--version"]).stdout == "lib, version 0.3.1\n"


def test_approvals_lists_what_waits_for_a_person_and_decides_nothing(
    path: Path, tmp_path: Path
) -> None:
    assert call("approvals", path).stderr == "nothing waits for a person\n"
    assert call("approvals", path, "--json").output == ""
    clock = ManualClock()
    request = {"key": "tool/1/c1", "call_id": "c1", "name": "pay", "args": {"why": "x" * 99}}

    async def ask() -> None:
        store = SQLiteEventStore(path, clock=clock)
        await store.setup()
        for run_id, tenant in (("run-a", "acme"), ("run-b", None)):
            events = [(k.RUN_STARTED, BEGUN), (k.APPROVAL_REQUESTED, request)]
            new = [NewEvent(kind, data, clock.now(), tenant) for kind, data in events]
            await store.append(run_id, new, expected=0)
        await store.close()

    run(ask())
    before = path.read_bytes()
    head, *rows = call("approvals", path).stdout.splitlines()
    assert head.split() == ["run", "key", "tool", "arguments", "tenant", "since"]
    cut = '{"why": "' + "x" * 68 + "..."
    assert rows[0].split() == ["run-a", "tool/1/c1", "pay", *cut.split(), "acme", *SINCE.split()]
    assert rows[1].split() == ["run-b", "tool/1/c1", "pay", *cut.split(), *SINCE.split()]
    assert lines(call("approvals", path, "--tenant", "acme", "--json")) == [
        {
            "run_id": "run-a",
            "key": "tool/1/c1",
            "call_id": "c1",
            "name": "pay",
            "arguments": request["args"],
            "tenant": "acme",
            "since": clock.now().isoformat(),
        }
    ]
    assert path.read_bytes() == before
    assert call("approvals", tmp_path / "none.db").exit_code == 2
