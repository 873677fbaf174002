"""The stand-ins for SearXNG and Brave Search obey, refuse and decorate as the real ones do."""

from typing import Any

import httpx2

from fakes.search_server import API_KEY, BraveServer, SearXNGQuery, SearXNGServer, WebPage

PAGES = [
    WebPage(url="https://rust.example/book", title="Rust & you", text="Rust isn't iron <oxide>."),
    WebPage(url="https://oxide.example/", title="Oxide", text="Of rust.", published="2026-01-01"),
]

# A client is made before the event loop: the first of all loads modules, which blocks.


async def test_searxng_obeys_what_is_not_taken_away() -> None:
    http = httpx2.AsyncClient(timeout=200)

    async def main() -> tuple[int, str, SearXNGQuery]:
        async with SearXNGServer(PAGES) as server, http as client:
            parameters = {"q": "!!g my :de !wp secret <3 !!", "format": "json"}
            answer = await client.get(f"{server.base_url}/search", params=parameters)
            return answer.status_code, answer.headers["location"], server.queries[0]

    assert (await main()) == (
        302,
        "https://www.google.com/search?q=my%20secret",
        SearXNGQuery("my secret", ["wp"], ["de"], 3, "g", lucky=True),
    )


async def test_searxng_refuses_as_the_real_one_does() -> None:
    http = httpx2.AsyncClient(timeout=200)

    async def main() -> list[tuple[int, Any]]:
        async with SearXNGServer(PAGES) as server, http as client:
            base, answers = server.base_url, list[httpx2.Response]()
            for path in (
                "/?q=rust",
                "/search?format=json&q=",
                "/search?format=json&q=x&safesearch=7",
                "/search?format=xml&q=x",
            ):
                answers.append(await client.get(base + path))
            server.limiter = True
            answers.append(await client.get(f"{base}/search?format=json&q=x"))
            return [
                (each.status_code, each.headers.get("location") or each.text) for each in answers
            ]

    assert (await main()) == [
        (308, "/search?q=rust"),
        (400, '{"error": "No query"}'),
        (400, '{"error": "Invalid value 7 for parameter safesearch"}'),
        (200, "<!DOCTYPE html><html><body>results</body></html>"),
        (429, "Too Many Requests"),
    ]


async def test_brave_search_refuses_and_decorates_as_the_real_one_does() -> None:
    http = httpx2.AsyncClient(timeout=200)

    seen: list[tuple[int, Any]] = []
    async with BraveServer(PAGES) as server, http as client:
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
    assert seen == [
        (422, ["header", "x-subscription-token"]),
        (422, ["query", "q"]),
        (422, ["query", "count"]),
        (200, "Rust <strong>isn</strong>&#x27;<strong>t</strong> iron &lt;oxide&gt;."),
    ]
