"""The page `/docs` shows every route and body, and loads nothing."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import httpx2
from server_kit import OneKey, echo_agent, serving
from starlette.applications import Starlette
from starlette.routing import Mount

from lib_server import Server
from lib_server.docs_page import docs_page
from lib_server.routes import ROUTES


class Reading(HTMLParser):
    """Collects ids and links, and what would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loading: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in {"href", "src", "srcset", "style", "action"} or name.startswith("on"):
                self.loading.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(page: str) -> Reading:
    reading = Reading()
    reading.feed(page)
    assert reading.open == []
    return reading


async def test_the_page_shows_every_route_to_callers_without_a_key_and_loads_nothing() -> None:
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        answer = await up.client.get("/docs")
        document = (await up.client.get("/v1/openapi.json")).json()

    reading = read(answer.text)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    shown = re.sub(r"<[^>]+>", "", answer.text)
    for route in ROUTES:
        path = re.sub(r":\w+}", "}", route.path)
        assert f"{route.method} {path}" in shown
        assert route.summary in unescape(shown)
    assert set(document["components"]["schemas"]) <= set(reading.ids)
    assert len(set(reading.ids)) == len(reading.ids)
    assert {link[1:] for link in reading.links if link.startswith("#")} <= set(reading.ids)
    assert [link for link in reading.links if not link.startswith("#")] == ["/v1/openapi.json"]
    assert reading.loading == []
    assert not re.search("<(script|link|img|iframe|object|form)", answer.text)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


async def test_the_page_of_a_mounted_server_leads_to_its_document() -> None:
    server = Server(echo_agent())
    app = Starlette(routes=[Mount("/agents", server)])
    transport = httpx2.ASGITransport(app)
    async with server, httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        page = (await http.get("/agents/docs")).text

    assert '<a href="/agents/v1/openapi.json">' in page


def test_no_text_of_the_document_becomes_markup() -> None:
    hostile = "<script>alert(1)</script>\"'&"
    document = Server(echo_agent()).openapi()
    document["info"]["title"] = hostile
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["summary"] = operation["tags"][0] = hostile
    for schema in document["components"]["schemas"].values():
        schema["description"] = hostile

    page = docs_page(document, document_url=hostile)

    assert "<script" not in page
    assert page.count("&lt;script&gt;") > len(ROUTES)
    read(page)
