"""The span of a distributed trace in which a call is made, as W3C Trace Context has it.

Source: https://www.w3.org/TR/trace-context-2/ (level 2), sections 3.2 and 3.3.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

_VERSION: Final = "00"
_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?",
    re.ASCII,
)
_SAMPLED: Final = 0x01
_KNOWN_FLAGS: Final = 0x03
"""Of level 2: sampled, and that the trace id is random. Others are sent on as 0."""

_MEMBER: Final = re.compile(
    r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MOST_MEMBERS: Final = 32
_MOST_STATE: Final = 512
"""Characters of `tracestate` that every system has to send on; a longer one is left out."""

_MOST_TRACEPARENT: Final = 256


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a distributed trace, the parent of what follows.

    Attributes:
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        flags: see `_KNOWN_FLAGS`.
        state: the `tracestate` header, "" for none.
    """

    trace_id: str
    span_id: str
    flags: int = _SAMPLED
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header of this name."""
        return f"{_VERSION}-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    def below(self, span_id: str) -> TraceContext:
        """Return the place of another span in the same trace."""
        return replace(self, span_id=span_id)

    def to_json(self) -> dict[str, str]:
        """Return it as the fields that `lib.run.started` has."""
        headers = {"traceparent": self.traceparent}
        return {**headers, "tracestate": self.state} if self.state else headers


def trace_context(traceparent: str, tracestate: str | None = None) -> TraceContext | None:
    """Return what the headers say; None if `traceparent` is malformed.

    A malformed `tracestate` is left out, as the standard wants it.
    """
    found = _TRACEPARENT.fullmatch(traceparent.strip(" \t")[:_MOST_TRACEPARENT])
    if found is None or found["version"] == "ff":
        return None
    if found["more"] is not None and found["version"] == _VERSION:
        return None
    if not (found["trace"].strip("0") and found["span"].strip("0")):
        return None
    flags = int(found["flags"], 16) & _KNOWN_FLAGS
    return TraceContext(found["trace"], found["span"], flags, _state(tracestate or ""))


def trace_context_of(started: Mapping[str, Any]) -> TraceContext | None:
    """Return the context that the first event of a run holds, None if it has none."""
    traceparent, tracestate = started.get("traceparent"), started.get("tracestate")
    if not isinstance(traceparent, str):
        return None
    return trace_context(traceparent, tracestate if isinstance(tracestate, str) else None)


def _state(header: str) -> str:
    if len(header) > _MOST_STATE:
        return ""
    members = [each for part in header.split(",") if (each := part.strip(" \t"))]
    keys = {each.partition("=")[0] for each in members}
    if len(members) > _MOST_MEMBERS or len(keys) < len(members):
        return ""
    return ",".join(members) if all(map(_MEMBER.fullmatch, members)) else ""


# -- the context of the code that runs -------------------------------------------------------------

CURRENT_CALL: Final[ContextVar[TraceContext | None]] = ContextVar("trace_context", default=None)
"""The call that an engine carries out here, if its run has joined a trace."""


def current_context() -> TraceContext | None:
    """Return the call, or the active span of OpenTelemetry, within which this code runs.

    OpenTelemetry is not imported: without its API no span can be active.
    """
    return CURRENT_CALL.get() or _of_opentelemetry()


def _of_opentelemetry() -> TraceContext | None:
    api: Any = sys.modules.get("opentelemetry.trace")
    # Half imported by another thread, it has no such function yet.
    active = getattr(api, "get_current_span", None)
    span = None if active is None else active().get_span_context()
    if span is None or not span.is_valid:
        return None
    flags = int(span.trace_flags) & _KNOWN_FLAGS
    state = _state(span.trace_state.to_header())
    return TraceContext(f"{span.trace_id:032x}", f"{span.span_id:016x}", flags, state)


# -- ids of our own spans --------------------------------------------------------------------------


def trace_id_of(root_run_id: str) -> str:
    """Return the trace id of a root run and of everything below it: 32 hex digits.

    A run that was started within a trace of the application has that one's instead.
    """
    return _digits(root_run_id, 32)


def span_id_of(run_id: str, family: str, key: str) -> str:
    """Return the id of a span: 16 hex digits.

    Args:
        run_id: the run whose log has it.
        family: what its first event is about, such as "llm" for `lib.llm.requested`; "run" for the
            run itself.
        key: unique among the spans of its family in the run.
    """
    return _digits(f"{run_id}:{family}:{key}", 16)


def _digits(seed: str, size: int) -> str:
    # A key can hold what the model has made up, a lone surrogate included.
    raw = seed.encode("utf-8", "surrogatepass")
    return non_zero(hashlib.sha256(raw).hexdigest()[:size])


def non_zero(digits: str) -> str:
    """Return the hex digits of an id, or those of 1: on the wire, zero means that there is none."""
    return digits if digits.strip("0") else "1".rjust(len(digits), "0")
