import json
from datetime import UTC, datetime
from typing import Any

import pytest

from lib.errors import LLMError
from lib.http.failures import reported_error, retry_after_s, status_error

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def facts(error: LLMError) -> tuple[str, int | None, bool, float | None]:
    return str(error), error.status, error.retryable, error.retry_after_s


def openai(kind: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": "SECRET", "type": kind, "param": None, "code": code}}


BODIES: list[tuple[int, Any, str, bool]] = [
    (400, openai("invalid_request_error"), ": invalid_request_error", False),
    (
        400,
        openai("invalid_request_error", "context_length_exceeded"),
        ": context_length_exceeded; invalid_request_error",
        False,
    ),
    (
        401,
        openai("invalid_request_error", "invalid_api_key"),
        ": invalid_api_key; invalid_request_error; check the API key",
        False,
    ),
    (403, {}, ": check what the API key may do", False),
    (404, {"detail": "SECRET"}, ": check the model's name and base_url", False),
    (308, {}, ": set base_url to where it redirects", False),
    (408, {}, "", True),
    (409, {}, "", True),
    (413, {}, ": the request is too large", False),
    (422, {"detail": [{"type": "missing", "input": "SECRET"}]}, ": missing", False),
    (429, openai("requests", "rate_limit_exceeded"), ": rate_limit_exceeded; requests", True),
    (
        429,
        openai("insufficient_quota", "insufficient_quota"),
        ": insufficient_quota",
        False,
    ),
    (
        429,
        [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "SECRET"}}],
        ": RESOURCE_EXHAUSTED",
        True,
    ),
    (
        400,
        {"object": "error", "message": "SECRET", "type": "BadRequestError", "code": 400},
        ": BadRequestError",
        False,
    ),
    (500, {"error": "SECRET words"}, "", True),
    (500, {"error": {"type": "SECRET words", "code": "sk-12345678"}}, "", True),
    (501, {}, "", False),
    (503, "SECRET", "", True),
    (
        529,
        {"type": "error", "error": {"type": "overloaded_error"}},
        ": error; overloaded_error",
        True,
    ),
    (500, [], "", True),
    (500, {"error": {"error": {"error": {"error": {"code": "too_deep_to_look"}}}}}, "", True),
]


@pytest.mark.parametrize(("status", "body", "reported", "retryable"), BODIES)
def test_a_status_says_whether_to_try_again_and_the_body_only_its_codes(
    status: int, body: Any, reported: str, retryable: bool
):
    error = status_error(status, json.dumps(body).encode(), {}, NOW, LLMError)

    assert facts(error) == (f"the server answered {status}{reported}", status, retryable, None)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_these_statuses_may_pass(status: int):
    assert status_error(status, b"", {}, NOW, LLMError).retryable


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 404, 422, 431, 501, 505])
def test_these_statuses_stay(status: int):
    error = status_error(status, b"", {}, NOW, LLMError)

    assert not error.retryable
    assert ("base_url" in str(error)) == (status in {301, 302, 307, 308, 404})


@pytest.mark.parametrize(
    "code",
    [
        "authentication_error",
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
    ],
)
def test_these_codes_stay_under_any_status(code: str):
    body = json.dumps(openai("some_type", code)).encode()

    assert facts(status_error(429, body, {}, NOW, LLMError)) == (
        f"the server answered 429: {code}; some_type",
        429,
        False,
        None,
    )


@pytest.mark.parametrize("body", [b"<html>502 SECRET</html>", b"", b"[" * 100_000, b"\xff"])
def test_an_error_page_is_not_quoted(body: bytes):
    assert facts(status_error(502, body, {}, NOW, LLMError)) == (
        "the server answered 502",
        502,
        True,
        None,
    )


@pytest.mark.parametrize(
    ("status", "advice", "retryable"),
    [(400, "true", True), (500, "false", False), (500, "maybe", True), (429, "false", False)],
)
def test_the_servers_advice_on_retries_counts(status: int, advice: str, retryable: bool):
    error = status_error(status, b"", {"x-should-retry": advice}, NOW, LLMError)

    assert error.retryable is retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sat, 21 Nov 2026 13:00:00 +0100"}, 0.0),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:05 -0000"}, 5.0),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"llm_provider-retry-after": "9"}, 9.0),
        ({"llm_provider-retry-after": "9", "retry-after": "3"}, 3.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 +9999999999999"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 +9999"}, None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_seconds_or_a_date(
    headers: dict[str, str], seconds: float | None
):
    assert retry_after_s(headers, NOW) == seconds
    assert status_error(429, b"", headers, NOW, LLMError).retry_after_s == seconds


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ([{"retryDelay": "7s"}], 7.0),
        ([{"other": 1}, {"retryDelay": "0.25s"}], 0.25),
        ([{"retryDelay": "soon"}, {"retryDelay": 7}, "7s", None], None),
        ("7s", None),
        ({"retryDelay": "7s"}, None),
    ],
)
def test_the_wait_of_googles_error_model_stands_in_the_body(details: Any, seconds: float | None):
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}

    for body in ({"error": error}, [{"error": error}]):
        content = json.dumps(body).encode()
        assert status_error(429, content, {}, NOW, LLMError).retry_after_s == seconds
        first = status_error(429, content, {"retry-after": "1"}, NOW, LLMError)
        assert first.retry_after_s == 1


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({}, None),
        ({"request-id": "req_011CQ"}, "req_011CQ"),
        ({"x-request-id": "1b4e28ba-2fa1"}, "1b4e28ba-2fa1"),
        ({"x-amzn-requestid": "8f7d"}, "8f7d"),
        ({"request-id": "<b>a page</b>"}, None),
        ({"request-id": "x" * 200, "x-request-id": "short"}, "short"),
    ],
)
def test_an_error_carries_the_servers_name_for_the_request(
    headers: dict[str, str], name: str | None
):
    assert status_error(500, b"", headers, NOW, LLMError).request_id == name


REPORTED: list[tuple[Any, tuple[str, int | None, bool, float | None]]] = [
    (
        {"error": {"message": "SECRET", "type": "server_error"}},
        ("the server reports an error: server_error", None, True, None),
    ),
    (
        {"error": {"code": 429, "message": "SECRET"}},
        ("the server reports an error", 429, True, None),
    ),
    (
        {"error": {"code": "400", "type": "BadRequestError"}},
        ("the server reports an error: BadRequestError", 400, False, None),
    ),
    (
        {"code": 400, "type": "exceed_context_size_error"},
        ("the server reports an error: exceed_context_size_error", 400, False, None),
    ),
    ({"error": "SECRET"}, ("the server reports an error", None, True, None)),
    (
        {"error": {"code": 200, "type": "invalid_request_error"}},
        ("the server reports an error: invalid_request_error", None, False, None),
    ),
]


@pytest.mark.parametrize(("error", "expected"), REPORTED)
def test_an_error_inside_a_good_answer_counts_as_its_own_code_says(error: Any, expected: Any):
    assert facts(reported_error(error, LLMError)) == expected
