"""Bounds of work that hold on a slow or busy machine, too: a loop beside it says how slow it is."""

import time
from collections.abc import Generator
from contextlib import contextmanager

_LOOPS = 250_000
_QUICK_S = 0.012
"""What the loop takes on a quick machine."""


@contextmanager
def effort_below(cpu_s: float, name: str = "") -> Generator[None]:
    """Hold that a block takes less of the processor than so many seconds of a quick machine.

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
