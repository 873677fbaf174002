"""Failures that repeat: a line at once, a count now and then, a line when they end."""

import logging
from collections.abc import Generator

import pytest

from lib._util.repeated import EVERY_S, RepeatedFailure
from lib.testing.clock import ManualClock

DOWN = ValueError("down")


@pytest.fixture
def failures(caplog: pytest.LogCaptureFixture) -> Generator[tuple[RepeatedFailure, ManualClock]]:
    clock = ManualClock()
    with caplog.at_level(logging.DEBUG, "lib.test"):
        yield RepeatedFailure(logging.getLogger("lib.test"), logging.ERROR, clock), clock


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == level]


def test_a_thousand_failures_in_ten_minutes_are_ten_lines_and_one_traceback(
    failures: tuple[RepeatedFailure, ManualClock], caplog: pytest.LogCaptureFixture
) -> None:
    failing, clock = failures
    failing.ended("it works")
    for _ in range(1000):
        failing.failed("it does not work", DOWN)
        clock.advance(0.6)
    failing.ended("it works again")
    failing.ended("it works again")

    errors = lines(caplog, logging.ERROR)
    assert errors[0] == "it does not work: ValueError: down"
    assert errors[1] == errors[0] + " (99 failures more since the last line)"
    assert len(errors) == 600 / EVERY_S
    assert [each.levelname for each in caplog.records if each.exc_info] == ["DEBUG"]
    assert lines(caplog, logging.INFO) == ["it works again, after 96 failures more"]


def test_what_fails_and_works_in_turns_is_a_line_a_minute_too(
    failures: tuple[RepeatedFailure, ManualClock], caplog: pytest.LogCaptureFixture
) -> None:
    failing, clock = failures
    for _ in range(200):
        failing.failed("it does not work", DOWN)
        failing.ended("it works again")
        clock.advance(0.6)

    assert len(lines(caplog, logging.ERROR)) == 2
    assert len(lines(caplog, logging.INFO)) == 2
