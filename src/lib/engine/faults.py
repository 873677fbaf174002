"""What counts against a run, and what only says that this engine cannot go on with it now."""

from __future__ import annotations

from typing import Final

from lib.errors import BlobError, MissingHandler, RunAbandoned, StoreError, UnknownAlgorithm

_OURS: Final = (StoreError, BlobError, RunAbandoned, MissingHandler, UnknownAlgorithm)


def is_fault(error: BaseException) -> bool:
    """Tell whether an error is a fault of the run: of its algorithm, a handler or a redactor.

    Another engine, or this one later, may do better where a store failed or something is not here.
    """
    return isinstance(error, Exception) and not isinstance(error, _OURS)
