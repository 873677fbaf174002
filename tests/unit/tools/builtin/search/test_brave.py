"""Brave Search: the key, the limits of rate, and what becomes of each answer."""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from lib.errors import ToolError
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.http import Hang, Reaction, Response
from lib.testing.search_server import API_KEY, BraveServer, WebPage
from lib.tools.builtin import BraveSearchProvider, SearchApiProvider, SearchResult
from lib.tools.builtin.search.rates import Window, wait_s, windows

JSON = {"content-type": "application/json"}
PAGES = [
    WebPage(url="https://rust.example/book", title="Rust & you", text="Rust isn't iron <oxide>."),
    WebPage(url="https://oxide.example/", title="Oxide", text="Of rust.", published="2026-01-01"),
]


class SteppingClock(ManualClock):
    """Time passes as one sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.advance(delay_s)


def served(
    queries: Sequence[str] = ("rust",),
    *,
    script: Sequence[Reaction | None] = (),
    api_key: str = API_KEY,
    per_second: int = 20,
    per_month: int = 2_000,
    max_results: int = 5,
    clock: SteppingClock | None = None,
    **options: Any,
) -> tuple[list[Any], BraveServer]:
    clock = clock or SteppingClock()

    async def main() -> tuple[list[Any], BraveServer]:
        found: list[Any] = []
        limits = {"per_second": per_second, "per_month": per_month}
        async with BraveServer(PAGES, **limits, clock=clock) as server:
            server.script.extend(script)
            provider = BraveSearchProvider(
                api_key, base_url=server.base_url, clock=clock, **options
            )
            for query in queries:
                try:
                    found.append(list(await provider.search(query, max_results=max_results)))
                except ToolError as error:
                    found.append(error)
            await provider.aclose()
        return found, server

    return run(main())


def refusal(
    *script: Reaction | None, queries: Sequence[str] = ("rust",), **options: Any
) -> ToolError:
    found, _ = served(queries, script=script, **options)
    error = found[-1]
    assert isinstance(error, ToolError)
    assert error.__cause__ is None
    assert API_KEY not in f"{error} {error.__context__!r}"
    return error


def test_the_specification_s_name_is_the_same_class() -> None:
    assert SearchApiProvider is BraveSearchProvider


def test_results_are_read_and_the_request_is_what_brave_wants() -> None:
    (found,), server = served(country="de", safesearch="strict", max_results=3)

    (request,) = server.requests
    assert found == [
        SearchResult(
            "Rust & you", "https://rust.example/book", "Rust isn't iron <oxide>.", None, "brave"
        ),
        SearchResult("Oxide", "https://oxide.example/", "Of rust.", "2026-01-01", "brave"),
    ]
    assert request.path == "/res/v1/web/search"
    assert request.query == {
        "q": ["rust"],
        "count": ["3"],
        "text_decorations": ["false"],
        "result_filter": ["web"],
        "safesearch": ["strict"],
        "country": ["DE"],
    }
    assert request.headers["x-subscription-token"] == API_KEY
    assert request.headers["accept"] == "application/json"
    assert "gzip" in request.headers["accept-encoding"]


def test_more_than_brave_sends_are_not_asked_for() -> None:
    _, server = served(max_results=50)

    assert server.requests[0].query["count"] == ["20"]


def test_markup_is_taken_off_even_where_brave_sends_it() -> None:
    entry = {
        "title": "Rust&#x27;s <strong>book</strong>",
        "url": "https://a.test/",
        "description": "<strong>Rust</strong> &amp; iron &lt;oxide&gt;",
        "age": "3 days ago",
        "extra_snippets": ["one <strong>more</strong>", "", None, *["x"] * 9],
    }
    body = {"type": "search", "web": {"results": [entry, {"url": "http://u:p@a.test/"}, "x"]}}

    (found,), _ = served(script=[Response.of(body)])

    assert found == [
        SearchResult(
            "Rust's book",
            "https://a.test/",
            "Rust & iron <oxide>",
            "3 days ago",
            "brave",
            ("one more", "x", "x"),
        )
    ]


@pytest.mark.parametrize(
    "body", [{}, {"type": "search"}, {"web": None}, {"web": {"results": None}}]
)
def test_no_web_is_no_results_and_no_error(body: Any) -> None:
    (found, nothing), _ = served(["rust", "xyzzy"], script=[Response.of(body), None])

    assert (found, nothing) == ([], [])


# -- the key -----------------------------------------------------------------------------------


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAVE_SEARCH_API_KEY", "other")
    monkeypatch.setenv("BRAVE_API_KEY", f" {API_KEY}\n")
    _, server = served(api_key="")
    assert server.requests[0].headers["x-subscription-token"] == API_KEY

    monkeypatch.setenv("BRAVE_API_KEY", "")
    _, server = served(api_key="")
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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"safesearch": "on"}, "safesearch is"),
        ({"country": "DEU"}, "country is"),
        ({"country": "d&"}, "country is"),
        ({"timeout_s": -1}, "timeout_s is above 0"),
        ({"base_url": "https://k:s@brave.test"}, "base_url"),
    ],
)
def test_what_brave_could_only_refuse_is_refused_at_once(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        BraveSearchProvider(API_KEY, **options)


def test_a_wrong_key_is_status_422_and_says_so_to_the_operator() -> None:
    error = refusal(api_key="BSA-wrong")

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
def test_other_refusals_of_the_key_say_the_same(status: int, body: Any) -> None:
    assert "does not accept the key" in refusal(Response.of(body, status)).message


ABOUT_NOTHING: Any = {"code": "VALIDATION", "meta": {"errors": [{"loc": None}, 3]}}


@pytest.mark.parametrize("body", [{}, {"error": None}, {"error": ABOUT_NOTHING}])
def test_another_422_is_about_the_query(body: Any) -> None:
    error = refusal(Response.of(body, 422))

    assert (error.code, error.message) == (
        "invalid_arguments",
        "Brave Search refused the query (status 422): put it otherwise",
    )


def test_the_key_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    page = f"<html>{API_KEY} challenge".encode()
    refusal(Response.of({"error": {"detail": API_KEY}}, 500))
    refusal(Response(headers={"content-type": "text/html"}, body=page))
    refusal(Response(headers=JSON, body=page))
    refusal(Response(status=302, headers={"location": f"https://evil.test/{API_KEY}"}))

    async def unreachable() -> None:
        await BraveSearchProvider(API_KEY, base_url="http://127.0.0.1:1").search("x")

    with pytest.raises(ToolError, match="could not be reached"):
        run(unreachable())

    ours = [record for record in caplog.records if record.name.startswith(("lib", "httpx2"))]
    assert ours
    assert all(API_KEY not in f"{record.getMessage()} {record.exc_text}" for record in ours)


# -- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["x" * 401, "a " * 51, " "])
def test_a_query_that_brave_would_refuse_is_not_sent(query: str) -> None:
    found, server = served([query])

    assert found[0].code == "invalid_arguments"
    assert server.requests == []


def test_a_second_search_within_the_second_waits_for_the_next() -> None:
    clock = SteppingClock()

    found, server = served(["rust", "oxide"], per_second=1, clock=clock)

    assert [len(pages) for pages in found] == [2, 2]
    assert clock.slept == [1.0]
    assert (len(server.requests), server.searches) == (3, 2)


def test_there_is_one_retry_and_no_more() -> None:
    limited = Response.of({"error": {"code": "RATE_LIMITED"}}, 429)

    found, server = served(script=[limited, limited])

    assert (found[0].code, len(server.requests)) == ("rate_limited", 2)
    assert "search again later" in found[0].message


def test_there_is_no_retry_that_the_time_limit_forbids() -> None:
    clock = SteppingClock()

    found, server = served(["rust", "oxide"], per_second=1, clock=clock, timeout_s=0.9)

    assert found[1].code == "rate_limited"
    assert (clock.slept, len(server.requests)) == ([], 2)


def test_a_month_that_is_used_up_is_not_waited_for() -> None:
    clock = SteppingClock()

    found, server = served(["rust", "oxide"], per_month=1, clock=clock)

    assert (found[1].code, clock.slept, len(server.requests)) == ("rate_limited", [], 2)
    assert "this month are used up" in found[1].message


def test_a_plan_without_a_quota_is_never_used_up() -> None:
    found, _ = served(["rust"] * 3, per_second=1, per_month=0)

    assert [len(pages) for pages in found] == [2, 2, 2]


POLICY = {"x-ratelimit-policy": "1;w=1, 15000;w=2592000", "x-ratelimit-limit": "1, 15000"}


@pytest.mark.parametrize(
    ("headers", "delay_s"),
    [
        ({}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0, 1000", "x-ratelimit-reset": "1, 1419704"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0, 9", "x-ratelimit-reset": "7, 1419704"}, 7.0),
        ({**POLICY, "x-ratelimit-remaining": "1, 1000", "x-ratelimit-reset": "9, 9"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "1, 0", "x-ratelimit-reset": "1, 1419704"}, None),
        ({**POLICY, "x-ratelimit-remaining": "0, 0", "x-ratelimit-reset": "1, 2"}, None),
        (
            {
                "x-ratelimit-limit": "1,0",
                "x-ratelimit-remaining": "0,0",
                "x-ratelimit-reset": "2,1419704",
            },
            2.0,
        ),
        ({**POLICY, "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "many", "x-ratelimit-reset": "9, 9"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0, 0", "x-ratelimit-reset": "-1, ²"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0," * 9_000, "x-ratelimit-reset": "1"}, 1.0),
    ],
)
def test_the_wait_is_read_from_the_headers(headers: dict[str, str], delay_s: float | None) -> None:
    assert wait_s(headers, None) == delay_s


@pytest.mark.parametrize(
    ("meta", "delay_s"),
    [
        ({"quota_limit": 2000, "quota_current": 2000}, None),
        ({"quota_limit": 2000, "quota_current": 15}, 1.0),
        ({"quota_limit": 0, "quota_current": 15}, 1.0),
        ({"quota_limit": None, "quota_current": 15}, 1.0),
        ({"quota_limit": "1", "quota_current": "1"}, 1.0),
        ([], 1.0),
        (None, 1.0),
    ],
)
def test_the_body_of_a_429_tells_the_quota_too(meta: Any, delay_s: float | None) -> None:
    assert wait_s({}, {"error": {"meta": meta}}) == delay_s
    assert wait_s({}, {"error": 3}) == 1.0


def test_windows_stand_in_one_order() -> None:
    headers = {**POLICY, "x-ratelimit-remaining": "1, 1000", "x-ratelimit-reset": "1, 1419704"}

    assert windows(headers) == [Window(1, 1, 1, 1), Window(2_592_000, 15_000, 1_000, 1_419_704)]


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reaction", "told"),
    [
        (Response(status=302, headers={"location": "/x"}), "not followed"),
        (Response(status=500), "status 500"),
        (Response(headers={"content-type": "text/html"}, body=b"{}"), "JSON object"),
        (Response(headers=JSON, body=b"[1]"), "JSON object"),
    ],
)
def test_other_answers_are_unavailable(reaction: Reaction, told: str) -> None:
    error = refusal(reaction)

    assert error.code == "unavailable"
    assert told in error.message


def test_an_answer_without_a_type_may_be_json() -> None:
    (found,), _ = served(script=[Response(body=json.dumps({"web": {}}).encode())])

    assert found == []


def test_a_search_can_be_cancelled_and_made_again() -> None:
    async def main() -> int:
        async with BraveServer(PAGES) as server:
            server.script.append(Hang())
            provider = BraveSearchProvider(API_KEY, base_url=server.base_url)
            first = asyncio.create_task(provider.search("rust"))
            while not server.requests:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)  # noqa: TID251 - until it is on its way
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            return len(await provider.search("rust"))

    assert run(main()) == 2


def test_the_fake_refuses_and_decorates_as_the_real_one_does() -> None:
    async def main() -> list[tuple[int, Any]]:
        seen: list[tuple[int, Any]] = []
        async with BraveServer(PAGES) as server, httpx2.AsyncClient() as client:
            url = f"{server.base_url}/res/v1/web/search"
            for query, key in (
                ({"q": "rust"}, None),
                ({"q": "x" * 401}, API_KEY),
                ({"q": "x", "count": "21"}, API_KEY),
                ({"q": "isn't"}, API_KEY),
            ):
                headers = {"accept-encoding": "identity"}
                headers |= {"x-subscription-token": key} if key else {}
                answer = await client.get(url, params=query, headers=headers)
                body = answer.json()
                seen.append(
                    (
                        answer.status_code,
                        body["error"]["meta"]["errors"][0]["loc"]
                        if "error" in body
                        else body["web"]["results"][0]["description"],
                    )
                )
        return seen

    assert run(main()) == [
        (422, ["header", "x-subscription-token"]),
        (422, ["query", "q"]),
        (422, ["query", "count"]),
        (200, "Rust <strong>isn</strong>&#x27;<strong>t</strong> iron &lt;oxide&gt;."),
    ]
