"""Failed requests as errors: a class for what a caller can do about them, a code for the cause."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from lib.errors import RemoteError

_PASSING: Final = frozenset({408, 429, 502, 503, 504})
_LONGEST_WAIT_S: Final = 3600.0


class ClientError(RemoteError):
    """A request to a server failed.

    Attributes:
        status: of the answer, None if none came.
        code: of the problem, as the server names it; "" for an answer of another program.
        detail: what happened, in words.
        request_id: names the request in the log of the server.
        errors: the fields that are not valid, each with `pointer` and `detail`.
        more: further members of the problem, such as `decided_by`.
        retryable: True if the same request may succeed later.
        retry_after_s: the wait that the server requests, in seconds.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        code: str = "",
        request_id: str = "",
        errors: Sequence[Mapping[str, str]] = (),
        more: Mapping[str, Any] | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        self.code: str = code
        self.detail: str = detail
        self.errors: Sequence[Mapping[str, str]] = errors
        self.more: Mapping[str, Any] = more or {}
        lead = "" if status is None else f"{status} {code}: " if code else f"{status}: "
        super().__init__(
            f"{lead}{detail}", status=status, retryable=retryable, retry_after_s=retry_after_s
        )
        self.request_id = request_id or None


class AccessDenied(ClientError):
    """The credentials are missing, not valid, or lack a scope."""


class ResourceNotFound(ClientError):
    """There is no such run, session, agent, approval or blob, or no longer."""


class RequestConflict(ClientError):
    """The state of the resource refuses it: decided before, closed, with other arguments."""


class InvalidRequest(ClientError):
    """The request itself is refused, and would be again."""


class StreamReset(ClientError):
    """The log does not reach as far as the stream has read: begin it again, from the start."""


_CLASSES: Final[Mapping[int, type[ClientError]]] = {
    400: InvalidRequest,
    401: AccessDenied,
    403: AccessDenied,
    404: ResourceNotFound,
    405: InvalidRequest,
    409: RequestConflict,
    410: ResourceNotFound,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
}
_MEMBERS: Final = frozenset(
    {"type", "title", "status", "code", "detail", "instance", "request_id", "errors"}
)


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> ClientError:
    """Return the error that an answer is.

    Args:
        status: 400 or above, or any that was not expected.
        headers: of the answer.
        content: problem+json, or whatever stands before the server.
    """
    problem = _problem(content)
    detail = str(problem.get("detail") or problem.get("title") or "the server has answered so")
    errors = problem.get("errors")
    return _CLASSES.get(status, ClientError)(
        detail,
        status=status,
        code=str(problem.get("code", "")),
        request_id=str(problem.get("request_id") or headers.get("x-request-id", "")),
        errors=cast("list[Mapping[str, str]]", errors) if isinstance(errors, list) else (),
        more={name: value for name, value in problem.items() if name not in _MEMBERS},
        retryable=status in _PASSING,
        retry_after_s=_retry_after_s(headers),
    )


def _problem(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that the server requests, as it sends it: in seconds."""
    value = headers.get("retry-after", "")
    return min(float(value), _LONGEST_WAIT_S) if value.isascii() and value.isdigit() else None
