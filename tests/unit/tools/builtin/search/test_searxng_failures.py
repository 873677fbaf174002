"""SearXNG: its failures, and the advice to its operator."""

import gzip

import pytest

from fakes.search_server import SearXNGServer
from lib.errors import ToolError
from lib.testing.http import Drop, Hang, Reaction, Response
from lib.tools.builtin import SearXNGProvider

from .searxng_kit import JSON, PAGES, answering, refusal_of, served


async def test_a_server_without_json_says_what_its_operator_must_do() -> None:
    error, _ = await served(server=lambda: SearXNGServer(PAGES, formats=["html"]))

    assert isinstance(error, ToolError)
    assert error.code == "unavailable"
    assert "must list json under search.formats" in error.message


async def test_html_with_status_200_is_no_result() -> None:
    error = await refusal_of(
        answering(b"<!DOCTYPE html>secret", headers={"content-type": "text/html"})
    )

    assert error.code == "unavailable"
    assert "secret" not in error.message


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"x"', b"{", b"[" * 500_000, b'{"a":' * 200_000, b"\xff", b"1" * 9_000]
)
async def test_what_is_no_json_object_is_no_result(body: bytes) -> None:
    assert (await refusal_of(answering(body))).code == "unavailable"


async def test_the_limiter_s_refusal_tells_the_operator_the_way_out() -> None:
    async with SearXNGServer(PAGES, limiter=True) as server:
        provider = SearXNGProvider(server.base_url)
        for _ in range(4):
            await provider.search("rust")
        with pytest.raises(ToolError) as caught:
            await provider.search("rust")
        error = caught.value
    assert error.code == "rate_limited"
    assert "pass-list" in error.message


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (301, "redirects"),
        (302, "redirects"),
        (308, "redirects"),
        (204, "failed"),
        (400, "check categories"),
        (404, "check base_url"),
        (500, "failed"),
        (503, "failed"),
    ],
)
async def test_a_status_that_is_not_200_is_an_error_that_quotes_nothing(
    status: int, message: str
) -> None:
    headers = {"location": "https://evil.test/secret", **JSON}
    body = b"" if status == 204 else b'{"error":"secret"}'

    error, server = await served(script=[Response(status=status, headers=headers, body=body)])

    assert isinstance(error, ToolError)
    assert (error.code, len(server.requests)) == ("unavailable", 1)
    assert message in error.message
    assert "secret" not in error.message


async def test_redirects_are_not_followed() -> None:
    async def main() -> int:
        async with SearXNGServer(PAGES) as other, SearXNGServer(PAGES) as server:
            headers = {"location": f"{other.base_url}/search?q=rust&format=json"}
            server.script.append(Response(status=302, headers=headers))
            with pytest.raises(ToolError, match="not followed"):
                await SearXNGProvider(server.base_url).search("rust")
            return len(other.requests)

    assert (await main()) == 0


@pytest.mark.parametrize("packed", [False, True])
async def test_an_endless_answer_is_given_up(packed: bool) -> None:
    body = b'{"results":"' + b"x" * 5_000_000 + b'"}'
    headers = {**JSON, "content-encoding": "gzip"} if packed else JSON

    error, _ = await served(
        script=[Response(headers=headers, body=gzip.compress(body) if packed else body)]
    )

    assert isinstance(error, ToolError)
    assert error.code == "too_large"


@pytest.mark.parametrize("reaction", [Drop(), Response(headers=JSON, body=b'{"resu', cut=True)])
async def test_a_broken_connection_is_unavailable_and_names_no_address(reaction: Reaction) -> None:
    if isinstance(reaction, Response):
        reaction = Response(headers={**JSON, "connection": "close"}, body=b'{"resu', cut=True)
    error, _ = await served(script=[reaction])

    assert isinstance(error, ToolError)
    assert (error.code, error.message) == (
        "unavailable",
        "the SearXNG server could not be reached",
    )
    assert error.__cause__ is None


async def test_a_server_that_does_not_answer_costs_the_time_limit_and_no_more() -> None:
    error, _ = await served(script=[Hang()], timeout_s=0.2)

    assert isinstance(error, ToolError)
    assert (error.code, error.message) == (
        "timeout",
        "the SearXNG server did not answer within 0.2 s",
    )
