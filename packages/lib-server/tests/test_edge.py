"""The stations of a request before its route: ids, hosts, sizes, credentials, problems."""

import asyncio

import httpx2
import pytest
from server_kit import OneKey, as_, echo_agent, serving
from starlette.applications import Starlette
from starlette.routing import Mount

from lib_server import Limits, Principal, Server, Unauthenticated
from lib_server.serve import make_uvicorn


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "evil.example"}, 421, "foreign_host"),
        ({"host": "127.0.0.1.evil.example:80"}, 421, "foreign_host"),
        ({"origin": "http://evil.example"}, 403, "foreign_origin"),
        ({"origin": "null"}, 403, "foreign_origin"),
        ({"host": "localhost:99", "origin": "http://localhost:99"}, 200, None),
        ({"host": "[::1]:80"}, 200, None),
    ],
)
async def test_hosts_and_origins_are_checked_on_every_route(
    headers: dict[str, str], status: int, code: str | None
) -> None:
    async with serving(Server(echo_agent())) as up:
        for path in ("/healthz", "/v1/runs", "/v1/openapi.json"):
            answer = await up.client.get(path, headers=headers)
            assert answer.status_code == status, path
            assert answer.json().get("code") == code
            assert "access-control-allow-origin" not in answer.headers
            assert "set-cookie" not in answer.headers


async def test_without_an_authenticator_other_machines_are_refused() -> None:
    server = Server(echo_agent())
    with pytest.raises(ValueError, match="loopback"):
        make_uvicorn(server, host="0.0.0.0")
    make_uvicorn(Server(echo_agent(), auth=OneKey()), host="0.0.0.0")
    transport = httpx2.ASGITransport(server, client=("203.0.113.9", 1))
    async with server, httpx2.AsyncClient(transport=transport, base_url="http://localhost") as far:
        answer = await far.get("/healthz")

    assert answer.status_code == 421


async def test_what_is_not_there_is_a_problem() -> None:
    async with serving(Server(echo_agent())) as up:
        missing = await up.client.get("/v1/nothing")
        method = await up.client.delete("/v1/runs")
        media = await up.client.post("/v1/runs", content=b"input=hi", headers={"content-type": "x"})
        twice = await up.client.get("/v1/runs?limit=1&limit=2")
        unknown = await up.client.get("/v1/runs?tenant=acme")

    answers = [missing, method, media, twice, unknown]
    assert [each.status_code for each in answers] == [404, 405, 415, 422, 422]
    assert method.headers["allow"] == "GET, POST"
    for each in answers:
        body = each.json()
        assert each.headers["content-type"] == "application/problem+json"
        assert body["status"] == each.status_code
        assert body["type"] == f"urn:lib-server:problem:{body['code']}"
        assert body["request_id"] == each.headers["x-request-id"]


async def test_the_request_id_of_a_proxy_is_taken_if_it_is_harmless() -> None:
    async with serving(Server(echo_agent())) as up:
        own = await up.client.get("/healthz", headers={"x-request-id": "abcdefgh-1"})
        made = await up.client.get("/healthz", headers={"x-request-id": "a b\tc"})

    assert own.headers["x-request-id"] == "abcdefgh-1"
    assert made.headers["x-request-id"].startswith("req_")


async def test_a_body_above_its_ceiling_is_refused_however_it_comes() -> None:
    async def chunks() -> object:
        for _ in range(100):
            yield b'{"input": "' + b"x" * 100

    async with serving(Server(echo_agent(), limits=Limits(body_bytes=1000))) as up:
        headers = {"content-type": "application/json"}
        declared = await up.client.post("/v1/runs", content=b"x" * 1001, headers=headers)
        chunked = await up.client.post("/v1/runs", content=chunks(), headers=headers)  # pyright: ignore[reportArgumentType] - an async iterator
        many = await up.client.get("/healthz", headers={f"x-{n}": "1" for n in range(120)})

    assert [declared.status_code, chunked.status_code, many.status_code] == [413, 413, 431]


async def test_without_valid_credentials_nothing_but_health_is_served() -> None:
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        health = await up.client.get("/healthz")
        none = await up.client.get("/v1/runs")
        wrong = await up.client.get("/v1/runs", headers=as_("nothing"))
        unknown_path = await up.client.get("/v1/nothing")

    assert health.status_code == 200
    assert [each.status_code for each in (none, wrong, unknown_path)] == [401, 401, 401]
    assert none.headers["www-authenticate"] == 'Bearer realm="lib-server"'
    assert 'error="invalid_token"' in wrong.headers["www-authenticate"]


async def test_a_caller_without_a_scope_is_refused() -> None:
    async with serving(Server(echo_agent(), auth=OneKey("read"))) as up:
        answer = await up.client.post("/v1/runs", json={"input": "hi"}, headers=as_("acme"))

    assert (answer.status_code, answer.json()["scope"]) == (403, "run")


async def test_a_foreign_run_is_exactly_a_missing_one() -> None:
    async with serving(Server(echo_agent(), auth=OneKey())) as up:
        post = up.client.post
        run = (await post("/v1/runs", json={"input": "hi"}, headers=as_("acme"))).json()
        own = await up.client.get(f"/v1/runs/{run['id']}", headers=as_("acme"))
        for method, path in [
            ("GET", "/v1/runs/ID"),
            ("GET", "/v1/runs/ID/result"),
            ("GET", "/v1/runs/ID/events"),
            ("POST", "/v1/runs/ID/cancel"),
            ("GET", "/v1/runs?cursor=ID"),
        ]:
            headers = {**as_("umbrella"), "x-request-id": "the-same-id"}
            foreign, missing = [
                await up.client.request(method, path.replace("ID", each), headers=headers)
                for each in (run["id"], "0" * 32)
            ]
            assert foreign.status_code == missing.status_code >= 400, path
            assert foreign.content.replace(run["id"].encode(), b"0" * 32) == missing.content
        listed = (await up.client.get("/v1/runs", headers=as_("umbrella"))).json()

    assert (own.json()["tenant"], own.json()["user"]) == ("acme", "u@acme")
    assert listed["runs"] == []


async def test_a_stream_ends_when_its_credentials_do() -> None:
    class Revoked(OneKey):
        checks = 0

        async def authenticate(self, authorization: str | None) -> Principal:
            self.checks += 1
            if self.checks > 3:
                raise Unauthenticated("revoked")
            return await super().authenticate(authorization)

    never = asyncio.Event()

    async def wait(_: object) -> str:
        await never.wait()
        return ""

    from lib import Agent
    from lib.llm import FunctionClient

    limits = Limits(heartbeat_s=0.01, recheck_s=0.01)
    server = Server(Agent(FunctionClient(wait)), auth=Revoked(), limits=limits, drain_s=0)
    async with serving(server, headers=as_("acme")) as up:
        run = (await up.client.post("/v1/runs", json={"input": "hi"})).json()
        stream = {"accept": "text/event-stream"}
        answer = await up.client.get(f"/v1/runs/{run['id']}/events", headers=stream)

    assert "event: stream.unauthorized" in answer.text


async def test_a_server_is_mounted_in_another_application() -> None:
    server = Server(echo_agent())
    app = Starlette(routes=[Mount("/agents", server)], lifespan=server.lifespan)
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        early = await client.get("/agents/v1/agents")
        async with app.router.lifespan_context(app):
            health = await client.get("/agents/healthz")
            started = await client.post("/agents/v1/runs", json={"input": "hi"})
            result = await client.get(f"{started.headers['location']}/result?wait_s=60")
            document = (await client.get("/agents/v1/openapi.json")).json()

    assert (early.status_code, early.json()["code"]) == (503, "not_started")
    assert health.status_code == 200
    assert result.json()["text"] == "You wrote: hi"
    assert document["servers"] == [{"url": "/agents"}]


async def test_a_source_that_cannot_be_served_is_refused() -> None:
    with pytest.raises(TypeError, match="got str"):
        Server("app:agents")  # pyright: ignore[reportArgumentType] - refused
    with pytest.raises(TypeError, match="got NoneType"):
        async with Server(lambda: None):  # pyright: ignore[reportArgumentType] - refused
            pass
