"""`lib trace` shows one trace, and changes nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from lib.cli import main
from lib.cli import trace as trace_module
from lib.cli.stores import find_run
from lib.errors import RunNotFound
from lib.evals import Score, score_event
from lib.events import MemoryEventStore, NewEvent, SQLiteEventStore
from lib.events import kinds as k
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin

from .runs_kit import BEGUN, filled

SECRET = "the customer's secret"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a finished run, a run that has only begun, and a child of it."""
    child = {**BEGUN, "root": "run-two", "parent": {"run_id": "run-two", "key": "tool/1/a"}}
    return filled(tmp_path, {"run-two": BEGUN, "part-of-two": child}, text=SECRET)


def call(store: Path, *arguments: object) -> Result:
    command = ["trace", *map(str, arguments), "--store", str(store)]
    return CliRunner().invoke(main, command, catch_exceptions=False)


def test_a_trace_is_drawn_without_content(path: Path) -> None:
    shown = call(path, "run-one")

    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[:2] == ["react · COMPLETED", "run-one, begun 2026-01-01 00:00:00 UTC"]
    assert lines[2].split() == ["0"]
    assert [line.split("  ")[0] for line in lines[3:-1]] == [
        "◆ agent react",
        "├─ ● chat scripted",
        "├─ ■ tool act",
        "└─ ● chat scripted",
    ]
    assert SECRET not in shown.stdout
    assert SECRET in call(path, "run-one", "--content").stdout


def test_a_run_below_the_root_shows_the_whole_trace(path: Path) -> None:
    assert call(path, "part-of-two").stdout == call(path, "run-two").stdout
    assert "run-two" in call(path, "part-of-two").stdout.splitlines()[1]
    assert "1 span of 2 not shown" in call(path, "run-two", "--depth", 1).stdout
    assert "3 spans of 4 not shown" in call(path, "run-one", "--limit", 1).stdout


def test_the_beginning_of_an_id_will_do_if_only_one_run_begins_with_it(path: Path) -> None:
    assert call(path, "run-o").stdout == call(path, "run-one").stdout
    result = call(path, "run-")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: 'run-' is the beginning of 2 runs: 'run-one', 'run-two'; give more of the id\n"
    )


async def test_of_many_runs_that_begin_alike_few_are_named() -> None:
    store = MemoryEventStore()
    await store.setup()
    for number in range(5):
        await begin(store, f"run-{number}")

    with pytest.raises(click.ClickException, match="5 runs: 'run-0', 'run-1', 'run-2' and 2 more;"):
        await find_run(store, "run")


def test_a_missing_store_or_run_is_one_line_with_the_status_of_the_other_commands(
    path: Path, tmp_path: Path
) -> None:
    unknown = call(path, "run-three")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: no run 'run-three' in this store\n")

    missing = call(tmp_path / "nothing.db", "run-one")
    assert missing.exit_code == 2
    assert "there is no event store at" in missing.stderr
    assert not (tmp_path / "nothing.db").exists()


def test_an_error_about_a_child_run_names_its_root(path: Path) -> None:
    async def orphan() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        parent = {"run_id": "gone", "key": "tool/1/a"}
        data: dict[str, Any] = {"algorithm": "a", "input": [], "root": "gone", "parent": parent}
        new = NewEvent(k.RUN_STARTED, data, ManualClock().now())
        await store.append("orphan", [new], expected=0)
        await store.close()

    run(orphan())

    assert call(path, "orphan").stderr == f"Error: {RunNotFound('gone')}\n"


def test_nothing_is_written_by_looking(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()

    call(path, "run-one", "--html", tmp_path / "page.html", "--content")

    assert path.read_bytes() == before


@pytest.mark.parametrize("width", [20, 79, 200])
def test_the_width_is_the_requested_one(path: Path, width: int) -> None:
    lines = call(path, "run-one", "--width", width).stdout.splitlines()

    assert max(map(len, lines)) <= width
    assert max(map(len, lines)) > width // 2


def test_a_pipe_gets_no_colour_and_a_width_that_does_not_depend_on_the_terminal(
    path: Path, unmeasured: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "lib.cli", "trace", "run-one", "--store", str(path)]
    shown = [
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        for environment in (
            {**unmeasured, "COLUMNS": "40", "PYTHONIOENCODING": "utf-8"},
            {**unmeasured, "PYTHONIOENCODING": "utf-8"},
        )
    ]

    assert shown[0] == shown[1]
    assert b"\x1b" not in shown[0]
    widest = max(len(line) for line in shown[0].decode().splitlines())
    assert 100 < widest <= trace_module.PIPE_WIDTH


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_its_own_width_and_colours_unless_it_wants_none(
    path: Path, unmeasured: dict[str, str], colour: bool
) -> None:
    import fcntl
    import pty
    import struct
    import termios

    dropped = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE")
    environment = {name: value for name, value in unmeasured.items() if name not in dropped}
    environment |= {"TERM": "xterm-256color", **({} if colour else {"NO_COLOR": "1"})}
    command = [sys.executable, "-m", "lib.cli", "trace", "run-one", "--store", str(path)]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 61, 0, 0))

    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs) as process:
        process.wait()
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)

    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in shown.splitlines()]
    assert 50 < max(map(len, plain)) <= 61
    assert ("\x1b[32m" in shown) is colour


def test_a_pipe_that_wants_colours_has_the_width_that_it_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "61")

    assert "\x1b[" in call(path, "run-one").stdout


def test_an_id_that_a_terminal_would_obey_is_shown_as_text(path: Path) -> None:
    async def fill() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        data: dict[str, Any] = {"algorithm": "\x1b]0;title\x07\u202e", "input": []}
        event = NewEvent(k.RUN_STARTED, data, ManualClock().now())
        await store.append("bad-\x1b[31m-run", [event], expected=0)
        await store.close()

    run(fill())
    shown = call(path, "bad").stdout

    assert shown.splitlines()[1].startswith("bad- [31m-run, begun")
    assert {"\x1b", "\x07", "\u202e"}.isdisjoint(shown)


def test_the_title_tells_agent_question_and_outcome(path: Path) -> None:
    assert call(path, "run-one").stdout.splitlines()[0] == "react · COMPLETED"
    agent, question, outcome = (
        call(path, "run-one", "--content").stdout.splitlines()[0].split(" · ")
    )
    assert (agent, outcome) == ("react", "COMPLETED")
    assert question == "go"


def test_spans_are_printed_as_json_lines(path: Path) -> None:
    shown = call(path, "run-one", "--json")

    result = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [each["kind"] for each in result] == ["agent", "llm", "tool", "llm"]
    assert {each["trace_id"] for each in result} == {result[0]["trace_id"]}
    assert [each["parent_id"] for each in result[1:]] == [result[0]["span_id"]] * 3
    assert result[0]["attributes"]["lib.run.outcome"] == "COMPLETED"
    assert result[0]["start"] == "2026-01-01T00:00:00+00:00"
    assert SECRET not in shown.stdout
    assert SECRET in call(path, "run-one", "--json", "--content").stdout
    assert call(path, "run-one", "--json", "--depth", 1).exit_code == 2


def test_the_environment_names_the_store_where_the_command_line_does_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[tuple[str, ...]] = [
        ("trace", "run-one"),
        ("store", "check"),
        ("store", "runs"),
        ("store", "events", "run-one"),
        ("store", "events", str(path), "run-one"),
    ]
    for line in lines[:4]:
        assert CliRunner().invoke(main, line).exit_code == 2, line
    monkeypatch.setenv("LIB_STORE", str(path))
    for line in lines:
        done = CliRunner().invoke(main, line)
        assert (done.exit_code, done.stderr) == (0, ""), line


def test_a_reader_that_has_enough_is_no_error(path: Path) -> None:
    for options in ([], ["--json"], ["--html", "-"]):
        command = [sys.executable, "-m", "lib.cli", "trace", "run-one", "--store", str(path)]
        with subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b"", options


# -- the page --------------------------------------------------------------------------------------


def test_a_page_is_written_whole_and_never_over_another_file_unasked(
    path: Path, tmp_path: Path
) -> None:
    page = tmp_path / "trace.html"

    written = call(path, "run-one", "--html", page)
    assert (written.exit_code, written.stdout) == (0, "")
    assert written.stderr == f"{page}: {page.stat().st_size:,} bytes\n"
    assert SECRET not in page.read_text(encoding="utf-8")

    again = call(path, "run-one", "--html", page, "--content")
    assert again.exit_code == 1
    assert again.stderr == f"Error: {str(page)!r} is there already: --force replaces it\n"

    assert call(path, "run-one", "--html", page, "--content", "--force").exit_code == 0
    assert SECRET in page.read_text(encoding="utf-8")
    assert sorted(file.name for file in tmp_path.glob("*trace*")) == ["trace.html"]


@pytest.mark.parametrize("option", ["--depth", "--limit", "--width"])
def test_a_page_shows_everything_and_takes_no_option_that_would_not(
    path: Path, tmp_path: Path, option: str
) -> None:
    page = tmp_path / "trace.html"

    result = call(path, "run-one", "--html", page, option, 3)

    assert (result.exit_code, page.exists()) == (2, False)
    assert "a page shows all spans" in result.stderr


def test_a_page_can_go_to_a_pipe(path: Path, tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    call(path, "run-one", "--html", page)

    piped = call(path, "run-one", "--html", "-")

    assert piped.stdout_bytes == page.read_bytes()
    assert piped.stderr == ""


def test_a_page_that_cannot_be_written_is_an_error(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    result = call(path, "run-one", "--html", tmp_path / "file" / "page.html")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "was not written" in result.stderr


def test_the_page_tells_the_scores_of_a_run(path: Path) -> None:
    async def judge() -> None:
        store = SQLiteEventStore(path)
        await store.setup()
        score = Score(name="helpful", value=0.5, comment=SECRET)
        new = score_event(score, signal_id="judged", now=ManualClock().now())
        await store.append("run-one", [new], expected=None)
        await store.close()

    run(judge())

    page = call(path, "run-one", "--html", "-").stdout
    assert '"scores":[["helpful","0.5 (code)"]]' in page
    whole = call(path, "run-one", "--html", "-", "--content").stdout
    assert f'"scores":[["helpful","0.5 (code): {SECRET}"]]' in whole


def test_the_page_holds_the_trace_as_data(path: Path) -> None:
    page = call(path, "run-one", "--html", "-", "--content").stdout
    block = page.split('<script type="application/json" id="trace">')[1].split("</script>")[0]

    result = json.loads(block)

    assert result["content"] is True
    assert [span["operation"] for span in result["spans"]] == ["agent", "chat", "tool", "chat"]
    assert result["spans"][2]["output"] == SECRET
