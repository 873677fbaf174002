"""What trace sinks raise."""

from __future__ import annotations

from lib.errors.base import LibError


class ExportError(LibError):
    """A sink did not deliver its spans; the observer logs it and the run is unaffected.

    Attributes:
        retry_after_s: what the backend asked for, in seconds.
        permanent: whether sending the same spans again cannot help.
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
        taken: frozenset[str] = frozenset(),
        lost: int = 0,
        taken_scores: int = 0,
    ) -> None:
        self.retry_after_s, self.permanent = retry_after_s, permanent
        self.taken, self.lost, self.taken_scores = taken, lost, taken_scores
        super().__init__(message)
