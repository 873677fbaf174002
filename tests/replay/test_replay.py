"""Logs of every release are read and folded to the same end, on every test run."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine.api.check import request_check
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events.codec import encode_data, event_from_json, event_to_json
from lib.events.verify import verify_store
from lib.llm import message_from_json, message_to_json

HERE = Path(__file__).parent
LOGS = sorted(HERE.glob("v*/*.jsonl"))


def read(path: Path) -> list[Event]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [event_from_json(json.loads(line)) for line in lines]


def ending(log: list[Event]) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("record", HERE / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ending(log)


def test_recorded_logs_exist() -> None:
    assert {path.stem for path in LOGS} >= {"approvals", "takeover", "cancelled", "limited"}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_log_folds_to_the_end_that_was_recorded_with_it(path: Path) -> None:
    recorded = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))

    assert ending(read(path)) == recorded


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_log_verifies_and_its_requests_render_as_recorded(path: Path) -> None:
    log = read(path)

    store = MemoryEventStore()
    await store.setup()
    for event in log:
        new = NewEvent(event.kind, event.data, event.at, event.tenant, event.user)
        await store.append(event.run_id, [new], expected=event.seq - 1)
    report = await verify_store(store, deep=True, checks=[request_check([React()])])
    assert list(report.faults) == []


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_events_and_messages_are_written_as_they_were_read(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        messages = value["data"].get("input", [])
        again = event_to_json(event_from_json(value))
        for place, message in enumerate(messages):
            again["data"]["input"][place] = message_to_json(message_from_json(message))
        again["data"] = json.loads(encode_data(again["data"]))

        assert json.dumps(again, ensure_ascii=False) == line
