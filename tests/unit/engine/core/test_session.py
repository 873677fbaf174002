"""The fold of a session, where the engine's own runs do not lead."""

from typing import Any

from lib.algorithms import SessionLoop
from lib.engine import Finish, TurnRequest, Wait
from lib.engine.core.session import KeySet
from lib.engine.core.state import begin, evolve, fold
from lib.events import Event
from lib.events import kinds as k
from lib.testing.clock import ManualClock

AT = ManualClock().now()
LOOP = SessionLoop()


def log(*events: tuple[str, dict[str, Any]]) -> list[Event]:
    config = {"algorithm": "react", "turn_budget": {"tokens": 5}}
    data: dict[str, Any] = {"algorithm": "session", "input": [], "config": config}
    start = (k.RUN_STARTED, data)
    return [
        Event("s", seq, kind, payload, AT)
        for seq, (kind, payload) in enumerate([start, *events], 1)
    ]


def message_sent(key: str) -> tuple[str, dict[str, Any]]:
    return k.TURN_REQUESTED, {"signal_id": key, "input": [{"role": "user", "content": key}]}


def began(key: str) -> tuple[str, dict[str, Any]]:
    return k.TURN_STARTED, {"key": key, "run_id": f"run-{key}", "algorithm": "react", "upto": 1}


def ended(key: str) -> tuple[str, dict[str, Any]]:
    return k.TURN_COMPLETED, {"key": key, "signal_id": key, "run_id": f"run-{key}", "spend": {}}


CLOSE = (k.CLOSE_REQUESTED, {"signal_id": "close"})


def decided(*events: tuple[str, dict[str, Any]]) -> Any:
    return LOOP.decide(fold(LOOP, log(*events)).loop)


def keys(decision: Any) -> list[str]:
    return [request.key for request in decision]


def test_the_session_loop_has_no_configuration() -> None:
    assert LOOP.config() == {}


def test_a_session_waits_for_its_first_turn() -> None:
    assert decided() == Wait()
    assert decided(message_sent("a")) == [
        TurnRequest(
            key="a",
            algorithm="react",
            input=[{"role": "user", "content": "a"}],
            budget={"tokens": 5},
        )
    ]


def test_turns_are_requested_one_at_a_time_in_log_order() -> None:
    both = (message_sent("b"), message_sent("a"))

    assert keys(decided(*both)) == ["b"]
    assert decided(*both, began("b")) == Wait()
    assert keys(decided(*both, began("b"), ended("b"))) == ["a"]
    assert decided(*both, began("b"), ended("b"), began("a"), ended("a")) == Wait()


def test_a_turn_that_is_sent_twice_is_answered_once() -> None:
    assert (
        decided(message_sent("a"), began("a"), message_sent("a"), ended("a"), message_sent("a"))
        == Wait()
    )


def test_a_close_ends_the_session_after_the_turns_before_it() -> None:
    assert keys(decided(message_sent("a"), CLOSE, message_sent("b"))) == ["a"]
    assert decided(message_sent("a"), CLOSE, message_sent("b"), began("a")) == Wait()
    assert decided(message_sent("a"), CLOSE, message_sent("b"), began("a"), ended("a")) == Finish(
        outcome="COMPLETED"
    )


def test_a_turn_that_is_cancelled_before_it_begins_is_not_requested() -> None:
    off = (k.CANCEL_REQUESTED, {"signal_id": "c", "key": "a"})

    assert keys(decided(message_sent("a"), message_sent("b"), off)) == ["b"]
    assert decided(message_sent("a"), began("a"), off) == Wait()
    assert not fold(LOOP, log(message_sent("a"), off)).cancelled
    assert fold(LOOP, log((k.CANCEL_REQUESTED, {"signal_id": "c"}))).cancelled


def test_an_evolved_state_leaves_the_one_before_as_it_was() -> None:
    events = log(message_sent("a"), message_sent("b"), began("a"), ended("a"), CLOSE)

    state = begin(LOOP, events[0])
    for size, event in enumerate(events[1:], 2):
        after = evolve(LOOP, state, event)
        assert state == fold(LOOP, events[: size - 1])
        assert hash(state.loop.seen) == hash(fold(LOOP, events[: size - 1]).loop.seen)
        state = after


def test_a_set_of_keys_that_branches_keeps_both_branches() -> None:
    root = KeySet().add("a")
    left, right = root.add("b"), root.add("c")
    again = left.add("d")

    assert [list(keys) for keys in (KeySet(), root, left, right, again)] == [
        [],
        ["a"],
        ["a", "b"],
        ["a", "c"],
        ["a", "b", "d"],
    ]
    assert ("b" in root, "c" in left, "b" in right, "a" in right) == (False, False, False, True)
    assert len(again) == 3
    assert (left == right, left == KeySet().add("a").add("b"), left == ["a", "b"]) == (
        False,
        True,
        False,
    )
