"""Errors of failed requests, which quote neither the server nor the request.

A server's message may repeat the key or the prompt. Only its status and its short error codes are
passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar, cast

from lib._util.json import parse
from lib.errors import RemoteError

E = TypeVar("E", bound=RemoteError)

RETRYABLE: Final = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same call may succeed; from 500 on, all may but `_FINAL`."""

_FINAL: Final = frozenset({501, 505})
_HINTS: Final[Mapping[int, str]] = {
    301: "set base_url to where it redirects",
    302: "set base_url to where it redirects",
    307: "set base_url to where it redirects",
    308: "set base_url to where it redirects",
    401: "check the API key",
    403: "check what the API key may do",
    404: "check the model's name and base_url",
    413: "the request is too large",
}
_REQUEST_IDS: Final = (
    *("request-id", "x-request-id", "x-amzn-requestid", "mistral-correlation-id"),
    "x-litellm-call-id",
)
_REQUEST_ID: Final = re.compile(r"[\w.:/+=-]{4,128}")
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?)s")
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z_.]{2,47}")  # digits could be a key's
_STATUS: Final = re.compile(r"[45]\d\d")
_SECONDS: Final = re.compile(r"\d+(\.\d+)?")
_WRAPPINGS: Final = 4
_GIVE_UP: Final = frozenset(
    {
        "authentication_error",
        "billing_error",
        "billing_not_active",
        "content_policy_violation",
        "context_length_exceeded",
        "exceed_context_size_error",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_request_error",
        "model_not_found",
        "not_found_error",
        "permission_error",
    }
)
"""Codes that stay true with every attempt, also under a status that may pass, as 429 does."""


def status_error(
    status: int, body: bytes, headers: Mapping[str, str], now: datetime, failure: type[E]
) -> E:
    """Return the error of an answer whose status is not 200.

    Args:
        status: of the answer.
        body: the start of its content, JSON or anything else.
        headers: its headers, for the wait that the server asks for.
        now: the time against which a date among them counts.
        failure: which error it is.
    """
    content = _json(body)
    codes = _codes(content)
    named = headers.get("x-amzn-errortype", "").partition(":")[0]
    if _CODE.fullmatch(named):
        codes.append(named)
    facts = "; ".join([*codes, *([_HINTS[status]] if status in _HINTS else [])])
    wait_s = retry_after_s(headers, now)
    error = failure(
        f"the server answered {status}: {facts}" if facts else f"the server answered {status}",
        status=status,
        retryable=_may_pass(status, codes, headers.get("x-should-retry")),
        retry_after_s=_delay_s(content) if wait_s is None else wait_s,
    )
    error.request_id = request_id(headers)
    return error


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the server's name for a request, None if it has none."""
    ids = (headers.get(name, "") for name in _REQUEST_IDS)
    return next((found for found in ids if _REQUEST_ID.fullmatch(found)), None)


def reported_error(error: Any, failure: type[E]) -> E:
    """Return the error that a server reports inside an answer of status 200."""
    codes = _codes(error)
    facts = "; ".join(codes)
    status = _status(error)
    return failure(
        f"the server reports an error: {facts}" if facts else "the server reports an error",
        status=status,
        retryable=_may_pass(500 if status is None else status, codes, None),
        retry_after_s=_delay_s(error),
    )


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait that a server asks for, from 0, or None.

    Source: RFC 9110, 10.2.3 (seconds or a date); `retry-after-ms` is finer, and LiteLLM passes a
    provider's wait on under another name.
    """
    milliseconds = headers.get("retry-after-ms", "")
    wait = headers.get("retry-after") or headers.get("llm_provider-retry-after", "")
    if _SECONDS.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    if _SECONDS.fullmatch(wait):
        return float(wait)
    try:
        at = parsedate_to_datetime(wait)
    except (ValueError, OverflowError):  # the latter for an offset beyond all integers of C
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())


def _may_pass(status: int, codes: list[str], advice: str | None) -> bool:
    if advice in {"true", "false"}:
        return advice == "true"
    if _GIVE_UP.intersection(codes):
        return False
    return status in RETRYABLE or (status >= 500 and status not in _FINAL)  # noqa: PLR2004 - HTTP


def _delay_s(content: Any) -> float | None:
    """Return the wait of Google's error model, which stands in the body: `retryDelay: "7s"`."""
    for error in _wrapped(content):
        details = error.get("details")
        for detail in cast(list[Any], details) if isinstance(details, list) else []:
            delay = (
                cast(dict[str, Any], detail).get("retryDelay") if isinstance(detail, dict) else 0
            )
            if isinstance(delay, str) and (found := _DELAY.fullmatch(delay)):
                return float(found[1])
    return None


def _json(body: bytes) -> Any:
    try:
        return parse(body)
    except (ValueError, RecursionError):
        return None


def _codes(error: Any) -> list[str]:
    """Return the short names that the error carries, each once."""
    names = [value for value in _kinds(error) if isinstance(value, str) and _CODE.fullmatch(value)]
    return list(dict.fromkeys(names))


def _status(error: Any) -> int | None:
    statuses = [int(value) for value in map(str, _kinds(error)) if _STATUS.fullmatch(value)]
    return statuses[0] if statuses else None


def _kinds(error: Any) -> Iterator[Any]:
    """Yield the fields of an error object that name its kind."""
    for each in _wrapped(error):
        yield from (each[name] for name in ("code", "type", "status") if name in each)


def _wrapped(error: Any) -> Iterator[dict[str, Any]]:
    """Yield an error object and those inside of it, however deep a server has wrapped it.

    OpenAI and most others answer `{"error": {...}}`, Gemini a list of one such object, older vLLM
    the bare object, FastAPI `{"detail": ...}`, and gateways wrap once more.
    """
    for _ in range(_WRAPPINGS):
        if isinstance(error, list):
            error = next(iter(cast(list[Any], error)), None)
        if not isinstance(error, dict):
            return
        fields = cast(dict[str, Any], error)
        yield fields
        error = fields.get("error") or fields.get("detail")
