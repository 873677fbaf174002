"""Brave Search: where its key comes from, how it is refused, and that no message shows it."""

import logging
from typing import Any

import pytest

from fakes.search_server import API_KEY
from lib.errors import ToolError
from lib.testing.http import Response
from lib.tools.builtin import BraveSearchProvider

from .brave_kit import JSON, refusal, served


async def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAVE_SEARCH_API_KEY", "other")
    monkeypatch.setenv("BRAVE_API_KEY", f" {API_KEY}\n")
    _, server = await served(api_key="")
    assert server.requests[0].headers["x-subscription-token"] == API_KEY

    monkeypatch.setenv("BRAVE_API_KEY", "")
    _, server = await served(api_key="")
    assert server.requests[0].headers["x-subscription-token"] == "other"


def test_no_key_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    monkeypatch.delenv("BRAVE_SEARCH_API_KEY", raising=False)

    with pytest.raises(ValueError, match="set BRAVE_API_KEY or pass api_key="):
        BraveSearchProvider()


@pytest.mark.parametrize("key", ["a b", "a\nb", "schlüssel", "a\r\nx-evil: 1"])
def test_a_key_that_is_none_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="characters that no key has") as caught:
        BraveSearchProvider(key)

    assert key not in str(caught.value)


async def test_a_wrong_key_is_status_422_and_says_so_to_the_operator() -> None:
    error = await refusal(api_key="BSA-wrong")

    assert error.code == "unavailable"
    assert "does not accept the key" in error.message
    assert "BSA" not in error.message


MISSING: Any = {
    "meta": {"errors": [{"loc": ["header", "x-subscription-token"]}]},
    "code": "VALIDATION",
}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {}),
        (403, "<html>"),
        (422, {"error": MISSING}),
        (422, {"errors": [{"code": "SUBSCRIPTION_TOKEN_INVALID"}]}),
    ],
)
async def test_other_refusals_of_the_key_say_the_same(status: int, body: Any) -> None:
    assert "does not accept the key" in (await refusal(Response.of(body, status))).message


async def test_the_key_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    page = f"<html>{API_KEY} challenge".encode()
    await refusal(Response.of({"error": {"detail": API_KEY}}, 500))
    await refusal(Response(headers={"content-type": "text/html"}, body=page))
    await refusal(Response(headers=JSON, body=page))
    await refusal(Response(status=302, headers={"location": f"https://evil.test/{API_KEY}"}))

    async def unreachable() -> None:
        await BraveSearchProvider(API_KEY, base_url="http://127.0.0.1:1").search("x")

    with pytest.raises(ToolError, match="could not be reached"):
        await unreachable()

    ours = [record for record in caplog.records if record.name.startswith(("lib", "httpx2"))]
    assert ours
    assert all(API_KEY not in f"{record.getMessage()} {record.exc_text}" for record in ours)
