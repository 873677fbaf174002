"""Bounds of work that hold on a slow or busy machine, too, and while coverage is measured."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_LOOPS = 250_000
_QUICK_S = 0.012
"""What the loop takes on a quick machine."""


@contextmanager
def effort_below(cpu_s: float, name: str = "") -> Generator[None]:
    """Hold that a block takes less of the processor than so many seconds of a quick machine.

    A loop beside it says how slow this machine is.

    Args:
        cpu_s: the seconds.
        name: of the case, for the failure.
    """
    before_s = _loop_s()
    began = time.process_time()
    yield
    took_s = time.process_time() - began
    slowness = max(1.0, before_s / _QUICK_S, _loop_s() / _QUICK_S)
    assert took_s < cpu_s * slowness, f"{name!r} took {took_s:.2f} of {cpu_s:g} x {slowness:.1f} s"


def _loop_s() -> float:
    began = time.process_time()
    total = 0
    for number in range(_LOOPS):
        total += number
    return time.process_time() - began


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls some work takes, without those that measure coverage."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if "slipcover" not in f"{frame.f_code.co_filename} {getattr(argument, '__module__', '')}":
            count += 1

    work()  # what measures coverage leaves a function alone after some calls
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
