"""Errors of event stores and blob stores."""

from __future__ import annotations

from lib.errors.base import LibError


class StoreError(LibError):
    """An event store could not carry out an operation.

    Attributes:
        retryable: whether the same call may succeed later. An append that lost its connection may
            have been stored nevertheless: read before you repeat it.
    """

    def __init__(self, *args: object, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(*args)


class Conflict(StoreError):
    """An append expected another head of the log: another writer was faster."""

    def __init__(self, run_id: str, *, expected: int, actual: int) -> None:
        self.run_id, self.expected, self.actual = run_id, expected, actual
        super().__init__(f"run {run_id!r} is at event {actual}, the append expected {expected}")


class RunNotFound(StoreError):
    """No run of this id is visible to the caller."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"no run {run_id!r} in this store")


class RunErased(RunNotFound):
    """The run has been erased for good; its id is never used again."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.args = (f"run {run_id!r} has been erased",)


class RunOpen(StoreError):
    """An open run was to be erased without `force=True`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id!r} is open: cancel it and wait for its end, or erase it with force"
        )


class InvalidEvent(LibError, ValueError):
    """The payload of a `lib.` event lacks a field that its readers need, or has another type there.

    Nothing was written.

    Attributes:
        kind: of the event.
        reason: what was expected in which field, and what came; never the content of a field.
    """

    def __init__(self, kind: str, reason: str) -> None:
        self.kind, self.reason = kind, reason
        super().__init__(f"the payload of {kind!r} is malformed: {reason}; see lib.events.kinds")


class SchemaTooNew(StoreError):
    """The store was written by a newer release, which alone may open it."""

    def __init__(self, store: str, *, found: int, supported: int) -> None:
        self.store, self.found, self.supported = store, found, supported
        super().__init__(
            f"{store} has layout {found}, this release knows up to {supported}: upgrade lib-agents"
        )


class MigrationNeeded(StoreError):
    """The store has an older layout and was opened without the right to migrate it."""

    def __init__(self, store: str, *, found: int, supported: int) -> None:
        self.store, self.found, self.supported = store, found, supported
        super().__init__(
            f"{store} has layout {found}, this release reads {supported}: "
            "open it once for writing to migrate it"
        )


class StoreReadOnly(StoreError):
    """A write to a store that cannot be written (opened so, or on a read-only disk)."""


class StoreCorrupt(StoreError):
    """The store's file is damaged: truncated, not a database, or inconsistent."""


class StoreClosed(StoreError):
    """The store was used before `setup()` or after `close()`."""


class BlobError(LibError):
    """A blob store could not carry out an operation."""


class BlobMissing(BlobError):
    """A log refers to content that the blob store does not hold, or holds damaged."""

    def __init__(self, digest: str, *, damaged: bool = False) -> None:
        self.digest, self.damaged = digest, damaged
        super().__init__(f"blob {digest} is {'damaged' if damaged else 'not in this store'}")


class ContentTooLarge(BlobError):
    """Content is above the inline limit, and the engine has no blob store."""

    def __init__(self, size: int, *, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            f"content of {size} bytes is above the inline limit of {limit}: give the engine blobs="
        )
