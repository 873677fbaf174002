"""The tracing of lines for coverage, and how to leave out what only repeats other tests."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager


def measures() -> bool:
    """Return True if this process measures which lines run."""
    return "coverage" in type(sys.gettrace()).__module__


@contextmanager
def untraced() -> Generator[None]:
    """Trace no line in the meantime."""
    if not measures():
        yield
        return
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        # The first call of a function lets the tracer, written in C, take over again.
        threading.settrace(of_threads)
