"""`lib privacy` erases what its arguments name, after a confirmation."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lib._util.clock import SYSTEM_CLOCK
from lib.cli import main
from lib.errors import StoreError
from lib.events import DirectoryBlobStore, EventStore, NewEvent, RedisEventStore, SQLiteEventStore
from lib.events import kinds as k
from lib.testing.aio import run
from lib.testing.event_store.kit import attached
from lib.vector import Record, SQLiteVectorStore
from lib.vector.tenant import TenantVectorStore
from servers import redis


async def log_of(
    store: EventStore, run_id: str, *, days: int, end: bool = True, **more: Any
) -> None:
    at = SYSTEM_CLOCK.now() - timedelta(days=days)
    tenant = more.pop("tenant", None)
    events = [NewEvent(k.RUN_STARTED, {"algorithm": "react", **more}, at, tenant)]
    if end:
        events.append(NewEvent(k.RUN_COMPLETED, {"outcome": "COMPLETED"}, at))
    await store.append(run_id, events, expected=0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store with runs of two tenants, blobs and vectors beside it."""

    async def fill() -> None:
        blobs = DirectoryBlobStore(tmp_path / "blobs")
        message = attached(await blobs.put(b"content"), size=7)
        store = SQLiteEventStore(tmp_path / "runs.db")
        await store.setup()
        await log_of(store, "old", days=40, tenant="acme", input=message)
        below: dict[str, Any] = {"parent": {"run_id": "old", "key": "k"}, "root": "old"}
        await log_of(store, "old/child", days=39, tenant="acme", **below)
        await log_of(store, "new", days=1, tenant="acme")
        await log_of(store, "waits", days=40, end=False, tenant="globex")
        await store.close()
        vectors = SQLiteVectorStore(tmp_path / "vectors.db", dimension=2)
        for tenant in ("acme", "globex"):
            view = TenantVectorStore(vectors, tenant, namespace_prefix="app-")
            await view.upsert([Record("r", [1.0, 0.0], "text")])
        await vectors.close()

    run(fill())
    return tmp_path


def privacy(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["privacy", *arguments], input=answer)


def left(place: Path) -> list[str]:
    async def ids() -> list[str]:
        store = SQLiteEventStore(place / "runs.db")
        await store.setup()
        try:
            return [info.run_id for info in await store.runs()]
        finally:
            await store.close()

    return run(ids())


ALL = ["old", "old/child", "new", "waits"]


def test_a_run_is_erased_with_its_descendants(place: Path) -> None:
    store, blobs = f"sqlite:///{place / 'runs.db'}", str(place / "blobs")
    dry = privacy("erase-run", store, "old", "--dry-run", "--json", "--blobs", blobs)
    done = privacy("erase-run", store, "old", "--yes", "--blobs", blobs)

    assert json.loads(dry.stdout) == {"runs": 2, "events": 4, "blobs": 1, "vectors": 0}
    assert done.stdout == "runs: 2, events: 4, blobs: 1, vectors: 0\n"
    assert left(place) == ["new", "waits"]
    assert run(DirectoryBlobStore(blobs).stored()) == []
    again = privacy("erase-run", store, "old", "--yes")
    assert again.stdout == "runs: 0, events: 0, blobs: 0, vectors: 0\n"


def test_erasing_a_child_run_names_the_run_that_keeps_its_question_and_answer(place: Path) -> None:
    store = str(place / "runs.db")
    dry = privacy("erase-run", store, "old/child", "--dry-run", "--json")
    refused = privacy("erase-run", store, "old/child", answer="n\n")
    done = privacy("erase-run", store, "old/child", "--yes")

    counts = {"runs": 1, "events": 2, "blobs": 0, "vectors": 0}
    assert json.loads(dry.stdout) == {**counts, "parent_id": "old", "root_id": "old"}
    assert "The log of run 'old' still holds its question and its answer" in refused.stderr
    assert "erase 'old', the root," in done.stdout
    assert left(place) == ["old", "new", "waits"]


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_nothing_is_erased_without_a_confirmation(place: Path, answer: str) -> None:
    result = privacy("erase-run", str(place / "runs.db"), "old", answer=answer)

    assert result.exit_code == 1
    assert "runs: 2, events: 4" in result.stderr
    assert left(place) == ALL
    assert privacy("erase-run", str(place / "runs.db"), "old", answer="y\n").exit_code == 0
    assert left(place) == ["new", "waits"]


def test_a_tenant_is_erased_with_its_records(place: Path) -> None:
    store = str(place / "runs.db")
    options = ["--vectors", str(place / "vectors.db"), "--prefix", "app-"]
    refused = privacy("erase-tenant", store, "globex", "--yes", *options)
    assert (refused.exit_code, "'waits' is open" in refused.output) == (1, True)
    dry = privacy("erase-tenant", store, "acme", "--dry-run", *options)
    done = privacy("erase-tenant", store, "acme", "--yes", "--json", *options)
    assert dry.stdout == "runs: 3, events: 6, blobs: 0, vectors: 1\n"
    assert json.loads(done.stdout) == {"runs": 3, "events": 6, "blobs": 0, "vectors": 1}
    assert left(place) == ["waits"]
    assert privacy("erase-tenant", store, "globex", "--yes", "--force").exit_code == 0
    assert left(place) == []


def test_what_is_idle_expires(place: Path) -> None:
    store, blobs = str(place / "runs.db"), str(place / "blobs")
    dry = privacy("expire", store, "--older-than", "30d", "--dry-run", "--blobs", blobs)
    other = privacy("expire", store, "--older-than", "30d", "--yes", "--tenant", "globex")
    done = privacy("expire", store, "--older-than", "30d", "--yes", "--blobs", blobs)
    result = privacy("expire", store, "--older-than", "720h", "--yes", "--open-too")

    assert dry.stdout == done.stdout == "runs: 2, events: 4, blobs: 1, vectors: 0\n"
    assert other.stdout == "runs: 0, events: 0, blobs: 0, vectors: 0\n"
    assert result.stdout == "runs: 1, events: 1, blobs: 0, vectors: 0\n"
    assert left(place) == ["new"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["expire", "runs.db", "--older-than", "soon"], "expected an age"),
        (["expire", "runs.db", "--older-than", "0d"], "expected an age"),
        (["erase-tenant", "runs.db", ""], "got an empty text"),
        (["erase-tenant", "runs.db", "a:b", "--dry-run", "--vectors", "vectors.db"], "holds none"),
        (["erase-run", "nowhere.db", "run"], "no event store"),
    ],
)
def test_a_wrong_call_exits_with_the_reason(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(place)
    result = privacy(*arguments)

    assert (result.exit_code, message in result.output) == (2, True), result.output
    assert left(place) == ALL


def test_an_unknown_run_is_an_error(place: Path) -> None:
    result = privacy("erase-run", str(place / "runs.db"), "never", "--yes")

    assert (result.exit_code, "no run 'never'" in result.output) == (1, True)


def test_what_is_erased_on_a_redis_server_leaves_its_append_only_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = redis.own_server("--appendfsync", "always")

    async def fill() -> None:
        store = RedisEventStore(server.url, partitions=3)
        await store.setup()
        for name in ("one", "two", "three"):
            await log_of(
                store, name, days=40, input=[{"role": "user", "content": f"MARKER-{name}"}]
            )
        await store.close()

    def kept(name: str) -> bool:
        files = [path for path in server.folder.rglob("*") if path.is_file()]
        return any(f"MARKER-{name}".encode() in path.read_bytes() for path in files)

    run(fill())
    assert kept("one")
    done = privacy("erase-run", server.url, "one", "--yes")
    assert (done.exit_code, done.stdout) == (0, "runs: 1, events: 2, blobs: 0, vectors: 0\n")
    assert (kept("one"), kept("two")) == (False, True)

    with monkeypatch.context() as patched:
        patched.setattr(RedisEventStore, "purge", _refused)
        done = privacy("erase-run", server.url, "two", "--yes")
    assert (done.exit_code, done.stdout) == (1, "runs: 1, events: 2, blobs: 0, vectors: 0\n")
    assert "not yet from the server's files: no permission" in done.stderr
    assert kept("two")


async def _refused(_: RedisEventStore) -> None:
    raise StoreError("no permission")
