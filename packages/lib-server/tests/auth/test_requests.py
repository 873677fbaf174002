"""Credentials of requests to a real server: what is answered, and to which address."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from server_kit import Up, echo_agent, serving

from lib.events import MemoryEventStore
from lib_server import ApiKeyAuthenticator, ApiKeys, FirstOf, JWTAuthenticator, Server, StaticKeys
from lib_server.auth.failures import MAX_FAILURES
from lib_server.auth.keys import NewKey, new_key
from lib_server.auth.principal import SCOPES

from .issuer import AUDIENCE, ISSUER, key_set, token

CASES = {
    case["id"]: case
    for case in map(
        json.loads,
        (Path(__file__).parents[1] / "data" / "auth.jsonl").read_text("utf-8").splitlines(),
    )
}


@dataclass
class World:
    up: Up
    keys: ApiKeys
    good: NewKey

    async def get(self, key: str, path: str = "/v1/runs") -> tuple[int, Any]:
        answer = await self.up.client.get(path, headers={"authorization": f"Bearer {key}"})
        return answer.status_code, answer


@asynccontextmanager
async def a_world() -> AsyncGenerator[World]:
    store = MemoryEventStore()
    authenticator = FirstOf(
        ApiKeyAuthenticator(max_age_s=0, refusal_step_s=0),
        JWTAuthenticator(StaticKeys(key_set()), issuer=ISSUER, audience=AUDIENCE),
    )
    server = Server([echo_agent(name="echo")], auth=authenticator, store=store)
    async with serving(server) as up:
        keys = ApiKeys(store)
        yield World(up, keys, await keys.create(tenant="a", scopes=sorted(SCOPES)))


async def raw(up: Up, request: bytes) -> int:
    """Return the status of the answer to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", up.port)
    writer.write(request)
    status = (await reader.readline()).split()
    writer.close()
    return int(status[1]) if status else 0


def request_of(authorization: bytes) -> bytes:
    head = b"GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: "
    return head + authorization + b"\r\n\r\n"


async def test_the_cases_of_api_keys_have_the_outcomes_that_they_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with a_world() as world:
        up, keys, good = world.up, world.keys, world.good
        revoked, expired = await keys.create(tenant="a"), await keys.create(tenant="a")
        reader, other = (
            await keys.create(tenant="a", scopes=["read"]),
            await keys.create(tenant="b"),
        )
        await keys.revoke(revoked.record.key_id)
        past = ApiKeys(keys._store)  # pyright: ignore[reportPrivateUsage] - to write what is expired
        await past._change(expired.record.key_id, expires_at=1.0)  # pyright: ignore[reportPrivateUsage] - the same
        key, bearer = good.key, {"authorization": f"Bearer {good.key}"}
        made = (
            await up.client.post(
                "/v1/runs",
                json={"agent": "echo", "input": "x"},
                headers={"authorization": f"Bearer {other.key}"},
            )
        ).json()["id"]
        now = asyncio.get_running_loop().time()
        got = {
            "apikey-006": (await world.get(key[:-1] + ("0" if key[-1] != "0" else "1")))[0],
            "apikey-007": (await world.get(revoked.key))[0],
            "apikey-008": (await world.get(expired.key))[0],
            "apikey-011": (await world.get(key, f"/v1/runs/{made}"))[0],
            "apikey-012": (await up.client.get(f"/v1/runs?api_key={key}")).status_code,
            "apikey-013": (
                await up.client.get("/v1/runs", headers={"cookie": f"key={key}"})
            ).status_code,
            "apikey-015": await raw(up, request_of(f"Bearer {key}, Bearer {key}".encode())),
            "apikey-017": await raw(up, request_of(b"Bearer ")),
            "apikey-018": await raw(up, request_of(b"Basic dmFsaWQ6")),
            "apikey-019": await raw(up, request_of(b"Bearer " + b"A" * 65_536)),
            "apikey-020": await raw(up, request_of(b"Bearer lib\x00\r\nX: y")),
            "apikey-022": await raw(up, request_of(b"Bearer \xff")),
            "apikey-023": await raw(up, request_of(f"Bearer {key[:9]} {key[9:]}".encode())),
            "apikey-025": (await world.get(good.record.digest))[0],
            "apikey-026": (await world.get(key.replace("_sk_", "_test_")))[0],
            "apikey-031": await raw(up, request_of(b"Bearer ' OR 1=1--")),
            "apikey-032": (await world.get(token({"sign": "attacker"}, now)))[0],
            "apikey-033": (await up.client.options("/v1/runs")).status_code,
            "apikey-034": (await up.client.get("/healthz")).status_code,
            "apikey-036": (
                await up.client.put(
                    "/v1/runs", headers={**bearer, "x-http-method-override": "POST"}
                )
            ).status_code,
            "apikey-037": (await world.get(key, "/v1/%2e%2e/approvals"))[0],
        }
        forbidden = await up.client.post(
            "/v1/runs", json={}, headers={"authorization": f"Bearer {reader.key}"}
        )

    faults = [
        f"{name} {CASES[name]['title']}: {status}"
        for name, status in got.items()
        if status not in (CASES[name]["http"], *CASES[name]["recipe"].get("alt_http", []))
    ]
    assert not faults, "\n".join(faults)
    assert forbidden.status_code == 403
    assert 'error="insufficient_scope", scope="run"' in forbidden.headers["www-authenticate"]
    of_server = [each for each in caplog.records if not each.name.startswith("http")]
    assert of_server
    assert not [each for each in of_server if key[20:63] in each.getMessage()]


async def test_a_refusal_challenges_and_tells_no_cause() -> None:
    async with a_world() as world:
        missing = await world.up.client.get("/v1/runs")
        _, unknown = await world.get(new_key("lib_sk").key)
        _, malformed = await world.get("x")

    assert missing.headers["www-authenticate"] == 'Bearer realm="lib-server"'
    challenge = 'Bearer realm="lib-server", error="invalid_token"'
    for answer in (unknown, malformed):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == challenge
        body = {name: value for name, value in answer.json().items() if name != "request_id"}
        assert body == {n: v for n, v in malformed.json().items() if n != "request_id"}


async def test_two_authorization_headers_are_refused() -> None:
    async with a_world() as world:
        line = f"Bearer {world.good.key}".encode()
        status = await raw(world.up, request_of(line + b"\r\nauthorization: " + line))

    assert status in {400, 401}


async def test_an_address_that_guesses_has_to_wait_whatever_it_writes_into_headers() -> None:
    async with a_world() as world:
        statuses: list[int] = []
        wait_s = ""
        for n in range(MAX_FAILURES + 5):
            headers = {
                "authorization": f"Bearer {new_key('lib_sk').key}",
                "x-forwarded-for": f"1.2.3.{n}",
            }
            answer = await world.up.client.get("/v1/runs", headers=headers)
            statuses.append(answer.status_code)
            wait_s = answer.headers.get("retry-after", "")

    assert statuses == [401] * MAX_FAILURES + [429] * 5
    assert 0 < int(wait_s) <= 60


async def test_a_caller_at_work_is_not_locked_out_by_guesses_from_its_address() -> None:
    async with a_world() as world:
        assert (await world.get(world.good.key))[0] == 200
        for _ in range(MAX_FAILURES):
            await world.get(new_key("lib_sk").key)

        assert (await world.get(new_key("lib_sk").key))[0] == 429
        assert (await world.get(world.good.key))[0] == 200


async def test_a_run_belongs_to_the_tenant_of_the_key_whatever_the_request_says() -> None:
    async with a_world() as world:
        other = await world.keys.create(tenant="b", scopes=["read", "run"])
        bearer = {"authorization": f"Bearer {other.key}"}
        body = {"agent": "echo", "input": "x"}
        started = await world.up.client.post("/v1/runs", json=body, headers=bearer)
        foreign = await world.up.client.post(
            "/v1/runs?tenant=a", json={**body, "tenant": "a"}, headers=bearer
        )
        run = f"/v1/runs/{started.json()['id']}"

        assert started.status_code == 201
        assert foreign.status_code in {201, 422}
        assert (await world.get(other.key, run))[0] == 200
        seen, missing = (
            await world.get(world.good.key, run),
            await world.get(world.good.key, "/v1/runs/nothing"),
        )
        assert seen[0] == missing[0] == 404
        assert list(seen[1].headers) == list(missing[1].headers)
        assert seen[1].json()["detail"] == missing[1].json()["detail"]


async def test_a_key_that_was_just_created_and_a_rotated_one_are_valid_at_once() -> None:
    async with a_world() as world:
        old = await world.keys.create(tenant="a")
        assert (await world.get(old.key))[0] == 200
        end = world.keys._clock.now() + timedelta(hours=1)  # pyright: ignore[reportPrivateUsage] - the clock of the world
        new = await world.keys.rotate(old.record.key_id, old_expires_at=end)

        assert [(await world.get(each.key))[0] for each in (old, new)] == [200, 200]
        await world.keys.revoke(old.record.key_id)
        assert [(await world.get(each.key))[0] for each in (old, new)] == [401, 200]
