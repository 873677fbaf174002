"""A store that does not answer for a while: what was asked of it is asked again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from lib._util.clock import Clock
from lib._util.json import canonical
from lib.errors import StoreError
from lib.events import Event

T = TypeVar("T")

_log = logging.getLogger("lib.engine")

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0


async def outlast(
    call: Callable[[], Awaitable[T]], what: str, *, clock: Clock, until: Callable[[], datetime]
) -> T:
    """Make a call again and again while it fails in a way that may pass; return its result.

    Args:
        call: what may be done twice.
        what: is it, for the log.
        clock: the time.
        until: tells when to give up; it may change meanwhile.

    Raises:
        StoreError: it fails in a way that does not pass, or has failed for too long.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.retryable or clock.now() >= until():
                raise
            if pause_s == FIRST_PAUSE_S:
                _log.warning("%s: the store fails, trying again: %s", what, error)
        await clock.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def begins_with(tail: Sequence[Event], events: Sequence[Event]) -> bool:
    """Tell whether a log goes on with these events; intents of another epoch are others.

    Times are not compared: the clocks of two workers may agree.
    """
    return len(tail) >= len(events) and all(
        stored.kind == event.kind and canonical(stored.data) == canonical(event.data)
        for stored, event in zip(tail, events, strict=False)
    )
