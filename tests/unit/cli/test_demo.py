"""`lib demo`: documents in, a cited answer and its trace out."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fakes.llm_server import API_KEY, MODEL, ChatServer
from lib.cli import main
from lib.cli.demo import own_documents
from lib.cli.models import choose_model
from lib.cli.payment import Payments, pay_and_be_killed
from lib.events import SQLiteEventStore
from lib.llm import FunctionClient, Reply, ToolCall
from lib.testing.agents import make_engine
from lib.testing.aio import run

LIB = [sys.executable, "-m", "lib.cli"]


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    text = "# Returns\n\nSend it back within 30 days.\n\nWe pay the postage for returned parcels.\n"
    (folder / "returns.md").write_text(text, encoding="utf-8")
    (folder / "hours.txt").write_text("We are open from 9 to 17.\n", encoding="utf-8")
    return folder


def demo(folder: Path, data: Path, *more: str) -> Result:
    arguments = ["demo", str(folder), "--data", str(data), *more]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_a_data_folder_that_cannot_be_made_is_one_line_with_the_way_out(documents: Path) -> None:
    result = demo(documents, documents / "hours.txt" / "data")

    assert result.exit_code == 1
    assert "data' cannot be written: Not a directory: name another with" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_serving_is_left_to_the_demo_of_the_server(documents: Path) -> None:
    command = [*LIB, "demo", "--serve", "--data", str(documents / "hours.txt" / "data")]

    result = subprocess.run(command, capture_output=True, check=False, encoding="utf-8")

    assert result.returncode == 1
    assert "data' cannot be written: Not a directory" in result.stderr


def test_serving_without_the_server_says_how_to_install_it(
    documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lib_server", None)

    result = demo(documents, documents / "data", "--serve")

    assert result.exit_code == 1
    assert "the server is not installed: pip install lib-server" in result.stderr


def test_an_answer_cites_file_and_line_and_the_trace_is_printed(
    documents: Path, tmp_path: Path
) -> None:
    result = demo(documents, tmp_path / "data", "--ask", "Who pays the postage?")

    assert result.exit_code == 0
    assert "2 files (2 new or changed), 2 passages" in result.stdout
    assert "We pay the postage for returned parcels. [returns.md:5]" in result.stdout
    assert "No model is configured" in result.stdout
    assert "search_documents" in result.stdout
    assert "2 model calls" in result.stdout


def test_without_arguments_a_killed_payment_is_taken_up_and_a_question_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"

    result = CliRunner().invoke(main, ["demo", "--data", str(data)], catch_exceptions=False)

    assert result.exit_code == 0
    assert "by kill -9, after the payment, before its record" in result.stdout
    assert (data / "ledger.txt").read_text(encoding="utf-8") == "order 1: 100 EUR to Ada\n"
    assert "outcome unknown" in result.stdout
    assert "unknown, taken over" in result.stdout
    assert "the model reads that the outcome is unknown" in result.stdout.replace("\n", " ")
    assert "[how-to/survive-a-crash.md:" in result.stdout
    assert len(result.stdout.splitlines()) <= 45
    assert caplog.messages == []  # they would stand between the lines


def test_a_demo_that_was_killed_while_it_paid_says_from_where_it_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    pay_and_be_killed(Payments(data), 1)

    result = CliRunner().invoke(main, ["demo", "--data", str(data)], catch_exceptions=False)

    assert "resumed    run " in result.stdout
    assert "after its event 4" in result.stdout
    assert "killed " not in result.stdout.split("documents")[0].split("\n", 1)[1]
    assert (data / "ledger.txt").read_text(encoding="utf-8").count("\n") == 1


def test_a_payment_that_cannot_be_made_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="order 1 was not paid"):
        pay_and_be_killed(Payments(tmp_path / "missing"), 1)


def test_what_the_documents_do_not_tell_is_not_made_up(documents: Path, tmp_path: Path) -> None:
    result = demo(documents, tmp_path / "data", "--ask", "zebra crossings")

    assert "The documents say nothing about this." in result.stdout


@pytest.mark.parametrize(("name", "text"), [("a.bin", "x"), ("a.txt", "?!")])
def test_a_folder_without_a_word_is_a_wrong_call(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / name).write_text(text, encoding="utf-8")

    result = demo(folder, tmp_path / "data")

    assert result.exit_code == 2
    assert str(folder) in result.stderr.replace("\n", "").replace("│", "").replace(" ", "")


async def test_an_interrupted_run_of_the_same_question_is_taken_up(
    documents: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    hanging = FunctionClient(lambda _: asyncio.Event().wait())  # pyright: ignore[reportArgumentType] - never answers

    store = SQLiteEventStore(data / "runs.db")
    async with make_engine(hanging, store=store) as engine:
        await engine.start("another question")
        await engine.start("Who pays the postage?")
    result = await asyncio.to_thread(demo, documents, data, "--ask", "Who pays the postage?")

    assert "going on with run" in result.stdout
    assert "[returns.md:5]" in result.stdout


def test_unchanged_documents_are_not_read_again(documents: Path, tmp_path: Path) -> None:
    demo(documents, tmp_path / "data")

    assert "2 files (0 new or changed), 2 passages" in demo(documents, tmp_path / "data").stdout


def test_a_killed_demo_goes_on_where_it_was(documents: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = [*LIB, "demo", str(documents), "--data", str(data), "--ask", "postage?"]
    with subprocess.Popen([*arguments, "--slow", "60"], stdout=subprocess.DEVNULL) as killed:
        log = data / "runs.db"
        while "lib.tool.requested" not in _events(log):
            assert killed.poll() is None
        os.kill(killed.pid, signal.SIGKILL)

    again = subprocess.run(
        arguments, capture_output=True, encoding="utf-8", timeout=200, check=True
    )

    assert "going on with run" in again.stdout
    assert "[returns.md:5]" in again.stdout
    happened = _events(log)
    assert happened.count("lib.run.started") == 1
    assert happened.count("lib.tool.requested") == 1
    assert happened.count("lib.run.resumed") == 1


def _events(log: Path) -> list[str]:
    runs = subprocess.run(
        [*LIB, "store", "runs", str(log), "--json"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if not runs.stdout:
        return []
    (run_id,) = [json.loads(line)["run"] for line in runs.stdout.splitlines()]
    done = subprocess.run(
        [*LIB, "store", "events", str(log), run_id, "--json"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return [json.loads(line)["kind"] for line in done.stdout.splitlines()]


def test_the_default_documents_are_the_projects_own() -> None:
    assert (own_documents() / "index.md").is_file()


def test_a_configured_model_answers(documents: Path, tmp_path: Path) -> None:
    arguments = [*LIB, "demo", str(documents), "--data", str(tmp_path / "data"), "--ask", "Who?"]
    call = Reply((ToolCall("c1", "search_documents", {"query": "postage"}),), stop="tool_calls")

    async def main() -> tuple[str, int]:
        async with ChatServer([call, "We do [returns.md:5]."]) as server:
            environment = {
                **os.environ,
                "OPENAI_BASE_URL": server.base_url,
                "OPENAI_API_KEY": API_KEY,
                "OPENAI_MODEL": MODEL,
            }
            process = await asyncio.create_subprocess_exec(
                *arguments, env=environment, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            return output.decode(), process.returncode or 0

    output, status = run(main())

    assert status == 0
    assert "We do [returns.md:5]." in output
    assert f"{MODEL} at http://127.0.0.1" in output


def test_a_failing_model_is_reported_and_sets_the_exit_status(
    documents: Path, tmp_path: Path
) -> None:
    arguments = [*LIB, "demo", str(documents), "--data", str(tmp_path / "data")]
    environment = {**os.environ, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "k"}

    failed = subprocess.run(
        arguments, env=environment, capture_output=True, encoding="utf-8", timeout=200, check=False
    )

    assert failed.returncode == 1
    assert "FAILED" in failed.stdout


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ('{"models": [{"name": "qwen3"}]}', "qwen3 of the local Ollama answers"),
        ('{"models": []}', "no model is configured, a stand-in answers"),
        ("<html>", "no model is configured, a stand-in answers"),
    ],
)
def test_a_local_ollama_is_found(monkeypatch: pytest.MonkeyPatch, answer: str, output: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
        writer.write((head + answer).encode())
        await writer.drain()
        writer.close()

    async def main() -> str:
        async with await asyncio.start_server(serve, "127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{port}")
            model = await asyncio.to_thread(choose_model)
            await model.aclose()
            return model.summary

    assert run(main()) == output
