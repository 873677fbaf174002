"""`lib vector` moves records between stores, and shows what is in one."""

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

import lib.vector
from lib.cli import main
from lib.cli.vector_stores import store_name
from lib.testing.aio import run
from lib.testing.model_servers import API_KEY, DIMENSION, OpenAIServer, vector_of
from lib.testing.servers import postgres
from lib.vector import Match, Metric, Record, SQLiteVectorStore

LIB = [sys.executable, "-m", "lib.cli"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three records in two namespaces."""
    place = tmp_path / "shop.db"
    records = [
        Record("tea", [1.0, 0.0], "Green tea from Uji", {"price": 12}),
        Record("mug", [0.8, 0.6], "A mug for tea", {"price": 20, "tags": ["new"]}),
    ]
    fill(place, {"": records, "old": [Record("pot", [0.0, 1.0], "A pot", {})]})
    return place


def fill(
    path: Path, records: dict[str, list[Record]], dimension: int = 2, metric: Metric = "cosine"
) -> None:
    async def filling() -> None:
        store = SQLiteVectorStore(path, dimension=dimension, metric=metric)
        await store.setup()
        for name, batch in records.items():
            await store.upsert(batch, namespace=name)
        await store.close()

    run(filling())


def contents(path: Path, dimension: int = 2) -> dict[str, list[Record]]:
    async def reading() -> dict[str, list[Record]]:
        store = SQLiteVectorStore(path, dimension=dimension)
        found = {
            name: await store.scan(namespace=name, limit=10_000)
            for name in await store.namespaces()
        }
        await store.close()
        return found

    return run(reading())


def call(*arguments: object, **options: Any) -> Result:
    words = ["vector", *map(str, arguments)]
    return CliRunner().invoke(main, words, catch_exceptions=False, **options)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_info_tells_what_a_store_holds_without_being_told_anything(path: Path) -> None:
    result = call("info", path, "--json")

    assert (result.exit_code, lines(result)) == (
        0,
        [
            {
                "store": str(path),
                "kind": "SQLiteVectorStore",
                "dimension": 2,
                "metric": "cosine",
                "records": 3,
                "namespaces": [
                    {"namespace": "", "records": 2},
                    {"namespace": "old", "records": 1},
                ],
            }
        ],
    )
    shown = call("info", f"sqlite:///{path}").stdout
    assert "SQLiteVectorStore" in shown
    assert shown.splitlines()[-1].split() == ["old", "1"]


def test_an_empty_store_has_no_namespaces(tmp_path: Path) -> None:
    fill(tmp_path / "empty.db", {}, 7, "dot")

    assert lines(call("info", tmp_path / "empty.db", "--json"))[0]["dimension"] == 7
    assert "dot" in call("info", tmp_path / "empty.db").stdout


@pytest.mark.parametrize("command", [["info"], ["search", "--like", "x"]])
def test_looking_for_a_store_makes_none(tmp_path: Path, command: list[str]) -> None:
    missing, other = tmp_path / "nothing.db", tmp_path / "other.db"
    fill(other, {})
    before = other.read_bytes()

    for place in (missing, f"sqlite:///{other}?table=another", tmp_path):
        result = call(command[0], place, *command[1:])
        assert (result.exit_code, "there is no vector store at" in result.stderr) == (2, True)
    assert not missing.exists()
    assert other.read_bytes() == before


def test_what_is_no_database_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"not a database" * 100)
    result = call("info", tmp_path / "notes.txt")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: vector table 'lib_vectors' in")


def test_a_copy_is_made_like_its_source_and_told_by_namespace(path: Path, tmp_path: Path) -> None:
    result = call("copy", path, f"sqlite:///{tmp_path}/new.db?table=shop", "--json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert lines(result) == [
        {"namespace": "", "records": 2, "written": 2, "missing": 0},
        {"namespace": "old", "records": 1, "written": 1, "missing": 0},
    ]
    info = lines(call("info", f"sqlite:///{tmp_path}/new.db?table=shop", "--json"))
    assert (info[0]["dimension"], info[0]["metric"], info[0]["records"]) == (2, "cosine", 3)
    again = call("copy", path, f"sqlite:///{tmp_path}/new.db?table=shop", "--batch-size", 1)
    assert again.stdout.splitlines()[0].split() == ["namespace", "records", "written", "missing"]
    assert again.stdout.splitlines()[2].split() == ["old", "1", "0", "0"]


def test_chosen_namespaces_are_copied(path: Path, tmp_path: Path) -> None:
    assert call("copy", path, tmp_path / "new.db", "--namespace", "old").exit_code == 0
    assert list(contents(tmp_path / "new.db")) == ["old"]

    unknown = call("copy", path, tmp_path / "newer.db", "--namespace", "new")
    assert (unknown.exit_code, "no records in a namespace 'new'" in unknown.stderr) == (1, True)
    assert not (tmp_path / "newer.db").exists()


@pytest.mark.parametrize("same", ["{0}", "sqlite:///{0}", "{1}/../{2}/shop.db"])
def test_a_store_is_not_copied_onto_itself_whatever_it_is_called(path: Path, same: str) -> None:
    other = same.format(path, path.parent, path.parent.name)
    result = call("copy", path, other)

    assert (result.exit_code, "onto itself" in result.stderr) == (2, True)


@pytest.mark.parametrize(("dimension", "metric"), [(3, "cosine"), (2, "dot")])
def test_a_store_of_another_kind_is_left_alone(
    path: Path, tmp_path: Path, dimension: int, metric: Metric
) -> None:
    fill(tmp_path / "other.db", {}, dimension, metric)
    result = call("copy", path, tmp_path / "other.db")

    assert (result.exit_code, "store" in result.stderr) == (1, True)
    assert lines(call("info", tmp_path / "other.db", "--json"))[0]["records"] == 0


def test_records_that_are_missing_at_the_end_are_the_exit_status(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(*arguments: object, **options: object) -> None:
        """Lose what is to be written."""

    monkeypatch.setattr(SQLiteVectorStore, "upsert", forget)
    result = call("copy", path, tmp_path / "new.db", "--json")

    assert result.exit_code == 1
    assert [line["missing"] for line in lines(result)] == [2, 1]
    assert result.stderr == f"Error: 3 records are not in {tmp_path / 'new.db'}: copy them again\n"


def test_a_bar_is_shown_to_a_person(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = call("copy", path, tmp_path / "new.db")

    assert (result.exit_code, "copying" in result.stderr, "3/3" in result.stderr) == (0, True, True)


def test_a_copy_that_was_killed_goes_on(tmp_path: Path) -> None:
    records = [Record(f"{row:06}", [1.0, row], f"text {row}", {"row": row}) for row in range(6000)]
    fill(tmp_path / "big.db", {"a": records[:3000], "b": records[3000:]})
    command = [*LIB, "vector", "copy", str(tmp_path / "big.db"), str(tmp_path / "new.db")]

    with subprocess.Popen([*command, "--batch-size", "10"], stdout=subprocess.PIPE) as copying:
        while stored(tmp_path / "new.db") < 100:
            assert copying.poll() is None
            time.sleep(0.005)
        copying.kill()
    there = stored(tmp_path / "new.db")
    assert there < 6000
    done = subprocess.run([*command, "--json"], capture_output=True, encoding="utf-8", check=True)

    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["records"], line["missing"]) for line in told] == [(3000, 0), (3000, 0)]
    assert sum(line["written"] for line in told) == 6000 - there
    assert contents(tmp_path / "new.db") == contents(tmp_path / "big.db")


def stored(path: Path) -> int:
    """Return how many records another process has written."""

    async def counting() -> int:
        store = SQLiteVectorStore(path, dimension=2)
        if await store.existing() is None:
            return 0
        counts = [await store.count(namespace=name) for name in await store.namespaces()]
        await store.close()
        return sum(counts)

    return run(counting())


def test_records_move_through_every_kind_of_store_and_come_back_as_they_were(
    path: Path, tmp_path: Path
) -> None:
    database = postgres.fresh_url()
    stops = [
        str(path),
        f"{database}{'&' if '?' in database else '?'}table=moved",
        f"lancedb:///{tmp_path}/l?table=moved",
        f"qdrant:///{tmp_path}/q?collection=moved",
        f"chroma:///{tmp_path}/c?prefix=moved",
        f"sqlite:///{tmp_path}/back.db",
    ]

    for source, target in pairwise(stops):
        moved = call("copy", source, target, "--json")
        again = call("copy", source, target, "--json")
        assert (moved.exit_code, again.exit_code) == (0, 0), moved.stderr
        assert [line["written"] for line in lines(moved)] == [2, 1]
        assert [line["written"] for line in lines(again)] == [0, 0]
        (facts,) = lines(call("info", target, "--json"))
        assert (facts["dimension"], facts["metric"], facts["records"]) == (2, "cosine", 3)
        (like,) = lines(call("search", target, "--like", "tea", "--json"))
        assert like["id"] == "mug"
    before, after = contents(path), contents(tmp_path / "back.db")
    assert list(after) == list(before)
    for name, records in before.items():
        assert [replace(record, vector=[]) for record in after[name]] == [
            replace(record, vector=[]) for record in records
        ]
        for record, moved in zip(records, after[name], strict=True):
            assert list(moved.vector) == pytest.approx(list(record.vector), rel=1e-6)


@pytest.mark.parametrize("scheme", ["lancedb", "qdrant", "chroma"])
def test_looking_for_a_folder_makes_none(tmp_path: Path, scheme: str) -> None:
    result = call("info", f"{scheme}:///{tmp_path}/nothing")

    assert (result.exit_code, "there is no vector store at" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_looking_for_a_table_makes_none() -> None:
    database = postgres.fresh_url()
    result = call("info", database)

    assert (result.exit_code, "there is no vector store at" in result.stderr) == (2, True)
    assert call("info", database).exit_code == 2


def test_a_record_is_searched_for_by_another_one(path: Path) -> None:
    (found,) = lines(call("search", path, "--like", "tea", "--json"))

    assert found["id"] == "mug"
    assert found["score"] == pytest.approx(0.8)
    assert (found["text"], found["meta"]) == ("A mug for tea", {"price": 20, "tags": ["new"]})
    unknown = call("search", path, "--like", "pot")
    assert unknown.exit_code == 1
    assert unknown.stderr == "Error: no record 'pot' in namespace ''\n"


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
    told = call("info", tmp_path / "v.db", "--json")

    (line,) = lines(found)
    assert (line["id"], line["text"], line["meta"]) == (hostile, hostile, {hostile: hostile})
    assert lines(told)[0]["namespaces"][0]["namespace"] == hostile
    for shown in (found.stdout, told.stdout):
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

        def log_message(self, *arguments: Any) -> None:  # type: ignore[override]  # says nothing
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


def test_a_store_that_does_not_tell_its_dimension_asks_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(SQLiteVectorStore):
        existing = None  # type: ignore[assignment]  # to be without it

    monkeypatch.setattr(lib.vector, "SQLiteVectorStore", Silent)

    assert "give --dimension" in call("info", path).stderr
    assert call("info", path, "--dimension", 2).exit_code == 0
    wrong = call("info", path, "--dimension", 3)
    assert (wrong.exit_code, "2-dimensional" in wrong.stderr) == (1, True)
    assert call("info", path, "--dimension", 2, "--metric", "dot").exit_code == 1


def test_what_a_source_lacks_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(SQLiteVectorStore, "query_hybrid")
    told = call("search", path, "a mug", "--like", "tea", "--hybrid")
    assert (told.exit_code, "no hybrid search" in told.stderr) == (1, True)

    monkeypatch.delattr(SQLiteVectorStore, "scan")
    told = call("copy", path, path.with_name("new.db"))
    assert (told.exit_code, "cannot be copied from" in told.stderr) == (1, True)


NAMES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "postgresql://me:secret@db.example/app?table=docs&sslmode=require": (
        "postgresql://me@db.example/app",
        "PostgresVectorStore",
        {"dsn": "postgresql://me:secret@db.example/app?sslmode=require", "table": "docs"},
    ),
    "postgresql:///app?host=/tmp&options=-c%20a+b": (
        "postgresql:///app",
        "PostgresVectorStore",
        {"dsn": "postgresql:///app?host=/tmp&options=-c%20a+b"},
    ),
    "postgres://h1:1,h2:2/app?table=a%2Eb": (
        "postgres://h1:1,h2:2/app",
        "PostgresVectorStore",
        {"dsn": "postgres://h1:1,h2:2/app", "table": "a.b"},
    ),
    "qdrant+http://localhost:6333/docs": (
        "qdrant+http://localhost:6333/docs",
        "QdrantVectorStore",
        {"url": "http://localhost:6333", "collection": "docs", "api_key": "key of qdrant"},
    ),
    "qdrant+https://q.example": (
        "qdrant+https://q.example",
        "QdrantVectorStore",
        {"url": "https://q.example", "api_key": "key of qdrant"},
    ),
    "qdrant:////data/q?collection=docs": (
        "qdrant:////data/q",
        "QdrantVectorStore",
        {"path": "/data/q", "collection": "docs"},
    ),
    "lancedb:////data/l?table=docs": (
        "lancedb:////data/l",
        "LanceDBVectorStore",
        {"uri": "/data/l", "table": "docs"},
    ),
    "lancedb:///s3://bucket/l": (
        "lancedb:///s3://bucket/l",
        "LanceDBVectorStore",
        {"uri": "s3://bucket/l"},
    ),
    "chroma://localhost:8001?prefix=docs": (
        "chroma://localhost:8001",
        "ChromaVectorStore",
        {"host": "localhost", "port": 8001, "prefix": "docs"},
    ),
    "chroma://c.example": ("chroma://c.example", "ChromaVectorStore", {"host": "c.example"}),
    "chroma:////data/c": ("chroma:////data/c", "ChromaVectorStore", {"path": "/data/c"}),
    "pinecone://docs": (
        "pinecone://docs",
        "PineconeVectorStore",
        {"index_name": "docs", "api_key": "key of pinecone"},
    ),
    "sqlite:////data/v.db?table=docs": (
        "sqlite:////data/v.db",
        "SQLiteVectorStore",
        {"path": "/data/v.db", "table": "docs"},
    ),
    "/data/a:b#c@d.db": ("/data/a:b#c@d.db", "SQLiteVectorStore", {"path": "/data/a:b#c@d.db"}),
    "/data/lr=0.1/v.db": ("/data/lr=0.1/v.db", "SQLiteVectorStore", {"path": "/data/lr=0.1/v.db"}),
    "sqlite:////data/a@b.db": (
        "sqlite:////data/a@b.db",
        "SQLiteVectorStore",
        {"path": "/data/a@b.db"},
    ),
}


@pytest.mark.parametrize("given", NAMES)
def test_each_kind_of_store_has_a_name(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "key of qdrant")
    monkeypatch.setenv("PINECONE_API_KEY", "key of pinecone")
    name = store_name(given)

    assert (name.shown, name.kind, name.options) == NAMES[given]
    for secret in ("secret", "key of"):
        assert secret not in repr(name) + name.shown


def test_a_server_without_a_key_is_asked_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)

    assert store_name("qdrant+http://localhost:6333").options == {"url": "http://localhost:6333"}


@pytest.mark.parametrize(
    "given",
    [
        "",
        ":memory:",
        "memory:",
        "redis://localhost",
        "sqlite://v.db",
        "sqlite:///",
        "sqlite:v.db",
        "sqlite:///v.db?tabel=x",
        "sqlite:/v.db",
        "sqlite:",
        "v.db?table=x",
        "postgresql://me:pass/secret@db/app",
        "postgresql://me:pass?secret@db/app",
        "postgresql://me:pass#secret@db/app",
        "postgresql://me:sec\N{CARE OF}secret@db/app",
        "postgresql://me:[secret@db/app",
        "postgresql:me:secret@db/app",
        "postgresql:///me:secret@db/app",
        "sqlite://me:secret@db",
        "postgresql:secret",
        "host=localhost password=secret dbname=app",
        "PASSWORD = secret://",
        "service=secret",
        "user=secret",
        "qdrant+http://me:secret/word@localhost/docs",
        "qdrant+http://me:12/secret@localhost/docs",
        "qdrant+http://me:12?secret@localhost/docs",
        "qdrant+http://me:secret",
        "chroma://me:secret/word@localhost",
        "chroma://me:secret",
        "pinecone://me:12/secret@docs",
        "qdrant+http://",
        "qdrant+http://localhost/docs?table=x",
        "qdrant://",
        "chroma://localhost:port",
        "chroma://",
        "chroma:///c?table=x",
        "pinecone://",
        "pinecone://docs/more",
        "pinecone://docs?table=x",
    ],
)
def test_what_names_no_store_is_a_wrong_call_that_shows_no_password(given: str) -> None:
    result = call("info", given)

    assert result.exit_code == 2
    assert "Error: Invalid value for 'STORE'" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("scheme", ["", "sqlite:///", "lancedb:///", "qdrant:///", "chroma:///"])
def test_a_path_that_cannot_be_is_a_wrong_call(path: Path, scheme: str) -> None:
    impossible = f"{scheme}{path.parent}/{'long' * 100}"

    for command in (["info", impossible], ["copy", path, impossible]):
        result = call(*command)
        assert (result.exit_code, "File name too long" in result.stderr) == (2, True)


@pytest.mark.parametrize("given", ["host=localhost password=secret", "other.db?table=x"])
def test_a_copy_goes_to_no_file_that_nobody_meant(
    path: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    result = call("copy", path, given)

    assert (result.exit_code, "secret" in result.output) == (2, False)
    assert not list(path.parent.glob("*=*"))


def test_no_password_stands_behind_a_refusal() -> None:
    for given in ("postgresql://me:sec\N{CARE OF}secret@db", "chroma://me:secret"):
        with pytest.raises(ValueError, match="write '@'") as refusal:
            store_name(given)
        assert refusal.value.__suppress_context__


def test_what_a_store_refuses_of_its_name_is_a_wrong_call(tmp_path: Path) -> None:
    result = call("info", f"sqlite:///{tmp_path}/v.db?table=a-b")

    assert (result.exit_code, "table is a letter" in result.stderr) == (2, True)
