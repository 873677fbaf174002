"""The base of all errors, and the errors of every area."""

from __future__ import annotations

import re
from typing import Final

DISTRIBUTION: Final = "lib-agents"
"""The name of this package for pip; an index need not have it."""


class LibError(Exception):
    """The root of every error that `lib` raises on purpose."""


class MissingDriver(LibError, ImportError):
    """An optional dependency is not installed; `extra` names what brings it.

    The message holds a command that works wherever the driver can be had, whether this package
    came from an index, a wheel or a clone.
    """

    def __init__(self, what: str, *, driver: str, extra: str) -> None:
        self.what, self.driver, self.extra = what, driver, extra
        super().__init__(f"{what} needs {driver}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    from importlib import metadata  # noqa: PLC0415 - slow to import, and rarely needed

    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        declared = []
    brings = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    wanted = [line.partition(";")[0].strip() for line in declared if brings.search(line)]
    return "pip install " + " ".join(f"'{name}'" for name in wanted or [f"{DISTRIBUTION}[{extra}]"])


class RemoteError(LibError):
    """A server could not be reached, refused, or answered what cannot be read.

    Attributes:
        status: the HTTP status, or None when no answer arrived.
        retryable: whether the same call may succeed later.
        retry_after_s: the wait that the server wants, in seconds.
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
