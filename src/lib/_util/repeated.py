"""Failures that repeat, logged once, then as a count now and then, and once more when they end."""

from __future__ import annotations

import logging
from typing import Final

from lib._util.clock import Clock

EVERY_S: Final = 60.0
"""At most one line of a failure in so many seconds."""


class RepeatedFailure:
    """Logs what fails again and again, such as a server that is down.

    The first failure is a line, with its traceback at DEBUG. Those after it are counted, and the
    count is a line at most once in `EVERY_S`, however often it fails and works in turns. What ends
    them is a line at INFO.
    """

    def __init__(self, logger: logging.Logger, level: int, clock: Clock) -> None:
        """Begin with nothing failing.

        Args:
            logger: where the lines go.
            level: of failures.
            clock: measures the time between two lines.
        """
        self._logger, self._level, self._clock = logger, level, clock
        self._logged_at: float | None = None
        self._logged = False
        self._count = 0

    def failed(self, what: str, error: BaseException) -> None:
        """Count a failure; log it if the last line is old enough.

        Args:
            what: has failed, and for whom.
            error: why.
        """
        now = self._clock.monotonic()
        if self._logged_at is None:
            self._logger.debug("%s", what, exc_info=error)
        elif now - self._logged_at < EVERY_S:
            self._count += 1
            return
        more = f" ({self._count} failures more since the last line)" if self._count else ""
        self._logger.log(self._level, "%s: %s: %s%s", what, type(error).__name__, error, more)
        self._logged_at, self._logged, self._count = now, True, 0

    def ended(self, what: str) -> None:
        """Log that it works again, if a line was logged that it does not.

        Args:
            what: works again.
        """
        if self._logged:
            more = f", after {self._count} failures more" if self._count else ""
            self._logger.info("%s%s", what, more)
            self._logged, self._count = False, 0
