"""Every public error, and the facts that each one carries.

    LibError
    ├── MissingDriver (also ImportError)
    ├── InvalidEvent (also ValueError)
    ├── StoreError
    │   ├── Conflict
    │   ├── RunNotFound
    │   │   └── RunErased
    │   ├── RunOpen
    │   ├── SchemaTooNew
    │   ├── MigrationNeeded
    │   ├── StoreReadOnly
    │   ├── StoreCorrupt
    │   └── StoreClosed
    ├── BlobError
    │   ├── BlobMissing
    │   └── ContentTooLarge
    ├── EngineError
    │   ├── UnknownAlgorithm
    │   ├── UnknownTool
    │   ├── MissingHandler
    │   ├── IdempotencyMismatch
    │   ├── NoOutput
    │   ├── NotPending
    │   ├── RedactionFailed
    │   ├── RunAbandoned
    │   └── SessionClosed
    ├── RemoteError
    │   ├── LLMError
    │   │   ├── UnsupportedModality
    │   │   ├── InvalidReply
    │   │   └── ScriptError
    │   └── StoreUnavailable (also VectorError)
    ├── ToolError
    │   └── FetchBlocked
    ├── VectorError
    │   ├── DimensionMismatch (also ValueError)
    │   ├── MetricMismatch (also ValueError)
    │   ├── InvalidVector (also ValueError)
    │   ├── InvalidFilter (also ValueError)
    │   ├── InvalidMeta (also ValueError)
    │   ├── UnsupportedFilter
    │   ├── HybridUnavailable
    │   ├── NotFitted
    │   ├── ConsistencyTimeout
    │   └── TenantViolation (also StoreError)
    └── ExportError

Messages are lower case and say what happened, the rule, and the way out. None holds a vector, a
document, a prompt or a secret.
"""

from __future__ import annotations

import re
from typing import Final, Literal

__all__ = [
    "BlobError",
    "BlobMissing",
    "Conflict",
    "ConsistencyTimeout",
    "ContentTooLarge",
    "DimensionMismatch",
    "EngineError",
    "ExportError",
    "FetchBlocked",
    "HybridUnavailable",
    "IdempotencyMismatch",
    "InvalidEvent",
    "InvalidFilter",
    "InvalidMeta",
    "InvalidReply",
    "InvalidVector",
    "LLMError",
    "LibError",
    "MetricMismatch",
    "MigrationNeeded",
    "MissingDriver",
    "MissingHandler",
    "NoOutput",
    "NotFitted",
    "NotPending",
    "RedactionFailed",
    "RemoteError",
    "RunAbandoned",
    "RunErased",
    "RunNotFound",
    "RunOpen",
    "SchemaTooNew",
    "ScriptError",
    "SessionClosed",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreReadOnly",
    "StoreUnavailable",
    "TenantViolation",
    "ToolError",
    "ToolErrorCode",
    "UnknownAlgorithm",
    "UnknownTool",
    "UnsupportedFilter",
    "UnsupportedModality",
    "VectorError",
]

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


# -- event stores and blob stores ------------------------------------------------------------------


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


# -- engines ---------------------------------------------------------------------------------------


class EngineError(LibError):
    """The engine cannot do what a caller requested."""


class UnknownAlgorithm(EngineError):
    """A run names an algorithm that this engine does not have."""

    def __init__(self, name: str, *, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known
        super().__init__(f"no algorithm {name!r} in this engine, it has {', '.join(known)}")


class UnknownTool(EngineError):
    """An algorithm is to offer a tool that no handler of its engine has."""

    def __init__(self, name: str, *, algorithm: str, known: tuple[str, ...]) -> None:
        self.name, self.algorithm, self.known = name, algorithm, known
        super().__init__(
            f"algorithm {algorithm!r} offers the tool {name!r}, which no handler of this engine "
            f"has: there is {', '.join(known) or 'none'}"
        )


class MissingHandler(EngineError):
    """A run needs a handler that this engine does not have."""

    def __init__(self, run_id: str, what: str) -> None:
        self.run_id, self.what = run_id, what
        super().__init__(
            f"run {run_id!r} asks for {what}, which this engine has no handler for: "
            "add one to its handlers, such as LLMHandler or ToolHandler"
        )


class IdempotencyMismatch(EngineError):
    """An idempotency key was used again for a different request."""

    def __init__(self, key: str, *, run_id: str) -> None:
        self.key, self.run_id = key, run_id
        super().__init__(
            f"idempotency key {key!r} started run {run_id!r} with other arguments: take another key"
        )


class NoOutput(EngineError):
    """A run has no output of the expected type: it has not completed."""

    def __init__(self, run_id: str, *, outcome: str | None, reason: str) -> None:
        self.run_id, self.outcome, self.reason = run_id, outcome, reason
        ended = "has not ended" if outcome is None else f"ended as {outcome}"
        why = f" ({reason})" if reason else ""
        super().__init__(f"run {run_id!r} {ended}{why}: look at .outcome, .text and .error first")


class NotPending(EngineError):
    """An approval for a call that does not wait for one."""

    def __init__(self, run_id: str, call_id: str) -> None:
        self.run_id, self.call_id = run_id, call_id
        super().__init__(f"call {call_id!r} of run {run_id!r} does not wait for an approval")


class RunAbandoned(EngineError):
    """This process stopped working on the run, which is not finished.

    Another worker has taken it over, or the engine was closed; the log says how it goes on.
    """

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id, self.reason = run_id, reason
        super().__init__(f"run {run_id!r} is no longer driven here: {reason}")


class SessionClosed(EngineError):
    """A session has ended, or is to end, before a message to it could be answered.

    Attributes:
        outcome: how the session ends.
    """

    def __init__(self, session_id: str, *, outcome: str) -> None:
        self.session_id, self.outcome = session_id, outcome
        super().__init__(f"session {session_id!r} is closed ({outcome}): open another one")


class RedactionFailed(EngineError):
    """A redactor failed, so the event was not written, and the run stopped here.

    Attributes:
        kind: the kind of the event.
        cause: the type of what the redactor raised, never its message.
    """

    def __init__(self, kind: str, cause: str) -> None:
        self.kind, self.cause = kind, cause
        super().__init__(f"the redactor failed on an event {kind!r} ({cause}): nothing was written")


# -- models and tools ------------------------------------------------------------------------------


class LLMError(RemoteError):
    """A model call failed.

    Attributes:
        state_lost: whether the provider does not know the handle that the call's `state=` was, or
            knows it no longer: the whole conversation without it may succeed.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
        state_lost: bool = False,
    ) -> None:
        self.state_lost = state_lost
        super().__init__(message, status=status, retryable=retryable, retry_after_s=retry_after_s)


class UnsupportedModality(LLMError):
    """A message carries an attachment of a modality that the client did not declare."""

    def __init__(self, modality: str, *, client: str, supported: frozenset[str]) -> None:
        self.modality, self.client, self.supported = modality, client, supported
        super().__init__(f"{client} takes {', '.join(sorted(supported))}, not {modality}")


class InvalidReply(LLMError):
    """A model's reply could not be read, or does not fit the output type."""


class ScriptError(LLMError, AssertionError):
    """A `ScriptedClient` was called where its script has no step, or was left with steps."""


ToolErrorCode = Literal[
    "invalid_arguments",
    "not_found",
    "denied",
    "blocked",
    "cancelled",
    "timeout",
    "too_large",
    "rate_limited",
    "unavailable",
    "unsupported",
    "failed",
    "unknown",
]


class ToolError(LibError):
    """A tool's failure for the model to read: short, safe to show and actionable."""

    def __init__(self, code: ToolErrorCode, message: str) -> None:
        self.code: ToolErrorCode = code
        self.message = message
        super().__init__(message)


class FetchBlocked(ToolError):
    """A request is refused by fetch policy; the message holds no address.

    Attributes:
        rule: the rule that it breaks, in words.
        host: of the request, or None where it is an address, could not be read, or was named by
            a server.
        redirected: whether a server redirected to the URL, which is then not named.
    """

    def __init__(self, rule: str, *, host: str | None = None, redirected: bool = False) -> None:
        self.rule, self.host, self.redirected = rule, host, redirected
        where = "this URL" if host is None else f"a URL of {host!r}"
        what = f"fetching {where} is blocked"
        if redirected:
            what = "the server redirected to a URL that is blocked"
        super().__init__("blocked", f"{what}: {rule}")


# -- vector stores and embedders -------------------------------------------------------------------


class VectorError(LibError):
    """A vector store could not carry out an operation."""


class DimensionMismatch(VectorError, ValueError):
    """A vector's length differs from the store's dimension."""

    def __init__(self, *, expected: int, got: int) -> None:
        self.expected, self.got = expected, got
        super().__init__(f"store holds {expected}-dimensional vectors, got one of length {got}")


class MetricMismatch(VectorError, ValueError):
    """A store was made for another metric than the one it is opened with."""

    def __init__(self, *, expected: str, got: str) -> None:
        self.expected, self.got = expected, got
        super().__init__(f"store was made for the metric {expected!r}, it is opened with {got!r}")


class InvalidVector(VectorError, ValueError):
    """A vector has no place in the metric: not finite, empty, or zero under cosine."""


class InvalidFilter(VectorError, ValueError):
    """A filter is not in the filter language: unknown operator, wrong operand, too deep.

    Attributes:
        rule: the rule of the filter language that it breaks, as `lib.vector.filter` numbers them.
        field: the field of the refused condition, or None where no single one is to blame.
        operator: its operator, or None.
    """

    def __init__(
        self, message: str, *, rule: str, field: str | None = None, operator: str | None = None
    ) -> None:
        self.rule, self.field, self.operator = rule, field, operator
        super().__init__(f"{message} (filter rule {rule})")


class InvalidMeta(VectorError, ValueError):
    """A record's id, text or metadata breaks a rule that holds in every store."""


class UnsupportedFilter(VectorError):
    """A store cannot express this filter exactly, and never filters behind your back."""

    def __init__(self, *, store: str, operator: str, field: str, hint: str = "") -> None:
        self.store, self.operator, self.field = store, operator, field
        way_out = f": {hint}" if hint else ""
        super().__init__(
            f"filter operator {operator!r} on {field!r} is not supported by {store}{way_out}"
        )


class HybridUnavailable(VectorError):
    """Hybrid search on a store without full-text support."""

    def __init__(self, store: str, reason: str) -> None:
        self.store, self.reason = store, reason
        super().__init__(f"{store} has no hybrid search: {reason}")


class StoreUnavailable(RemoteError, VectorError):
    """A vector store's server could not be reached, refused, or gave an unreadable answer."""


class ConsistencyTimeout(VectorError):
    """A write was accepted, but the store's searches did not show it in time.

    Attributes:
        namespace: where it was written.
        wanted: the log position of the write.
        seen: the last position that a search has shown, or None.
        timeout_s: the time of the wait.
    """

    def __init__(self, *, namespace: str, wanted: int, seen: int | None, timeout_s: float) -> None:
        self.namespace, self.wanted, self.seen = namespace, wanted, seen
        self.timeout_s = timeout_s
        super().__init__(
            f"the write at position {wanted} was accepted but is not visible after {timeout_s:g} s "
            f"(searches show {'none' if seen is None else seen}): search again later, raise "
            "consistency_timeout_s, or pass consistent=False"
        )


class NotFitted(VectorError):
    """An embedder that learns from documents was used before it has seen any."""


class TenantViolation(VectorError, StoreError):
    """A call tried to leave its tenant; nothing was written.

    Attributes:
        tenant: of the view.
        what: the attempt, in words.
    """

    def __init__(self, tenant: str, what: str) -> None:
        self.tenant, self.what = tenant, what
        super().__init__(f"{what}: this view reaches records of tenant {tenant!r} only")


# -- trace sinks -----------------------------------------------------------------------------------


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
