"""Errors of models and tools."""

from __future__ import annotations

from typing import Literal

from lib.errors.base import LibError, RemoteError


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
