"""What all errors have in common, and those of every area."""

from __future__ import annotations


class LibError(Exception):
    """The root of every error that `lib` raises on purpose."""


class MissingDriver(LibError, ImportError):
    """An optional dependency is not installed; `extra` names what to install."""

    def __init__(self, what: str, *, driver: str, extra: str) -> None:
        self.what, self.driver, self.extra = what, driver, extra
        super().__init__(f"{what} needs {driver}: pip install 'lib-agents[{extra}]'")


class RemoteError(LibError):
    """A server could not be reached, refused, or answered what cannot be read.

    Attributes:
        status: the HTTP status, or None when no answer arrived.
        retryable: whether the same call may succeed later.
        retry_after_s: what the server asked for, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.retryable, self.retry_after_s = status, retryable, retry_after_s
        super().__init__(message)
