"""`lib vector search` asks a store, by a record, a vector or a text."""

from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

import lib.vector
from fakes.model_servers import API_KEY, DIMENSION, OpenAIServer, vector_of
from lib.vector import Match, Record, SQLiteVectorStore

from .vector_kit import call, fill, lines, shop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shop(tmp_path)


def test_a_record_is_searched_for_by_another_one(path: Path) -> None:
    (found,) = lines(call("search", path, "--like", "tea", "--json"))

    assert found["id"] == "mug"
    assert found["score"] == pytest.approx(0.8)
    assert (found["text"], found["meta"]) == ("A mug for tea", {"price": 20, "tags": ["new"]})
    unknown = call("search", path, "--like", "pot")
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("Error: no record 'pot' in namespace '': name another with")


def test_a_vector_is_searched_for_where_and_among_what_is_said(path: Path) -> None:
    def ids(*options: object) -> list[str]:
        return [line["id"] for line in lines(call("search", path, "--json", *options))]

    assert ids("--vector", "[1, 0]") == ["tea", "mug"]
    assert ids("--vector", "[1, 0]", "-k", 1) == ["tea"]
    assert ids("--vector", "[1, 0]", "--namespace", "old") == ["pot"]
    assert ids("--vector", "[1, 0]", "--filter", '{"price": {"$gt": 15}}') == ["mug"]
    assert ids("--vector", "[1, 0]", "--namespace", "nowhere") == []
    assert ids("mug", "--vector", "[0.9, 0.3]", "--hybrid") == ["mug", "tea"]
    shown = call("search", path, "--vector", "[1, 0]").stdout.splitlines()
    assert shown[0].split() == ["id", "score", "text", "meta"]
    assert shown[1].split()[:2] == ["tea", "1.0"]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["tea"],
        ["--hybrid", "--like", "tea"],
        ["tea", "--like", "tea"],
        ["--like", "tea", "--vector", "[1, 0]"],
        ["--model", "m"],
        ["--vector", "[1, 0"],
        ["--vector", "[" * 100_000],
        ["--like", "tea", "--filter", '{"$not":' * 100_000],
        ["--like", "tea", "--filter", "{"],
        ["--like", "tea", "--filter", '{"x": {"$regex": "a"}}'],
        ["--like", "tea", "-k", "0"],
        ["--like", "tea", "--metric", "manhattan"],
    ],
)
def test_a_question_that_is_none_is_a_wrong_call(path: Path, options: list[str]) -> None:
    assert call("search", path, *options).exit_code == 2


def test_more_results_than_a_store_gives_are_a_wrong_call(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Limited(SQLiteVectorStore):
        async def query(self, vector: Any, k: int = 5, **options: Any) -> list[Match]:
            raise ValueError(f"k is at most 10000 in Limited, got {k}")

    monkeypatch.setattr(lib.vector, "SQLiteVectorStore", Limited)
    result = call("search", path, "--like", "tea", "-k", 10_000)

    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "Error: k is at most 10000 in Limited, got 10001"


@pytest.mark.parametrize("scheme", ["sqlite", "lancedb", "qdrant", "chroma"])
def test_however_many_results_are_wanted_all_there_are_are_shown(
    path: Path, tmp_path: Path, scheme: str
) -> None:
    target = f"{scheme}:///{tmp_path}/{scheme}"
    assert call("copy", path, target).exit_code == 0

    for k in (2**31 - 1, 2**31, 2**32, 2**63, 10**20):
        found = call("search", target, "--vector", "[1, 0]", "-k", k, "--json")
        assert [line["id"] for line in lines(found)] == ["tea", "mug"]


@pytest.mark.parametrize("vector", ["[1, 2, 3]", '["a", 1]', "[0, 0]", '{"a": 1}', "1"])
def test_a_vector_that_is_none_is_one_line_and_no_traceback(path: Path, vector: str) -> None:
    result = call("search", path, "--vector", vector)

    assert (result.exit_code, result.stderr[:7]) == (1, "Error: ")


def test_what_is_stored_is_text_to_the_terminal(tmp_path: Path) -> None:
    hostile = "\x1b[2Jgone [/red] [link=x]y \u202e reversed\r\nnew line " + "long " * 100
    fill(tmp_path / "v.db", {"": [Record("[bold]", [1.0, 0.0], hostile, {"\x1b]0;": "\x07"})]})
    shown = call("search", tmp_path / "v.db", "--vector", "[1, 0]", env={"COLUMNS": "300"}).stdout

    assert "[bold]" in shown
    assert "[2Jgone [/red] [link=x]y reversed new line long" in shown
    assert "…" in shown
    assert all(sign.isprintable() for sign in shown.replace("\n", ""))


def test_what_is_stored_is_escaped_in_json(tmp_path: Path) -> None:
    hostile = "Tee für 茶 \x9b31mred \x9d0;title\x9c \x7f \u202e \u2028 \U000e0001 \x1b"
    fill(tmp_path / "v.db", {hostile: [Record(hostile, [1.0, 0.0], hostile, {hostile: hostile})]})
    search = ("search", tmp_path / "v.db", "--vector", "[1, 0]", "--namespace", hostile)
    found = call(*search, "--json")
    info = call("info", tmp_path / "v.db", "--json")

    (line,) = lines(found)
    assert (line["id"], line["text"], line["meta"]) == (hostile, hostile, {hostile: hostile})
    assert lines(info)[0]["namespaces"][0]["namespace"] == hostile
    for shown in (found.stdout, info.stdout):
        assert shown.removesuffix("\n").isprintable()
        assert "Tee für 茶" in shown


@contextmanager
def serving(model_server: OpenAIServer) -> Generator[str]:
    """Put the fake on a port of this machine, for a command that knows no transport."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            url = f"http://localhost{self.path}"
            answer = model_server(
                httpx2.Request("POST", url, headers=dict(self.headers), content=body)
            )
            self.send_response(answer.status_code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *arguments: Any) -> None:  # type: ignore[override] - says nothing
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_a_text_is_embedded_by_the_model_server_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"mug": "a mug", "pot": "a pot", "tea": "green tea"}
    records = [Record(name, vector_of(text), text) for name, text in texts.items()]
    fill(tmp_path / "v.db", {"": records}, DIMENSION)
    with serving(OpenAIServer()) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", API_KEY)
        found = call("search", tmp_path / "v.db", "a mug", "--model", "any", "--json")
        fused = call("search", tmp_path / "v.db", "tea", "--model", "any", "--hybrid", "--json")

    assert [line["id"] for line in lines(found)] == ["mug", "pot", "tea"]
    assert lines(found)[0]["score"] == pytest.approx(1.0)
    assert lines(fused)[0]["id"] == "tea"


def test_a_model_without_a_key_is_a_wrong_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = call("search", path, "a mug", "--model", "any")

    assert (result.exit_code, "key" in result.stderr) == (2, True)
