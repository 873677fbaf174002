"""Logs that break a rule are found, each by the rule that they break."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lib.events import Event, NewEvent, RunInfo
from lib.events import kinds as k
from lib.events.runs import fold
from lib.events.verify import log_faults
from lib.testing.event_store.kit import AT, ended, note, started

from .verify_kit import SOUND, hears, new, tool


def logged(events: Iterable[NewEvent]) -> list[Event]:
    return [Event("run", seq, e.kind, e.data, e.at, "t", e.user) for seq, e in enumerate(events, 1)]


def without(*places: int) -> list[NewEvent]:
    return [event for place, event in enumerate(SOUND) if place not in places]


def listed(events: Sequence[Event]) -> RunInfo:
    """Return how a store lists a log, sound or not."""
    return replace(fold(logged(SOUND)), head=len(events))


def rules(info: RunInfo, events: Sequence[Event]) -> list[tuple[int, str]]:
    return [(fault.seq, fault.rule) for fault in log_faults(info, events)]


def test_a_sound_log_has_no_fault() -> None:
    log = logged(SOUND)

    assert log_faults(fold(log), log) == []
    for length in range(1, len(log)):
        assert log_faults(fold(log[:length]), log[:length]) == []


BROKEN: dict[str, tuple[list[NewEvent], list[tuple[int, str]]]] = {
    "no start": (without(0), [(1, "start")]),
    "two starts": ([SOUND[0], *SOUND], [(2, "start")]),
    "a late start": ([note(), SOUND[0], ended()], [(1, "start"), (2, "start")]),
    "two ends": ([started(), ended(), ended()], [(3, "end")]),
    "work after the end": (
        [started(), ended(), new(k.LLM_REQUESTED, key="llm/1"), tool("c1"), note()],
        [(3, "end"), (4, "end"), (3, "request"), (4, "request")],
    ),
    "an open request": (without(9), [(9, "request")]),
    "an open call": (without(6), [(5, "request"), (8, "call")]),
    "a check of no call": (
        [started(), new(k.TOOL_CHECKED, key="tool/1/c1", answer="happened"), ended()],
        [(2, "check")],
    ),
    "a check of what may be repeated": (
        [
            started(),
            tool("c1", effects="none"),
            new(k.TOOL_CHECKED, key="tool/c1", answer="happened"),
            tool("c1", k.TOOL_COMPLETED),
            ended(),
        ],
        [(3, "check")],
    ),
    "a check that answers something else": (
        [
            started(),
            tool("c1"),
            new(k.TOOL_CHECKED, key="tool/c1", answer="perhaps"),
            tool("c1", k.TOOL_COMPLETED),
            ended(),
        ],
        [(3, "check")],
    ),
    "an output of a call whose check cannot tell": (
        [
            started(),
            tool("c1"),
            new(k.TOOL_CHECKED, key="tool/c1", answer="cannot_tell"),
            tool("c1", k.TOOL_COMPLETED),
            ended(),
        ],
        [(4, "check")],
    ),
    "a call that happened and is unknown": (
        [
            started(),
            tool("c1"),
            new(k.TOOL_CHECKED, key="tool/c1", answer="happened"),
            tool("c1", k.TOOL_FAILED, reason="unknown"),
            ended(),
        ],
        [(4, "check")],
    ),
    "a key requested twice": (
        [
            started(),
            tool("c1"),
            tool("c1", k.TOOL_COMPLETED),
            tool("c1"),
            tool("c1", k.TOOL_FAILED),
            ended(),
        ],
        [(4, "request")],
    ),
    "a request without a key": (
        [started(), new(k.TOOL_REQUESTED, key=["x"])],
        [(2, "request"), (2, "request"), (2, "payload")],
    ),
    "a result without a request": (without(3), [(7, "result")]),
    "a result of another kind": (
        [started(), tool("c1"), new(k.MEMORY_COMPLETED, key="tool/c1"), ended()],
        [(3, "result")],
    ),
    "a summary that answers no request, and one that another program has made": (
        [started(), new(k.CONTEXT_SUMMARY, key="summary/1"), new(k.CONTEXT_SUMMARY), ended()],
        [(2, "result")],
    ),
    "two results": (
        [started(), tool("c1"), tool("c1", k.TOOL_FAILED), tool("c1", k.TOOL_COMPLETED), ended()],
        [(4, "result")],
    ),
    "an intent of a worker that has lost the run": (
        [
            started(),
            tool("c1", epoch=2),
            tool("c1", k.TOOL_FAILED),
            tool("c2", epoch=1),
            tool("c2", k.TOOL_FAILED),
            tool("c3", epoch=2),
            tool("c3", k.TOOL_FAILED),
            ended(),
        ],
        [(4, "epoch")],
    ),
    "an intent of a worker that was taken over": (
        [
            started(),
            new(k.MEMORY_REQUESTED, key="memory/1", epoch=3),
            new(k.MEMORY_FAILED, key="memory/1"),
            new(k.LEASE_LOST, signal_id="s", worker="v", epoch=1),
            new(k.CHILD_REQUESTED, key="child/1", run_id="c", epoch=2),
            hears("c"),
            ended(),
        ],
        [(5, "epoch")],
    ),
    "a call without an answer": (without(4, 6), [(7, "call")]),
}


EPOCHS: list[dict[str, Any]] = [{}, {"epoch": 2}, {}, {"epoch": 2}, {"epoch": 7}, {}]


@pytest.mark.parametrize(("events", "faults"), BROKEN.values(), ids=list(BROKEN))
def test_each_broken_rule_is_named_at_its_event(
    events: list[NewEvent], faults: list[tuple[int, str]]
) -> None:
    log = logged(events)

    assert rules(listed(log), log) == faults


@pytest.mark.parametrize(
    "unreadable",
    [
        {},
        {"reply": None},
        {"reply": {"parts": 1}},
        {"reply": {"parts": [1, {"type": "tool_call"}]}},
    ],
)
def test_a_reply_that_is_none_has_no_calls(unreadable: dict[str, Any]) -> None:
    one, two = [new(k.LLM_REQUESTED, key=f"llm/{n}") for n in (1, 2)]
    none = new(k.LLM_COMPLETED, key="llm/1", **unreadable)
    log = logged([started(tenant="t"), one, none, two])

    assert rules(fold(log), log) == [(3, "payload")]


@pytest.mark.parametrize(
    ("gone", "faults"),
    [
        ([5], [(5, "sequence")]),
        ([12], [(12, "sequence")]),
        ([5, 11], [(5, "sequence"), (11, "sequence")]),
        (range(13), [(0, "sequence")]),
    ],
)
def test_a_hole_is_found(gone: Sequence[int], faults: list[tuple[int, str]]) -> None:
    log = logged(SOUND)

    assert rules(fold(log), [e for place, e in enumerate(log) if place not in gone]) == faults


def test_an_event_of_another_tenant_is_found() -> None:
    log = logged(SOUND)
    log[3].tenant, log[7].tenant = "other", None

    assert rules(fold(logged(SOUND)), log) == [(4, "tenant"), (8, "tenant")]


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "other"},
        {"outcome": "COMPLETED"},
        {"status": "open"},
        {"ready": True},
        {"user": "u"},
        {"root_id": "root"},
        {"parent_id": "parent"},
        {"created_at": AT.replace(year=2000)},
        {"updated_at": AT.replace(year=2000)},
    ],
)
def test_a_list_that_contradicts_the_log_is_found(change: dict[str, Any]) -> None:
    log = logged(SOUND)
    [fault] = log_faults(replace(fold(log), **change), log)

    assert (fault.seq, fault.rule) == (0, "projection")
    assert next(iter(change)) in fault.message


def test_leases_are_not_compared_with_the_log() -> None:
    log = logged(SOUND[:4])
    info = replace(fold(log), owner="me", lease_until=AT, ready=False)

    assert log_faults(info, log) == []


def test_epochs_may_be_missing_repeat_and_leap() -> None:
    requests = [new(k.LLM_REQUESTED, key=f"llm/{n}", **more) for n, more in enumerate(EPOCHS)]
    log = logged([started(tenant="t"), *requests])

    assert rules(fold(log), log) == []


def test_a_log_that_cannot_be_folded_is_found() -> None:
    log = logged([started(tenant="t"), NewEvent(k.RUN_COMPLETED, {}, AT)])

    assert rules(listed(log), log) == [(2, "payload")]
