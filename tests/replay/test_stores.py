"""A store of every release opens, is migrated, and holds what its release has written."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine.api.check import request_check
from lib.errors import MigrationNeeded
from lib.events import SQLiteEventStore
from lib.events.codec import encode_data, event_to_json
from lib.events.store import LAYOUT_VERSION, run_mark
from lib.events.verify import verify_store
from lib.llm import Message, message_from_json, message_to_json
from lib.llm.client import reply_from_json, reply_to_json

HERE = Path(__file__).parent
STORES = sorted(HERE.glob("v*/store.db"))
each_store = pytest.mark.parametrize("recorded", STORES, ids=lambda path: path.parent.name)
BLOB = "ab" * 32


def expected_of(recorded: Path) -> dict[str, Any]:
    return json.loads(recorded.with_suffix(".json").read_text(encoding="utf-8"))


def copied(recorded: Path, place: Path) -> Path:
    path = place / "store.db"
    shutil.copyfile(recorded, path)
    return path


def payloads(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    found = connection.execute("SELECT kind, data FROM lib_events ORDER BY pos").fetchall()
    connection.close()
    return found


def test_recorded_stores_exist() -> None:
    assert [path.parent.name for path in STORES] == ["v0.2.0"]


@each_store
async def test_a_migrated_store_holds_the_same_events_runs_leases_and_marks(
    recorded: Path, tmp_path: Path
) -> None:
    expected = expected_of(recorded)
    path = copied(recorded, tmp_path)
    before = payloads(path)

    store = SQLiteEventStore(path)
    await store.setup()
    feed = await store.feed(limit=10_000)
    cursor = await store.mark("bus/lib.observe")

    assert await store.schema_version() == LAYOUT_VERSION
    assert [event_to_json(event) for event in feed.events] == expected["events"]
    runs = {info.run_id: [info.head, info.status, info.owner] for info in await store.runs()}
    assert runs == expected["runs"]
    assert cursor == expected["cursor"]
    assert (
        len((await store.feed(expected["cursor"], limit=10_000)).events) == expected["after_cursor"]
    )
    assert await store.mark(run_mark("parent", "trace")) == "kept"
    await store.close()
    assert payloads(path) == before


@each_store
async def test_a_store_of_layout_one_is_not_read_before_its_migration(
    recorded: Path, tmp_path: Path
) -> None:
    if expected_of(recorded)["layout"] == LAYOUT_VERSION:
        return
    path = copied(recorded, tmp_path)
    before = path.read_bytes()

    with pytest.raises(MigrationNeeded) as caught:
        await SQLiteEventStore(path, read_only=True).setup()
    assert (caught.value.found, caught.value.supported) == (1, LAYOUT_VERSION)
    assert path.read_bytes() == before


@each_store
async def test_the_migration_indexes_blob_references_and_child_runs(
    recorded: Path, tmp_path: Path
) -> None:
    path = copied(recorded, tmp_path)

    store = SQLiteEventStore(path)
    await store.setup()
    assert await store.blob_users(BLOB, limit=9) == ["parent"]
    assert await store.erase("parent") is True
    assert await store.blob_users(BLOB) == []
    await store.close()


@each_store
async def test_a_store_passes_deep_verification_before_and_after_rewriting(
    recorded: Path, tmp_path: Path
) -> None:
    path = copied(recorded, tmp_path)
    expected = expected_of(recorded)

    store = SQLiteEventStore(path)
    await store.setup()
    report = await verify_store(store, deep=True, checks=[request_check([React()])])
    assert report.faults == []
    assert report.runs == len(expected["runs"])
    await store.close()


@each_store
def test_payloads_and_messages_are_rewritten_byte_for_byte(
    recorded: Path,
) -> None:
    messages = 0
    for _, text in payloads(recorded):
        data = json.loads(text)
        assert encode_data(data) == text
        for name in ("input", "messages"):
            if name in data:
                data[name] = [message_to_json(message_from_json(item)) for item in data[name]]
                messages += len(data[name])
        if "reply" in data:
            data["reply"] = reply_to_json(reply_from_json(data["reply"]))
            messages += 1
        assert encode_data(data) == text
    assert messages >= 10


def test_a_message_of_text_alone_is_written_as_release_0_2_wrote_it() -> None:
    written = '{"content":"Naïve ☃","role":"user"}'

    assert encode_data(message_to_json(Message.user("Naïve ☃"))) == written
