"""Tests names of stores on the command line; refusals show no password."""

from pathlib import Path
from typing import Any

import pytest

from lib.cli.vector_stores import store_name

from .vector_kit import call, shop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shop(tmp_path)


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


@pytest.mark.parametrize("path_or_url", NAMES)
def test_each_kind_of_store_has_a_name(path_or_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "key of qdrant")
    monkeypatch.setenv("PINECONE_API_KEY", "key of pinecone")
    name = store_name(path_or_url)

    assert (name.shown, name.kind, name.options) == NAMES[path_or_url]
    for secret in ("secret", "key of"):
        assert secret not in repr(name) + name.shown


def test_a_server_without_a_key_gets_requests_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)

    assert store_name("qdrant+http://localhost:6333").options == {"url": "http://localhost:6333"}


@pytest.mark.parametrize(
    "name",
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
def test_what_names_no_store_is_a_wrong_call_that_shows_no_password(name: str) -> None:
    result = call("info", name)

    assert result.exit_code == 2
    assert "Error: Invalid value for 'STORE'" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("scheme", ["", "sqlite:///", "lancedb:///", "qdrant:///", "chroma:///"])
def test_a_path_that_cannot_be_is_a_wrong_call(path: Path, scheme: str) -> None:
    impossible = f"{scheme}{path.parent}/{'long' * 100}"

    for command in (["info", impossible], ["copy", path, impossible]):
        result = call(*command)
        assert (result.exit_code, "File name too long" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["host=localhost password=secret", "other.db?table=x"])
def test_a_copy_refuses_an_unlikely_target_file(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    result = call("copy", path, name)

    assert (result.exit_code, "secret" in result.output) == (2, False)
    assert not list(path.parent.glob("*=*"))


def test_no_password_stands_behind_a_refusal() -> None:
    for url in ("postgresql://me:sec\N{CARE OF}secret@db", "chroma://me:secret"):
        with pytest.raises(ValueError, match="write '@'") as refusal:
            store_name(url)
        assert refusal.value.__suppress_context__


def test_what_a_store_refuses_of_its_name_is_a_wrong_call(tmp_path: Path) -> None:
    result = call("info", f"sqlite:///{tmp_path}/v.db?table=a-b")

    assert (result.exit_code, "table is a letter" in result.stderr) == (2, True)
