"""Errors of vector stores and embedders."""

from __future__ import annotations

from lib.errors.base import LibError, RemoteError
from lib.errors.events import StoreError


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
