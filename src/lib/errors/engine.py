"""Errors of engines."""

from __future__ import annotations

from lib.errors.base import LibError


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
