"""A circuit breaker: a service that fails is left alone for a while, and then tried by one call.

    closed      calls pass; their failures are counted.
    open        calls are refused at once, for `open_s` seconds.
    half-open   one call at a time passes as a probe: an answer closes the circuit, a failure opens
                it again. A probe that was cancelled says nothing, and the next call is one.

Only what calls of the present state come to is counted: an answer to a call that began before the
circuit opened does not close it.

Source: M. Nygard, "Release It!", 2nd edition 2018, "Circuit Breaker".
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Literal

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import CircuitOpen, RateLimited, RemoteError, ToolError

CircuitState = Literal["closed", "open", "half_open"]

MAX_COUNTED: Final = 1_000
"""The most calls of a window that are counted: the newest."""
_CALLERS_FAULT: Final = frozenset({409, 429})
_ILL_CODES: Final = frozenset({"timeout", "unavailable"})


def shows_failure(error: BaseException) -> bool | None:
    """Return True if an error shows that its service fails, False if that it works.

    None if it shows neither, as a request that was never sent does. A service that refuses a
    request, or says that its caller is too fast, works.
    """
    match error:
        case CircuitOpen() | RateLimited():
            return None
        case RemoteError(retryable=True, status=status):
            return status not in _CALLERS_FAULT
        case RemoteError(status=status):
            return None if status is None else False
        case ToolError(code=code):
            return True if code in _ILL_CODES else None
        case TimeoutError() | ConnectionError():
            return True
        case _:
            return None


class CircuitBreaker:
    """Leaves a service alone while it fails. One object for each service, shared by its callers.

    It may be used from several threads and event loops. Each process has its own.

    Attributes:
        name: of the service, for errors.
    """

    def __init__(
        self,
        name: str = "the service",
        *,
        failures: int = 5,
        ratio: float = 0.5,
        window_s: float = 60.0,
        open_s: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Begin closed.

        Args:
            name: of the service, for errors.
            failures: how many calls must have failed in a window before the circuit opens.
            ratio: and what share of the window's calls that must be, from 0 to 1.
            window_s: how long the outcome of a call counts.
            open_s: how long no call is made; and how long a probe may take before the next call
                is one as well.
            clock: measures.

        Raises:
            ValueError: a number that makes no sense.
        """
        if not 1 <= failures <= MAX_COUNTED:
            raise ValueError(f"expected failures of 1 to {MAX_COUNTED}, got {failures!r}")
        if not 0 <= ratio <= 1:
            raise ValueError(f"expected a ratio of 0 to 1, got {ratio!r}")
        if not (window_s > 0 and open_s > 0):
            raise ValueError("window_s and open_s are above 0")
        self.name: str = name
        self._failures, self._ratio = failures, ratio
        self._window_s, self._open_s = window_s, open_s
        self._clock = clock
        self._lock = threading.Lock()
        self._outcomes = deque[tuple[float, bool]](maxlen=MAX_COUNTED)
        self._opened_at: float | None = None
        self._probe_began: float | None = None
        self._epoch = 0  # changes with the state, and with each probe

    @property
    def state(self) -> CircuitState:
        """The present state."""
        if self._opened_at is None:
            return "closed"
        return "open" if self._remaining_s(self._opened_at) > 0 else "half_open"

    def check(self) -> None:
        """Raise the error of `attempt` if it would; it takes no probe.

        Raises:
            CircuitOpen: no call is made now.
        """
        for since in (self._opened_at, self._probe_began):
            if since is not None and (wait_s := self._remaining_s(since)) > 0:
                raise CircuitOpen(self.name, retry_after_s=wait_s)

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Make one call in the block, and count what it comes to.

        Raises:
            CircuitOpen: no call is made now.
        """
        with self._lock:
            self.check()
            epoch = self._begin_probe() if self._opened_at is not None else self._epoch
        failed: bool | None = False
        try:
            yield
        except BaseException as error:
            failed = shows_failure(error)
            raise
        finally:
            with self._lock:
                if epoch == self._epoch:
                    self._count(failed)

    def _remaining_s(self, since: float) -> float:
        return since + self._open_s - self._clock.monotonic()

    def _begin_probe(self) -> int:
        self._epoch += 1
        self._probe_began = self._clock.monotonic()
        return self._epoch

    def _count(self, failed: bool | None) -> None:
        probing, self._probe_began = self._probe_began is not None, None
        if failed is None:
            return
        if probing:
            self._move(opened=failed)
            return
        now = self._clock.monotonic()
        self._outcomes.append((now, failed))
        if failed and self._fails_too_often(now):
            self._move(opened=True)

    def _fails_too_often(self, now: float) -> bool:
        while self._outcomes[0][0] <= now - self._window_s:
            self._outcomes.popleft()
        failures = sum(failed for _, failed in self._outcomes)
        return failures >= max(self._failures, self._ratio * len(self._outcomes))

    def _move(self, *, opened: bool) -> None:
        self._epoch += 1
        self._outcomes.clear()
        self._opened_at = self._clock.monotonic() if opened else None
