"""Errors as `application/problem+json`, each with a stable code; on some routes as OpenAI has them.

Source: RFC 9457, Problem Details for HTTP APIs, July 2023; OpenAI API reference, Errors, 2026-10.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from lib.errors import (
    BlobError,
    BlobMissing,
    ContentTooLarge,
    IdempotencyMismatch,
    NotPending,
    RunAbandoned,
    RunErased,
    RunNotFound,
    SessionClosed,
    StoreClosed,
    StoreError,
    UnknownAlgorithm,
)

MEDIA_TYPE: Final = "application/problem+json"
_RETRY_AFTER_S: Final = 1


class Kind(NamedTuple):
    """One kind of problem: the status that it is answered with, and its title."""

    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed": Kind(400, "The request cannot be read"),
    "invalid_cursor": Kind(400, "The cursor is not of this list"),
    "unauthenticated": Kind(401, "The credentials are missing or not valid"),
    "forbidden": Kind(403, "The credentials lack a scope"),
    "foreign_origin": Kind(403, "The origin of the request is not allowed"),
    "not_found": Kind(404, "There is no such resource"),
    "run_not_found": Kind(404, "There is no such run"),
    "session_not_found": Kind(404, "There is no such session"),
    "agent_not_found": Kind(404, "There is no such agent"),
    "approval_not_found": Kind(404, "There is no such approval"),
    "key_not_found": Kind(404, "There is no such API key"),
    "blob_not_found": Kind(404, "There is no such blob"),
    "method_not_allowed": Kind(405, "The resource does not have this method"),
    "not_acceptable": Kind(406, "The caller does not take what the resource has"),
    "timeout": Kind(408, "The request did not arrive in time"),
    "not_pending": Kind(409, "The call does not wait for a decision"),
    "already_decided": Kind(409, "The call has been decided already"),
    "digest_mismatch": Kind(409, "The arguments are not those that were decided on"),
    "already_settled": Kind(409, "The call has been settled already"),
    "run_open": Kind(409, "The run has not ended"),
    "run_cancelled": Kind(409, "The run was cancelled"),
    "session_closed": Kind(409, "The session is closed"),
    "upload_not_found": Kind(409, "The request refers to an upload that does not exist"),
    "run_erased": Kind(410, "The run has been erased"),
    "too_large": Kind(413, "The content is too large"),
    "unsupported_media_type": Kind(415, "The content has another type"),
    "foreign_host": Kind(421, "The server does not serve this host"),
    "invalid": Kind(422, "A field of the request is not valid"),
    "budget_ceiling": Kind(422, "The budget is above a ceiling"),
    "idempotency_mismatch": Kind(422, "The key was used with another request"),
    "rate_limited": Kind(429, "Too many requests"),
    "stream_cap": Kind(429, "Too many streams are open"),
    "budget_spent": Kind(429, "The budget of the day is spent"),
    "open_runs_cap": Kind(429, "Too many runs are open"),
    "headers_too_large": Kind(431, "The request has too many headers"),
    "internal": Kind(500, "The server failed"),
    "unsupported": Kind(501, "This server lacks a part that the request needs"),
    "run_failed": Kind(502, "The run has failed"),
    "draining": Kind(503, "The server is shutting down"),
    "not_started": Kind(503, "The server has not been started"),
    "overloaded": Kind(503, "Too many connections are open"),
    "unavailable": Kind(503, "A part of the server does not answer"),
}
"""Every problem that the server answers with, by its code."""


class FieldError(BaseModel):
    """One field that is not valid."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    pointer: str = Field(description="JSON pointer into the body, or the name of a parameter")
    detail: str


class ProblemBody(BaseModel):
    """An error, as RFC 9457 has it."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    type: str = Field(description="urn:lib-server:problem:CODE")
    title: str
    status: int
    code: str = Field(description="stable; `title` and `detail` are for people")
    detail: str | None = None
    instance: str | None = Field(None, description="the path of the request")
    request_id: str | None = None
    errors: list[FieldError] | None = None


class Problem(Exception):
    """A request that is answered with a problem.

    Attributes:
        code: one of `KINDS`.
        headers: further headers of the answer.
        more: further members of the body.
    """

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        **more: Any,
    ) -> None:
        """Describe the problem.

        Args:
            code: see above.
            detail: what happened, the rule and the way out; never a secret.
            errors: the fields that are not valid, as pointer and detail.
            headers: see above.
            retry_after_s: when the same request may succeed, in seconds.
            more: see above.
        """
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers: dict[str, str] = dict(headers or {})
        if retry_after_s is not None:
            self.headers["retry-after"] = str(max(1, round(retry_after_s + 0.499)))
        self.more = more
        super().__init__(detail or KINDS[code].title)

    @property
    def status(self) -> int:
        """The status of the answer."""
        return KINDS[self.code].status

    def body(self, *, path: str = "", request_id: str = "") -> dict[str, Any]:
        """Return the body of the answer."""
        body: dict[str, Any] = {
            "type": f"urn:lib-server:problem:{self.code}",
            "title": KINDS[self.code].title,
            "status": self.status,
            "code": self.code,
        }
        optional = {"detail": self.detail, "instance": path, "request_id": request_id}
        body |= {name: value for name, value in optional.items() if value}
        if self.errors:
            body["errors"] = [{"pointer": at, "detail": detail} for at, detail in self.errors]
        return body | self.more

    def response(self, *, path: str = "", request_id: str = "") -> Response:
        """Return the answer."""
        body = json.dumps(self.body(path=path, request_id=request_id), ensure_ascii=True)
        headers = {"cache-control": "no-store", **self.headers}
        return Response(body, self.status, headers, media_type=MEDIA_TYPE)


def invalid(error: ValidationError, *, body: bool) -> Problem:
    """Return the problem that a body or a query is that does not fit its model.

    Args:
        error: what pydantic has found; its input values are left out.
        body: True for the body of a request, False for its parameters.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if body and any(each["type"] == "json_invalid" for each in found):
        return Problem("malformed", "expected JSON as the body of the request")
    prefix = "/" if body else ""
    errors = [(prefix + "/".join(_escaped(each["loc"])), each["msg"]) for each in found]
    return Problem("invalid", errors=errors)


def _escaped(path: Iterable[str | int]) -> list[str]:
    return [str(each).replace("~", "~0").replace("/", "~1") for each in path]


def problem_of(error: Exception) -> Problem | None:
    """Return the problem that an error of the library is; None for a fault of the server."""
    for kind, make in _OF_ERRORS:
        if isinstance(error, kind):
            return make(error)
    return None


def _store_problem(error: Any) -> Problem | None:
    if not error.retryable:
        return None
    detail = "the event store does not answer: try again"
    return Problem("unavailable", detail, retry_after_s=_RETRY_AFTER_S)


def _not_found(_error: Any) -> Problem:
    return Problem("run_not_found", "no run has this id")


def _closing(_error: Any) -> Problem:
    return Problem("draining", "try another server, or again", retry_after_s=_RETRY_AFTER_S)


def _too_large(error: Any) -> Problem:
    return Problem("too_large", f"content above {error.limit} bytes needs a blob store")


_OF_ERRORS: Final[Sequence[tuple[type[Exception], Callable[[Any], Problem | None]]]] = (
    (RunErased, lambda _: Problem("run_erased", "the run that this key started has been erased")),
    (RunNotFound, _not_found),
    (StoreClosed, _closing),
    (RunAbandoned, _closing),
    (StoreError, _store_problem),
    (BlobMissing, lambda _: Problem("upload_not_found", "upload the content first")),
    (ContentTooLarge, _too_large),
    (BlobError, lambda _: Problem("unavailable", "the blob store does not answer")),
    (UnknownAlgorithm, lambda _: Problem("agent_not_found", "no agent has this name")),
    (IdempotencyMismatch, lambda _: Problem("idempotency_mismatch", "take another key")),
    (NotPending, lambda _: Problem("not_pending", "no such call waits for a decision")),
    (SessionClosed, lambda _: Problem("session_closed", "start another session")),
)


# -- the shape of OpenAI's API, whose clients read `error`, and retry by the status ----------------

_OPENAI_CODES: Final = {
    "unauthenticated": "invalid_api_key",
    "agent_not_found": "model_not_found",
    "rate_limited": "rate_limit_exceeded",
}
_OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_FINAL: Final = frozenset({"run_failed", "run_cancelled", "run_open"})
_SERVER_ERRORS: Final = 500


class OpenAIError(BaseModel):
    """A failure in OpenAI's shape."""

    model_config = ConfigDict(defer_build=True)

    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorBody(BaseModel):
    """An error, as OpenAI's API has it."""

    model_config = ConfigDict(defer_build=True)

    error: OpenAIError


class CanonicalErrorBody(BaseModel):
    """An error, as Google's APIs and the Agent2Agent protocol have it."""

    model_config = ConfigDict(extra="allow")

    error: dict[str, Any] = Field(description="code, status, message and details")


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return the body that a problem is."""
    status, code = problem.status, problem.code
    at, detail = problem.errors[0] if problem.errors else ("", "")
    kind = "server_error" if status >= _SERVER_ERRORS else "invalid_request_error"
    message = problem.detail or KINDS[code].title
    error = OpenAIError(
        message=f"{message}: {at.strip('/') or 'the body'}: {detail}" if detail else message,
        type=_OPENAI_TYPES.get(status, kind),
        param=at.strip("/").replace("/", ".") or None,
        code=_OPENAI_CODES.get(code, code),
    )
    return OpenAIErrorBody(error=error).model_dump()


def openai_response(problem: Problem) -> Response:
    """Return the answer; a run that has ended is not to be run again by a client's retries."""
    headers = {"cache-control": "no-store", **problem.headers}
    if problem.code in _FINAL:
        headers["x-should-retry"] = "false"
    body = json.dumps(openai_error(problem), ensure_ascii=True)
    return Response(body, problem.status, headers, media_type="application/json")
