"""Tests circuit breakers: their states, probes, and which errors count."""

from contextlib import AbstractContextManager, suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from lib.errors import (
    CircuitOpen,
    DeadlineExceeded,
    InvalidReply,
    LLMError,
    RateLimited,
    ToolError,
    UnsupportedModality,
)
from lib.resilience import CircuitBreaker
from lib.resilience.breaker import shows_failure
from lib.testing.clock import ManualClock

DOWN = LLMError("down", status=503, retryable=True)
REFUSED = LLMError("no such model", status=404)


def call(breaker: CircuitBreaker, error: BaseException | None = None) -> str:
    """Make a call that comes to this."""
    attempt = breaker.attempt()
    try:
        attempt.__enter__()
    except CircuitOpen:
        return "refused"
    end(attempt, error)
    return "answered" if error is None else "raised"


def end(attempt: AbstractContextManager[None], error: BaseException | None) -> None:
    """End a call, which does not swallow its error."""
    with suppress(BaseException):
        assert not attempt.__exit__(error and type(error), error, None)


def opened(clock: ManualClock) -> CircuitBreaker:
    breaker = CircuitBreaker("openai", failures=2, open_s=30.0, clock=clock)
    assert [call(breaker, DOWN), call(breaker, DOWN)] == ["raised", "raised"]
    return breaker


def test_a_service_that_fails_is_refused_at_once_and_says_for_how_long() -> None:
    clock = ManualClock()
    breaker = opened(clock)
    clock.advance(10.0)

    with pytest.raises(CircuitOpen) as refusal, breaker.attempt():
        raise AssertionError("called")
    assert breaker.state == "open"
    assert (refusal.value.retryable, refusal.value.retry_after_s) == (True, 20.0)
    assert str(refusal.value) == "openai is not called for 20.0 s, its last calls have failed"


def test_one_probe_decides_about_a_service_that_failed() -> None:
    clock = ManualClock()
    breaker = opened(clock)
    clock.advance(30.0)
    assert breaker.state == "half_open"

    with breaker.attempt():
        assert call(breaker) == "refused"
    assert (breaker.state, call(breaker)) == ("closed", "answered")

    breaker = opened(clock)
    clock.advance(30.0)
    assert [call(breaker, DOWN), call(breaker)] == ["raised", "refused"]
    assert breaker.state == "open"


@pytest.mark.parametrize("nothing", [KeyboardInterrupt(), GeneratorExit(), ValueError("a bug")])
def test_a_probe_that_shows_nothing_leaves_its_place_to_the_next(nothing: BaseException) -> None:
    clock = ManualClock()
    breaker = opened(clock)
    clock.advance(30.0)

    assert [call(breaker, nothing), call(breaker)] == ["raised", "answered"]
    assert breaker.state == "closed"


def test_a_probe_that_never_ends_makes_way_for_another() -> None:
    clock = ManualClock()
    breaker = opened(clock)
    clock.advance(30.0)

    lost = breaker.attempt()
    lost.__enter__()
    clock.advance(29.0)
    assert call(breaker) == "refused"
    clock.advance(1.0)
    assert [call(breaker, DOWN), breaker.state] == ["raised", "open"]

    lost.__exit__(None, None, None)  # too late to say anything
    assert breaker.state == "open"


def test_a_call_of_before_the_failure_does_not_close_the_circuit() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker(failures=2, clock=clock)
    with breaker.attempt():
        assert [call(breaker, DOWN), call(breaker, DOWN)] == ["raised", "raised"]
    assert breaker.state == "open"


def test_rare_failures_among_many_answers_open_nothing() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker(failures=2, ratio=0.5, clock=clock)
    for _ in range(50):
        assert [call(breaker), call(breaker), call(breaker, DOWN)][-1] == "raised"
    assert breaker.state == "closed"


def test_failures_of_long_ago_are_forgotten() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker(failures=2, window_s=60.0, clock=clock)
    for _ in range(10):
        call(breaker, DOWN)
        clock.advance(60.0)
    assert breaker.state == "closed"


def test_only_errors_of_an_ill_service_are_failures() -> None:
    ill = [
        DOWN,
        LLMError("no connection", retryable=True),
        LLMError("", status=529, retryable=True),
    ]
    ill += [InvalidReply("cut off", retryable=True)]
    alive = [REFUSED, LLMError("too fast", status=429, retryable=True), LLMError("", status=400)]
    silent = [
        UnsupportedModality("image", client="chat", supported=frozenset({"text"})),
        CircuitOpen("a", retry_after_s=1.0),
        RateLimited("a", retry_after_s=1.0, max_wait_s=0.0),
        DeadlineExceeded(1.0),
        KeyError("a bug"),
    ]
    assert [shows_failure(error) for error in [*ill, TimeoutError(), ToolError("timeout", "")]] == [
        True
    ] * 6
    assert [shows_failure(error) for error in alive] == [False] * 3
    assert [shows_failure(error) for error in silent] == [None] * 5


@pytest.mark.parametrize(
    "wrong", [{"failures": 0}, {"ratio": 1.5}, {"window_s": 0}, {"open_s": -1}, {"ratio": -0.1}]
)
def test_a_breaker_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"expected|above 0"):
        CircuitBreaker(**wrong)  # pyright: ignore[reportArgumentType] - wrong on purpose


FAILURES, WINDOW_S, OPEN_S = 3, 10.0, 5.0


class Breaking(RuleBasedStateMachine):
    """Calls of all outcomes, overlapping, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.breaker = CircuitBreaker(
            failures=FAILURES, ratio=0.0, window_s=WINDOW_S, open_s=OPEN_S, clock=self.clock
        )
        self.running: list[tuple[float, str, AbstractContextManager[None]]] = []
        self.failed: list[float] = []

    @rule()
    def begin(self) -> None:
        now, state = self.clock.monotonic(), self.breaker.state
        probes = [began for began, kind, _ in self.running if kind == "half_open"]
        attempt = self.breaker.attempt()
        try:
            attempt.__enter__()
        except CircuitOpen as error:
            wait_s = error.retry_after_s
        else:
            wait_s = None
            self.running.append((now, state, attempt))
        if wait_s is not None:
            assert state != "closed"
            assert 0 < wait_s <= OPEN_S
            return
        assert state != "open"
        if state == "half_open":  # no two probes at once, unless one is too slow
            assert all(began <= now - OPEN_S for began in probes)

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 9), error=st.sampled_from([None, DOWN, REFUSED, KeyError("bug")]))
    def finish(self, place: int, error: Exception | None) -> None:
        before = self.breaker.state
        _, _, attempt = self.running.pop(place % len(self.running))
        now = self.clock.monotonic()
        if error is DOWN:
            self.failed.append(now)
        end(attempt, error)
        recent = sum(at > now - WINDOW_S for at in self.failed)
        match before, self.breaker.state:
            case "closed", "open":
                assert error is DOWN
                assert recent >= FAILURES
            case "half_open", "open":
                assert error is DOWN
            case "half_open", "closed":
                assert error in (None, REFUSED)
            case then, after:
                assert then == after

    @rule(seconds=st.sampled_from([0.5, 2.0, OPEN_S, 2 * WINDOW_S]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)


TestBreaking = Breaking.TestCase
