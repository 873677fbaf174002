"""Failures of a store that must not stop or hide anything."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from lib.errors import IdempotencyMismatch, LibError, SessionClosed
from lib.events import Lease

_log = logging.getLogger("lib.engine")


@contextmanager
def borne(lease: Lease, what: str) -> Generator[None]:
    """Log what failed while a run was left, and go on: what went before counts, and is raised.

    Args:
        lease: of the run that was in these hands.
        what: what has not been done.
    """
    try:
        yield
    # Around each step of the clean-up: the steps after it are made whatever fails, in whatever way.
    except Exception as error:  # noqa: BLE001 - see above
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
