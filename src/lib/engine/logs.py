"""What is logged of runs: one logger for the engine, and the run's id in each record."""

from __future__ import annotations

import logging
from typing import Final

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
