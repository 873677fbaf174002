"""Failures of a store that must not stop or hide anything."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from lib.errors import IdempotencyMismatch, LibError, SessionClosed, StoreError
from lib.events import Lease

_log = logging.getLogger("lib.engine")


@contextmanager
def borne(lease: Lease, what: str) -> Generator[None]:
    """Log that a store failed, and go on: what went wrong before, or went well, counts.

    Args:
        lease: of the run that was in these hands.
        what: what has not been done.
    """
    try:
        yield
    except StoreError as error:
        _log.warning("run %r: %s", lease.run_id, what, exc_info=error)


@contextmanager
def written(run_id: str, what: str) -> Generator[None]:
    """Log what fails after something was written down: whoever read an error would say it again.

    That it was refused is raised all the same: nothing will come of it.

    Args:
        run_id: the run to which it was appended.
        what: what has not been done.
    """
    try:
        yield
    except (IdempotencyMismatch, SessionClosed):
        raise
    except LibError as error:
        _log.warning("run %r: %s", run_id, what, exc_info=error)
