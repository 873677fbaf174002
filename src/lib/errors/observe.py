"""Errors of trace sinks."""

from __future__ import annotations

from lib.errors.base import LibError


class ExportError(LibError):
    """A sink did not deliver its spans; the observer logs it and the run is unaffected.

    Attributes:
        retry_after_s: the wait that the backend wants, in seconds.
        permanent: whether sending the same spans again cannot help.
        setup: whether that is so only as long as the sink is set up as it is: a wrong key or
            address, and nothing is wrong with the spans.
        taken: the ids of the spans that are not to be sent again: the sink has them, or has
            dropped them for good.
        lost: how many of those it has dropped for good.
        taken_scores: how many of the first scores of a call are not to be sent again.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        permanent: bool = False,
        setup: bool = False,
        taken: frozenset[str] = frozenset(),
        lost: int = 0,
        taken_scores: int = 0,
    ) -> None:
        self.retry_after_s, self.permanent, self.setup = retry_after_s, permanent, setup
        self.taken, self.lost, self.taken_scores = taken, lost, taken_scores
        super().__init__(message)
