"""The serving of the console: its policy, its caching, its size, its place."""

import re

import httpx2
from server_kit import echo_agent, serving
from starlette.applications import Starlette
from starlette.routing import Mount

from lib_server import Server
from lib_server.console.assets import read_assets

MOST_BYTES = 300_000
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|setHTML|srcdoc|(?<!lib\.)\beval\b"
    r"|new Function|createContextualFragment|setAttribute\(.style|XMLHttpRequest|document\.cookie"
)


async def test_the_page_is_never_stored_and_runs_only_scripts_of_its_own() -> None:
    async with serving(Server(echo_agent())) as up:
        page = await up.client.get("/console/")

    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["cache-control"] == "no-store"
    policy = page.headers["content-security-policy"].split("; ")
    assert {
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    } <= set(policy)
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert (
        re.search(r"<script(?! type=\"module\" src=\"assets/)|<style| style=| on\w+=", page.text)
        is None
    )


async def test_all_that_the_page_loads_is_kept_for_ever_under_its_hash() -> None:
    async with serving(Server(echo_agent())) as up:
        page = await up.client.get("/console/")
        loaded = re.findall(r'(?:href|src)="(assets/[^"]+)"', page.text)
        answers = [await up.client.get(f"/console/{name}") for name in loaded]
        older = await up.client.get("/console/assets/0000000000000000/app.js")
        outside = await up.client.get("/console/assets/..%2f..%2fassets.py")

    assert loaded
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (older.status_code, older.json()["code"]) == (404, "not_found")
    assert (outside.status_code, outside.json()["code"]) == (404, "not_found")


async def test_the_console_is_found_at_the_root_wherever_the_server_is_mounted() -> None:
    server = Server(echo_agent())
    outer = Starlette(routes=[Mount("/agents", server)], lifespan=server.lifespan)
    async with serving(Server(echo_agent())) as up:
        at_root = await up.client.get("/")
        posted = await up.client.post("/console/")
    transport = httpx2.ASGITransport(outer)
    async with (
        server,
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        mounted = await client.get("/agents/")
        page = await client.get("/agents/console/")

    assert (at_root.status_code, at_root.headers["location"]) == (307, "/console/")
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
    assert (mounted.status_code, mounted.headers["location"]) == (307, "/agents/console/")
    assert page.status_code == 200


async def test_a_server_without_the_console_serves_none() -> None:
    async with serving(Server(echo_agent(), console=False)) as up:
        answers = [await up.client.get(path) for path in ("/", "/console/")]

    assert [answer.status_code for answer in answers] == [404, 404]


async def test_a_page_of_another_host_cannot_load_the_console() -> None:
    async with serving(Server(echo_agent())) as up:
        answer = await up.client.get("/console/", headers={"host": "evil.example"})

    assert answer.status_code == 421


def test_the_console_is_small() -> None:
    assets = read_assets()
    size = len(assets.page) + sum(len(each.content) for each in assets.files.values())

    assert size < MOST_BYTES


def test_no_script_reads_text_as_markup_or_as_code() -> None:
    scripts = {
        name: asset.content.decode()
        for name, asset in read_assets().files.items()
        if name.endswith(".js")
    }

    assert len(scripts) > 10
    assert [name for name, script in scripts.items() if UNSAFE.search(script)] == []
