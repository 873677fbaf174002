"""Tests what counts as a failure: not the lost lease of a slow worker that lives."""

from typing import Any

from lib.engine.core.algorithm import NULL_ALGORITHM
from lib.engine.core.state import MAX_RESUMES, RunState, fold
from lib.events import Event
from lib.events import kinds as k
from lib.testing.event_store.kit import AT

REQUESTED = (k.LLM_REQUESTED, {"key": "llm/1"})
MANY = 3 * MAX_RESUMES


def folded(*entries: tuple[str, dict[str, Any]]) -> RunState[None]:
    start: tuple[str, dict[str, Any]] = (k.RUN_STARTED, {"algorithm": "react"})
    events = [Event("r", n, *entry, AT) for n, entry in enumerate([start, *entries], 1)]
    return fold(NULL_ALGORITHM, events)


def taken(epoch: int) -> tuple[str, dict[str, Any]]:
    return k.RUN_RESUMED, {"worker": f"w{epoch}", "epoch": epoch}


def lost(epoch: int) -> tuple[str, dict[str, Any]]:
    return k.LEASE_LOST, {"signal_id": f"lost/{epoch}", "worker": f"w{epoch}", "epoch": epoch}


def test_takeovers_from_living_workers_do_not_count() -> None:
    pairs = [entry for n in range(1, MANY) for entry in (taken(n + 1), lost(n))]
    state = folded(REQUESTED, *pairs)
    assert (state.resumes, state.poisoned) == (0, False)


def test_a_loss_may_be_recorded_before_or_after_the_takeover() -> None:
    pairs = [entry for n in range(1, MANY) for entry in (lost(n), taken(n + 1))]
    assert folded(REQUESTED, *pairs).resumes == 0


def test_takeovers_from_dead_workers_count() -> None:
    state = folded(REQUESTED, *[taken(n) for n in range(2, MAX_RESUMES + 2)])
    assert (state.resumes, state.poisoned) == (MAX_RESUMES, True)
    assert folded(REQUESTED, *[taken(n) for n in range(2, 7)], lost(3)).resumes == 4


def test_a_loss_that_is_recorded_twice_counts_once() -> None:
    assert folded(REQUESTED, taken(2), taken(3), taken(4), lost(2), lost(2)).resumes == 2


def test_a_worker_whose_takeover_left_no_event_still_counts_as_the_owner() -> None:
    assert folded(REQUESTED, taken(2), taken(7), lost(5)).resumes == 1
    assert folded(REQUESTED, taken(2), taken(7), lost(7)).resumes == 2


def test_a_result_resets_the_count_and_older_losses_excuse_no_later_takeover() -> None:
    answered = (k.LLM_FAILED, {"key": "llm/1"})
    requested = (k.LLM_REQUESTED, {"key": "llm/2"})
    assert folded(REQUESTED, taken(2), taken(3), answered, requested).resumes == 0
    assert folded(REQUESTED, taken(2), answered, requested, lost(1), taken(3)).resumes == 1
    assert folded(REQUESTED, taken(2), answered, requested, taken(3), lost(2)).resumes == 0


def test_recorded_failures_count_even_if_their_worker_lives() -> None:
    failed = (k.RUN_RESUMED, {"worker": "w", "epoch": 2, "error": {"type": "ValueError"}})
    assert folded(REQUESTED, taken(2), failed, lost(1), lost(2)).resumes == 1
    without = [(k.RUN_RESUMED, dict[str, Any]())] * 3
    assert folded(REQUESTED, *without, lost(1)).resumes == 3


def test_a_poisoned_run_stays_so() -> None:
    died = [taken(n) for n in range(2, MAX_RESUMES + 2)]
    answered = (k.LLM_FAILED, {"key": "llm/1"})
    assert folded(
        REQUESTED, *died, *[lost(n) for n in range(1, MAX_RESUMES + 1)], answered
    ).poisoned
