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
    │   │   ├── CircuitOpen
    │   │   ├── RateLimited
    │   │   ├── DeadlineExceeded
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
    │   ├── UnsupportedFusion
    │   ├── NotFitted
    │   ├── ConsistencyTimeout
    │   └── TenantViolation (also StoreError)
    ├── FactNotFound
    └── ExportError

Messages are lower case and say what happened, the rule, and the way out. None holds a vector, a
document, a prompt or a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

__all__ = [
    "BlobError",
    "BlobMissing",
    "CircuitOpen",
    "Conflict",
    "ConsistencyTimeout",
    "ContentTooLarge",
    "DeadlineExceeded",
    "DimensionMismatch",
    "EngineError",
    "ExportError",
    "FactNotFound",
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
    "RateLimited",
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
    "UnsupportedFusion",
    "UnsupportedModality",
    "VectorError",
]

DISTRIBUTION: Final = "lib-agents"
"""The name of this package for pip; an index need not have it."""


class LibError(Exception):
    """The root of every error that `lib` raises on purpose."""


class MissingDriver(LibError, ImportError):
    """An optional dependency is not installed; `extra` is the extra that installs it.

    The message holds a command that installs it, for an installation of this package from an
    index, a wheel or a clone.
    """

    def __init__(self, what: str, *, driver: str, extra: str) -> None:
        self.what: str = what
        self.driver: str = driver
        self.extra: str = extra
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
    """A server could not be reached, refused the request, or sent an unreadable answer.

    Attributes:
        status: the HTTP status, or None when no answer arrived.
        retryable: True if the same call may succeed later.
        retry_after_s: the wait that the server requests, in seconds.
        request_id: the server's name for the request, which its support asks for.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        self.request_id: str | None = None
        self.status: int | None = status
        self.retryable: bool = retryable
        self.retry_after_s: float | None = retry_after_s
        super().__init__(message)


# -- event stores and blob stores ------------------------------------------------------------------


class StoreError(LibError):
    """An operation of an event store failed.

    Attributes:
        retryable: True if the same call may succeed later. An append whose connection was lost
            may be stored nevertheless: read the log before you repeat it.
    """

    def __init__(self, *args: object, retryable: bool = False) -> None:
        self.retryable: bool = retryable
        super().__init__(*args)


class Conflict(StoreError):
    """An append expected another last event: another writer appended first."""

    def __init__(self, run_id: str, *, expected: int, actual: int) -> None:
        self.run_id: str = run_id
        self.expected: int = expected
        self.actual: int = actual
        super().__init__(f"run {run_id!r} is at event {actual}, the append expected {expected}")


class RunNotFound(StoreError):
    """No run with this id is visible to the caller."""

    def __init__(self, run_id: str) -> None:
        self.run_id: str = run_id
        super().__init__(f"no run {run_id!r} in this store")


class RunErased(RunNotFound):
    """The run was erased; its id is never used again."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.args: tuple[Any, ...] = (f"run {run_id!r} has been erased",)


class RunOpen(StoreError):
    """An open run cannot be erased without `force=True`."""

    def __init__(self, run_id: str) -> None:
        self.run_id: str = run_id
        super().__init__(
            f"run {run_id!r} is open: cancel it and wait for its end, or erase it with force"
        )


class InvalidEvent(LibError, ValueError):
    """A field in the payload of a `lib.` event is missing or has the wrong type.

    Nothing was written.

    Attributes:
        kind: of the event.
        reason: what was expected in which field, and what came; never the content of a field.
    """

    def __init__(self, kind: str, reason: str) -> None:
        self.kind: str = kind
        self.reason: str = reason
        super().__init__(f"the payload of {kind!r} is malformed: {reason}; see lib.events.kinds")


class SchemaTooNew(StoreError):
    """The store was written by a newer release, and only that can open it."""

    def __init__(self, store: str, *, found: int, supported: int) -> None:
        self.store: str = store
        self.found: int = found
        self.supported: int = supported
        super().__init__(
            f"{store} has layout {found}, this release knows up to {supported}: upgrade lib-agents"
        )


class MigrationNeeded(StoreError):
    """The store has an older layout and was opened without permission to migrate it."""

    def __init__(self, store: str, *, found: int, supported: int) -> None:
        self.store: str = store
        self.found: int = found
        self.supported: int = supported
        super().__init__(
            f"{store} has layout {found}, this release reads {supported}: "
            "open it once for writing to migrate it"
        )


class StoreReadOnly(StoreError):
    """A write to a store that was opened read-only or is on a read-only disk."""


class StoreCorrupt(StoreError):
    """The store's file is damaged: truncated, not a database, or inconsistent."""


class StoreClosed(StoreError):
    """The store was used before `setup()` or after `close()`."""


class BlobError(LibError):
    """An operation of a blob store failed."""


class BlobMissing(BlobError):
    """A log refers to content that is missing from the blob store, or damaged there."""

    def __init__(self, digest: str, *, damaged: bool = False) -> None:
        self.digest: str = digest
        self.damaged: bool = damaged
        super().__init__(f"blob {digest} is {'damaged' if damaged else 'not in this store'}")


class ContentTooLarge(BlobError):
    """Content is above the inline limit, and the engine has no blob store."""

    def __init__(self, size: int, *, limit: int) -> None:
        self.size: int = size
        self.limit: int = limit
        super().__init__(
            f"content of {size} bytes is above the inline limit of {limit}: give the engine blobs="
        )


# -- engines ---------------------------------------------------------------------------------------


class EngineError(LibError):
    """The engine cannot do what a caller requested."""


class UnknownAlgorithm(EngineError):
    """A run names an algorithm that this engine does not have."""

    def __init__(self, name: str, *, available: tuple[str, ...]) -> None:
        self.name: str = name
        self.available: tuple[str, ...] = available
        super().__init__(f"no algorithm {name!r} in this engine, it has {', '.join(available)}")


class UnknownTool(EngineError):
    """An algorithm offers a tool that no handler of its engine has."""

    def __init__(self, name: str, *, algorithm: str, available: tuple[str, ...]) -> None:
        self.name: str = name
        self.algorithm: str = algorithm
        self.available: tuple[str, ...] = available
        super().__init__(
            f"algorithm {algorithm!r} offers the tool {name!r}, which no handler of this engine "
            f"has: there is {', '.join(available) or 'none'}"
        )


class MissingHandler(EngineError):
    """A run needs a handler that this engine does not have."""

    def __init__(self, run_id: str, what: str) -> None:
        self.run_id: str = run_id
        self.what: str = what
        super().__init__(
            f"run {run_id!r} asks for {what}, which this engine has no handler for: "
            "add one to its handlers, such as LLMHandler or ToolHandler"
        )


class IdempotencyMismatch(EngineError):
    """An idempotency key was used again with other arguments."""

    def __init__(self, key: str, *, run_id: str) -> None:
        self.key: str = key
        self.run_id: str = run_id
        super().__init__(
            f"idempotency key {key!r} started run {run_id!r} with other arguments: take another key"
        )


class NoOutput(EngineError):
    """A run has no output of the expected type: it has not completed."""

    def __init__(self, run_id: str, *, outcome: str | None, reason: str) -> None:
        self.run_id: str = run_id
        self.outcome: str | None = outcome
        self.reason: str = reason
        ended = "has not ended" if outcome is None else f"ended as {outcome}"
        why = f" ({reason})" if reason else ""
        super().__init__(f"run {run_id!r} {ended}{why}: look at .outcome, .text and .error first")


class NotPending(EngineError):
    """An approval was given for a call that does not wait for one."""

    def __init__(self, run_id: str, call_id: str) -> None:
        self.run_id: str = run_id
        self.call_id: str = call_id
        super().__init__(f"call {call_id!r} of run {run_id!r} does not wait for an approval")


class RunAbandoned(EngineError):
    """This process stopped driving the run, which has not ended.

    Another worker took it over, or the engine was closed; the log shows how it goes on.
    """

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id: str = run_id
        self.reason: str = reason
        super().__init__(f"run {run_id!r} is no longer driven here: {reason}")


class SessionClosed(EngineError):
    """A session ended, or is ending, before a message to it could be answered.

    Attributes:
        outcome: how the session ends.
    """

    def __init__(self, session_id: str, *, outcome: str) -> None:
        self.session_id: str = session_id
        self.outcome: str = outcome
        super().__init__(f"session {session_id!r} is closed ({outcome}): open another one")


class RedactionFailed(EngineError):
    """A redactor raised an error: the event was not written, and the run stopped.

    Attributes:
        kind: the kind of the event.
        cause: the type of what the redactor raised, never its message.
    """

    def __init__(self, kind: str, cause: str) -> None:
        self.kind: str = kind
        self.cause: str = cause
        super().__init__(f"the redactor failed on an event {kind!r} ({cause}): nothing was written")


# -- models and tools ------------------------------------------------------------------------------


class LLMError(RemoteError):
    """A model call failed.

    Attributes:
        state_lost: True if the provider does not hold what the call's `state=` refers to: the
            same call with the whole conversation and no `state=` may succeed.
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
        self.state_lost: bool = state_lost
        super().__init__(message, status=status, retryable=retryable, retry_after_s=retry_after_s)


class UnsupportedModality(LLMError):
    """A message carries an attachment of a modality that the client did not declare."""

    def __init__(self, modality: str, *, client: str, supported: frozenset[str]) -> None:
        self.modality: str = modality
        self.client: str = client
        self.supported: frozenset[str] = supported
        super().__init__(f"{client} takes {', '.join(sorted(supported))}, not {modality}")


class InvalidReply(LLMError):
    """A model's reply could not be read, or does not fit the output type."""


class CircuitOpen(LLMError):
    """A service has failed so often that it is not called for a while; see `CircuitBreaker`.

    Nothing was sent. `retry_after_s` is the time until one call may try the service again.
    """

    def __init__(self, service: str, *, retry_after_s: float) -> None:
        self.service: str = service
        super().__init__(
            f"{service} is not called for {retry_after_s:.1f} s, its last calls have failed",
            retryable=True,
            retry_after_s=retry_after_s,
        )


class RateLimited(LLMError):
    """A call would have to wait too long for its turn; see `RateLimiter`.

    Nothing was sent. `retry_after_s` is the wait.

    Attributes:
        max_wait_s: the longest wait that the caller accepts.
    """

    def __init__(self, limiter: str, *, retry_after_s: float, max_wait_s: float) -> None:
        self.limiter: str = limiter
        self.max_wait_s: float = max_wait_s
        super().__init__(
            f"the rate of {limiter} is used up for {retry_after_s:.1f} s, a call waits up to "
            f"{max_wait_s:.1f} s: raise max_wait_s, or send less",
            retryable=True,
            retry_after_s=retry_after_s,
        )


class DeadlineExceeded(LLMError):
    """A call had no result in its time, all attempts, waits and fallbacks together."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s: float = deadline_s
        super().__init__(f"no result within {deadline_s:g} s, all attempts together")


class ScriptError(LLMError, AssertionError):
    """A `ScriptedClient` was called after the last step of its script, or has steps left."""


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
    """A failed tool call, in words for the model: short, safe to show, with a way out."""

    def __init__(self, code: ToolErrorCode, message: str) -> None:
        self.code: ToolErrorCode = code
        self.message: str = message
        super().__init__(message)


class FetchBlocked(ToolError):
    """The fetch policy refuses a request; the message holds no address.

    Attributes:
        rule: the rule that the request breaks, in words.
        host: of the request, or None where it is an address, is unreadable, or comes from a
            redirect.
        redirected: True if a server redirected to the URL, which the message then leaves out.
    """

    def __init__(self, rule: str, *, host: str | None = None, redirected: bool = False) -> None:
        self.rule: str = rule
        self.host: str | None = host
        self.redirected: bool = redirected
        where = "this URL" if host is None else f"a URL of {host!r}"
        what = f"fetching {where} is blocked"
        if redirected:
            what = "the server redirected to a URL that is blocked"
        super().__init__("blocked", f"{what}: {rule}")


# -- vector stores and embedders -------------------------------------------------------------------


class VectorError(LibError):
    """An operation of a vector store failed."""


class DimensionMismatch(VectorError, ValueError):
    """A vector's length differs from the store's dimension."""

    def __init__(self, *, expected: int, got: int) -> None:
        self.expected: int = expected
        self.got: int = got
        super().__init__(f"store holds {expected}-dimensional vectors, got one of length {got}")


class MetricMismatch(VectorError, ValueError):
    """A store was created with another metric than the one it is opened with."""

    def __init__(self, *, expected: str, got: str) -> None:
        self.expected: str = expected
        self.got: str = got
        super().__init__(f"store was made for the metric {expected!r}, it is opened with {got!r}")


class InvalidVector(VectorError, ValueError):
    """A vector cannot be scored by the metric: not finite, empty, or zero under cosine."""


class InvalidFilter(VectorError, ValueError):
    """A filter is not in the filter language: unknown operator, wrong operand, too deep.

    Attributes:
        rule: the rule of the filter language that it breaks, as `lib.vector.filter` numbers them.
        field: the field of the refused condition, a tuple if it is nested, or None where several
            are at fault.
        operator: the operator of that condition, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str,
        field: str | tuple[str, ...] | None = None,
        operator: str | None = None,
    ) -> None:
        self.rule: str = rule
        self.field: str | tuple[str, ...] | None = field
        self.operator: str | None = operator
        super().__init__(f"{message} (filter rule {rule})")


class InvalidMeta(VectorError, ValueError):
    """A record's id, text or metadata breaks a rule that holds in every store."""


class UnsupportedFilter(VectorError):
    """A store cannot apply this filter exactly, and refuses it rather than approximate it."""

    def __init__(
        self, *, store: str, operator: str, field: str | tuple[str, ...], hint: str = ""
    ) -> None:
        self.store: str = store
        self.operator: str = operator
        self.field: str | tuple[str, ...] = field
        way_out = f": {hint}" if hint else ""
        super().__init__(
            f"filter operator {operator!r} on {field!r} is not supported by {store}{way_out}"
        )


class HybridUnavailable(VectorError):
    """Hybrid or keyword search was requested of a store without full-text support."""

    def __init__(self, store: str, reason: str) -> None:
        self.store: str = store
        self.reason: str = reason
        super().__init__(f"{store} has no full-text search: {reason}")


class UnsupportedFusion(VectorError):
    """A store fuses words and vectors itself, and cannot do it in the requested way."""

    def __init__(self, store: str, wanted: str, able: Sequence[str]) -> None:
        self.store: str = store
        self.wanted: str = wanted
        super().__init__(
            f"{store} cannot fuse words and vectors with {wanted!r}: it can with "
            f"{', '.join(map(repr, able))}"
        )


class StoreUnavailable(RemoteError, VectorError):
    """A vector store's server could not be reached, refused, or sent an unreadable answer."""


class ConsistencyTimeout(VectorError):
    """A write was accepted, but did not become visible to searches in time.

    Attributes:
        namespace: of the write.
        wanted: the log position of the write.
        seen: the last position that a search has shown, or None.
        timeout_s: how long the store waited.
    """

    def __init__(self, *, namespace: str, wanted: int, seen: int | None, timeout_s: float) -> None:
        self.namespace: str = namespace
        self.wanted: int = wanted
        self.seen: int | None = seen
        self.timeout_s: float = timeout_s
        super().__init__(
            f"the write at position {wanted} was accepted but is not visible after {timeout_s:g} s "
            f"(searches show {'none' if seen is None else seen}): search again later, raise "
            "consistency_timeout_s, or pass consistent=False"
        )


class NotFitted(VectorError):
    """An embedder that learns from documents was used before `fit`."""


class TenantViolation(VectorError, StoreError):
    """A call reached for records outside its tenant; nothing was written.

    Attributes:
        tenant: of the view.
        what: the attempt, in words.
    """

    def __init__(self, tenant: str, what: str) -> None:
        self.tenant: str = tenant
        self.what: str = what
        super().__init__(f"{what}: this view reaches records of tenant {tenant!r} only")


# -- trace sinks -----------------------------------------------------------------------------------


class FactNotFound(LibError):
    """The user has no fact of this id in the memory."""

    def __init__(self, fact_id: str) -> None:
        self.fact_id: str = fact_id
        super().__init__(f"there is no fact {fact_id!r} of this user: list the facts for their ids")


class ExportError(LibError):
    """A sink did not deliver its spans; the observer logs it and the run is unaffected.

    Attributes:
        retry_after_s: the wait that the backend requests, in seconds.
        permanent: True if sending the same spans again cannot succeed.
        setup: True if that is due to the sink's configuration, such as a wrong key or address,
            and not to the spans.
        taken: the ids of the spans that must not be sent again: the sink has them, or has
            dropped them for good.
        lost: how many of those it has dropped for good.
        taken_scores: how many of the first scores of a call must not be sent again.
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
        self.retry_after_s: float | None = retry_after_s
        self.permanent: bool = permanent
        self.setup: bool = setup
        self.taken: frozenset[str] = taken
        self.lost: int = lost
        self.taken_scores: int = taken_scores
        super().__init__(message)
