"""Tests which time counts against a run's budget of seconds."""

from typing import Any

from lib.algorithms import React
from lib.engine.core.state import fold
from lib.events import kinds as k
from lib.testing.logs import make_log

Entry = tuple[float, str, dict[str, Any]]
STARTED: Entry = (0, k.RUN_STARTED, {"algorithm": "react", "input": []})
LOOK: Entry = (0, k.TOOL_REQUESTED, {"key": "t", "call_id": "t", "name": "look", "args": {}})
LOOKED = (k.TOOL_COMPLETED, {"key": "t", "call_id": "t", "output": ""})


def requested(name: str) -> Entry:
    return (0, k.CHILD_REQUESTED, {"key": name, "call_id": name, "run_id": name})


def ended(at: float, name: str, worked_s: float) -> Entry:
    spend = {"seconds": worked_s}
    data = {"key": name, "call_id": name, "run_id": name, "outcome": "COMPLETED", "spend": spend}
    return (at, k.CHILD_COMPLETED, data)


def seconds(*log: Entry) -> float:
    return fold(React(), make_log(STARTED, *log)).spend.seconds


def test_time_in_which_a_child_waited_for_approval_does_not_count_for_its_parent() -> None:
    assert seconds(requested("a"), ended(3600, "a", 2)) == 2


def test_parallel_children_count_no_more_time_than_has_passed() -> None:
    assert seconds(requested("a"), requested("b"), ended(4, "a", 4), ended(5, "b", 5)) == 5


def test_time_counts_in_full_while_the_run_has_calls_of_its_own() -> None:
    assert seconds(requested("a"), LOOK, (6, *LOOKED), ended(10, "a", 1)) == 7


def test_a_run_delegates_if_all_of_its_open_requests_are_child_runs() -> None:
    def delegates(*log: Entry) -> bool:
        return fold(React(), make_log(STARTED, *log)).delegates

    assert not delegates()  # it waits for nothing
    assert delegates(requested("a"))
    assert not delegates(requested("a"), LOOK)
