"""The log lines of the engine: about a run, and about failures that are not raised."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from lib.errors import IdempotencyMismatch, LibError, SessionClosed
from lib.events import Lease

ENGINE_LOG: Final = logging.getLogger("lib.engine")
LLM_LOG: Final = logging.getLogger("lib.llm")


def log_run(
    level: int,
    run_id: str,
    message: str,
    *args: object,
    logger: logging.Logger = ENGINE_LOG,
    error: BaseException | None = None,
) -> None:
    """Log a line about a run.

    Args:
        level: of the record.
        run_id: the run; the record has it as its attribute `run_id`, too.
        message: goes on after the id.
        args: what the message formats.
        logger: where it goes.
        error: whose traceback is shown.
    """
    if logger.isEnabledFor(level):
        text, extra = message % args if args else message, {"run_id": run_id}
        logger.log(level, "run %r %s", run_id, text, exc_info=error, extra=extra)


@contextmanager
def log_store_errors(lease: Lease, what: str) -> Generator[None]:
    """Log an error of a step of the clean-up and go on; the error before it is the one raised.

    Args:
        lease: of the run that this process drove.
        what: what has not been done.
    """
    try:
        yield
    # Around each step of the clean-up: the steps after it are made whatever fails, in whatever way.
    except Exception as error:  # noqa: BLE001 - see above
        ENGINE_LOG.warning("run %r: %s", lease.run_id, what, exc_info=error)


@contextmanager
def best_effort_after_commit(run_id: str, what: str) -> Generator[None]:
    """Log an error that comes after a commit: raised, it would make the caller repeat the request.

    A refusal is raised all the same, since nothing was accepted.

    Args:
        run_id: the run to which it was appended.
        what: what has not been done.
    """
    try:
        yield
    except (IdempotencyMismatch, SessionClosed):
        raise
    except LibError as error:
        ENGINE_LOG.warning("run %r: %s", run_id, what, exc_info=error)
