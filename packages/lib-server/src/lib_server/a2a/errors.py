"""The errors of the protocol, over JSON-RPC and over HTTP+JSON.

Source: A2A 1.0, 5.4 Error Code Mappings, 9.5 and 11.6 Error Handling.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from starlette.responses import Response

from lib_server.problems import KINDS as PROBLEMS
from lib_server.problems import Problem, problem_of

_log = logging.getLogger("lib_server")

_DOMAIN: Final = "a2a-protocol.org"


class Kind(NamedTuple):
    """One kind of error: its code over JSON-RPC, and its status over HTTP+JSON."""

    code: int
    status: int
    canonical: str


OF_PROTOCOL: Final[Mapping[str, Kind]] = {
    "TASK_NOT_FOUND": Kind(-32001, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": Kind(-32002, 409, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": Kind(-32003, 400, "UNIMPLEMENTED"),
    "UNSUPPORTED_OPERATION": Kind(-32004, 400, "UNIMPLEMENTED"),
    "CONTENT_TYPE_NOT_SUPPORTED": Kind(-32005, 415, "INVALID_ARGUMENT"),
    "VERSION_NOT_SUPPORTED": Kind(-32009, 400, "UNIMPLEMENTED"),
}
"""The errors that the protocol names, which carry their reason."""

_KINDS: Final[Mapping[str, Kind]] = {
    **OF_PROTOCOL,
    "PARSE_ERROR": Kind(-32700, 400, "INVALID_ARGUMENT"),
    "INVALID_REQUEST": Kind(-32600, 400, "INVALID_ARGUMENT"),
    "METHOD_NOT_FOUND": Kind(-32601, 404, "NOT_FOUND"),
    "INVALID_PARAMS": Kind(-32602, 400, "INVALID_ARGUMENT"),
}
_OF_PROBLEMS: Final[Mapping[str, str]] = {
    "run_not_found": "TASK_NOT_FOUND",
    "session_not_found": "TASK_NOT_FOUND",
    "run_erased": "TASK_NOT_FOUND",
    "unsupported_media_type": "CONTENT_TYPE_NOT_SUPPORTED",
    "malformed": "INVALID_PARAMS",
    "invalid": "INVALID_PARAMS",
    "invalid_cursor": "INVALID_PARAMS",
    "idempotency_mismatch": "INVALID_PARAMS",
    "upload_not_found": "INVALID_PARAMS",
    "approval_not_found": "INVALID_PARAMS",
    "digest_mismatch": "INVALID_PARAMS",
    "already_decided": "UNSUPPORTED_OPERATION",
    "not_pending": "UNSUPPORTED_OPERATION",
    "run_open": "UNSUPPORTED_OPERATION",
    "session_closed": "UNSUPPORTED_OPERATION",
}
_CANONICAL: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
_SERVER_ERRORS: Final = 500


class A2AError(Exception):
    """A request that is answered with an error of the protocol.

    Attributes:
        reason: one of the kinds above.
    """

    def __init__(self, reason: str, message: str) -> None:
        """Describe it; the message says what happened and the way out, and holds no secret."""
        self.reason = reason
        super().__init__(message)


def error_of(error: Exception) -> A2AError | Problem:
    """Return what an error is answered with; a fault of the server is logged."""
    if isinstance(error, A2AError):
        return error
    problem = error if isinstance(error, Problem) else problem_of(error)
    if problem is None:
        _log.error("a request of another agent failed", exc_info=error)
        return Problem("internal", "the log of the server has the cause")
    reason = _OF_PROBLEMS.get(problem.code)
    return problem if reason is None else A2AError(reason, _message(problem))


def _message(problem: Problem) -> str:
    message = problem.detail or PROBLEMS[problem.code].title
    at, detail = problem.errors[0] if problem.errors else ("", "")
    return f"{message}: {at}: {detail}" if detail else message


def invalid_params(error: ValidationError) -> A2AError:
    """Return the error that parameters are that do not fit; it shows none of their values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if any(each["type"] == "json_invalid" for each in found):
        return A2AError("PARSE_ERROR", "expected JSON as the body of the request")
    place = ".".join(str(each) for each in found[0]["loc"])
    return A2AError("INVALID_PARAMS", f"{place or 'the parameters'}: {found[0]['msg']}")


def _details(reason: str) -> list[dict[str, Any]]:
    if reason not in OF_PROTOCOL:
        return []
    info = "type.googleapis.com/google.rpc.ErrorInfo"
    return [{"@type": info, "reason": reason, "domain": _DOMAIN, "metadata": {}}]


def rpc_error(error: A2AError | Problem) -> dict[str, Any]:
    """Return the `error` of a JSON-RPC response."""
    if isinstance(error, A2AError):
        body = {"code": _KINDS[error.reason].code, "message": str(error)}
        details = _details(error.reason)
        return {**body, "data": details} if details else body
    code = -32603 if error.status >= _SERVER_ERRORS else -32600
    return {"code": code, "message": f"{error.code}: {_message(error)}"}


def http_error(error: A2AError | Problem) -> dict[str, Any]:
    """Return the body of an error over HTTP+JSON."""
    if isinstance(error, A2AError):
        kind, reason, message = _KINDS[error.reason], error.reason, str(error)
    else:
        kind = Kind(0, error.status, _CANONICAL.get(error.status, "INVALID_ARGUMENT"))
        reason, message = error.code, _message(error)
    fields = {"code": kind.status, "status": kind.canonical, "message": message}
    return {"error": {**fields, "details": _details(reason)}}


def http_response(error: A2AError | Problem) -> Response:
    """Return the answer that an error is over HTTP+JSON."""
    error = error_of(error)
    body = http_error(error)
    headers = {"cache-control": "no-store"}
    if isinstance(error, Problem):
        headers |= error.headers
    content = json.dumps(body, ensure_ascii=True)
    return Response(content, body["error"]["code"], headers, media_type="application/json")
