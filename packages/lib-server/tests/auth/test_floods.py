"""The cases of the corpus that take many requests, large answers, or a look into every output."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import pickle
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from server_kit import Up, echo_agent, serving

from fakes.raw_server import raw_server
from lib.errors import StoreError
from lib.events import MemoryEventStore
from lib.events.store import Marks
from lib.testing.clock import ManualClock
from lib_server import ApiKeyAuthenticator, ApiKeys, JWKSKeys, JWTAuthenticator, Server
from lib_server.auth.failures import MAX_FAILURES
from lib_server.auth.jwks import TIMEOUT_S
from lib_server.auth.keys import NewKey, new_key
from lib_server.auth.principal import AuthenticationUnavailable, Unauthenticated

from .issuer import AUDIENCE, ISSUER, jwk, token

LONG = bool(os.environ.get("LIB_TEST_LONG"))
FLOOD = 1000 if LONG else 60
MANY_BYTES = 100_000_000
SOCKETS_HOLD = 16_000_000  # at most, what was written and not read


@dataclass
class World:
    up: Up
    store: MemoryEventStore
    auth: ApiKeyAuthenticator
    keys: ApiKeys


@asynccontextmanager
async def a_world() -> AsyncGenerator[World]:
    store = MemoryEventStore()
    auth = ApiKeyAuthenticator(max_age_s=0, refusal_step_s=0)
    async with serving(Server(echo_agent(), auth=auth, store=store)) as up:
        yield World(up, store, auth, ApiKeys(store))


def bearer(key: NewKey | str) -> dict[str, str]:
    return {"authorization": f"Bearer {key if isinstance(key, str) else key.key}"}


async def test_apikey_010_a_key_without_the_scope_decides_nothing() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme", scopes=["read", "run"])
        run = await world.up.client.post("/v1/runs", json={"input": "x"}, headers=bearer(key))
        body = {"decision": "approve", "arguments_digest": "0" * 64}
        path = f"/v1/runs/{run.json()['id']}/approvals/llm/1/call"
        answer = await world.up.client.post(path, json=body, headers=bearer(key))

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "forbidden"
    challenge = 'Bearer realm="lib-server", error="insufficient_scope", scope="approve"'
    assert answer.headers["www-authenticate"] == challenge


@pytest.mark.parametrize("spoofed", [False, True])
async def test_apikey_027_028_an_address_that_floods_waits_and_others_do_not(
    spoofed: bool,
) -> None:
    async with a_world() as world:
        good = await world.keys.create(tenant="acme")
        statuses: list[int] = []
        wait_s = ""
        for n in range(FLOOD):
            headers = bearer(new_key("lib_sk").key)
            if spoofed:
                headers["x-forwarded-for"] = f"1.2.{n // 250}.{n % 250}"
            answer = await world.up.client.get("/v1/runs", headers=headers)
            statuses.append(answer.status_code)
            wait_s = answer.headers.get("retry-after", "")
        url = f"http://127.0.0.1:{world.up.port}/v1/runs"
        transport = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx2.AsyncClient(transport=transport) as elsewhere:
            admitted = await elsewhere.get(url, headers=bearer(good))
            refused = await elsewhere.get(url, headers=bearer(new_key("lib_sk").key))

    assert statuses == [401] * MAX_FAILURES + [429] * (FLOOD - MAX_FAILURES)
    assert 0 < int(wait_s) <= 60
    assert (admitted.status_code, refused.status_code) == (200, 401)


class BrokenMarks:
    """The marks of a store that fails."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: object, **__: object) -> None:
            raise StoreError("down", retryable=True)

        return fail


async def test_apikey_029_no_output_has_the_secret_of_a_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    async with a_world() as world:
        good = await world.keys.create(tenant="acme", scopes=["read", "run", "approve"])
        revoked = await world.keys.create(tenant="acme")
        await world.keys.revoke(revoked.record.key_id)
        secrets = [key.key[20:] for key in (good, revoked)]
        for key in (good, revoked):
            wrong = key.key[:-1] + ("0" if key.key[-1] != "0" else "1")
            for header in (key.key, wrong, f"{key.key} {key.key}", f"x{key.key}"):
                for method, path in (
                    ("GET", "/v1/runs"),
                    ("GET", "/v1/runs/nothing"),
                    ("POST", "/v1/runs"),
                    ("PUT", "/v1/runs"),
                    ("GET", "/nowhere"),
                    ("GET", "/metrics"),
                    ("GET", "/v1/openapi.json"),
                ):
                    answer = await world.up.client.request(
                        method, path, headers=bearer(header), json={"input": "x"}
                    )
                    seen += [answer.text, repr(answer.headers)]
        for run in await world.store.runs():
            seen += [repr(event) for event in await world.store.read(run.run_id)]
        seen.append(repr(await world.store.marks("")))
        seen += [repr(good), repr(good.record), repr(await world.keys.list())]
    broken: Marks = BrokenMarks()  # pyright: ignore[reportAssignmentType] - it has every method
    async with serving(Server(echo_agent(), auth=ApiKeyAuthenticator(broken))) as up:
        answer = await up.client.get("/v1/runs", headers=bearer(good))
        assert answer.status_code == 503
        seen += [answer.text, repr(answer.headers)]
    formatter = logging.Formatter("%(message)s")
    records = [each for each in caplog.records if not each.name.startswith("http")]
    seen += [formatter.format(each) + repr(vars(each)) for each in records]

    assert records
    assert [text for text in seen if any(secret in text for secret in secrets)] == []


async def test_apikey_030_the_authenticator_holds_no_key() -> None:
    async with a_world() as world:
        key = await world.keys.create(tenant="acme")
        assert (await world.up.client.get("/v1/runs", headers=bearer(key))).status_code == 200
        with suppress(TypeError, AttributeError, pickle.PicklingError):
            assert key.key[20:].encode() not in pickle.dumps(world.auth)
        assert key.key[20:] not in repr(world.auth)

        held = [each for each in reachable(world.auth) if isinstance(each, str | bytes)]
        assert key.record.digest in held, "the walk reaches what it holds"
        assert not [each for each in held if key.key[20:] in str(each)]


def reachable(start: object) -> list[object]:
    """Return what an object holds, as far as its own values go."""
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        is_value = kind in {str, bytes, dict, list, set, tuple, frozenset} or (
            kind.__module__.startswith(("lib_server", "collections")) and kind is not type
        )
        if id(each) not in seen and is_value:
            seen[id(each)] = each
            waiting += gc.get_referents(each)
    return list(seen.values())


# -- the issuer's keys -----------------------------------------------------------------------------


@dataclass
class Endpoint:
    """An issuer's endpoint, and how many bytes of its answer it could send."""

    url: str
    sent: int = 0


@asynccontextmanager
async def an_endpoint(
    body: bytes, *, times: int = 1, pause_s: float = 0
) -> AsyncGenerator[Endpoint]:
    """Answer with a body so many times, without its length before it."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        with suppress(ConnectionError):
            for _ in range(times):
                writer.write(body)
                await writer.drain()
                endpoint.sent += len(body)
                if pause_s:
                    await asyncio.sleep(pause_s)  # noqa: TID251 - drips
        with suppress(ConnectionError):
            writer.close()

    endpoint = Endpoint("")
    async with raw_server(accept) as port:
        endpoint.url = f"http://127.0.0.1:{port}/keys"
        yield endpoint


async def outcome(keys: JWKSKeys, clock: ManualClock) -> int:
    authenticator = JWTAuthenticator(keys, issuer=ISSUER, audience=AUDIENCE, clock=clock)
    try:
        await authenticator.authenticate(f"Bearer {token({}, clock.now().timestamp())}")
    except Unauthenticated:
        return 401
    except AuthenticationUnavailable:
        return 503
    finally:
        await keys.aclose()
    return 200


async def test_jwks_008_a_huge_answer_takes_no_memory() -> None:
    clock, chunk = ManualClock(), b" " * 65_536
    async with an_endpoint(chunk, times=MANY_BYTES // len(chunk)) as endpoint:
        keys = JWKSKeys(endpoint.url, clock=clock)
        tracemalloc.start()
        try:
            status = await outcome(keys, clock)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert status == 401
    assert endpoint.sent < SOCKETS_HOLD
    assert peak < 5_000_000


async def test_jwks_009_an_answer_that_drips_is_given_up_as_a_whole() -> None:
    clock = ManualClock()
    timeout_s, pause_s = (TIMEOUT_S, 1.0) if LONG else (0.2, 0.01)
    async with an_endpoint(b" ", times=10_000, pause_s=pause_s) as endpoint:
        keys = JWKSKeys(endpoint.url, clock=clock, timeout_s=timeout_s)

        assert await outcome(keys, clock) in {401, 503}
        assert endpoint.sent < 100
    assert TIMEOUT_S == 5


@pytest.mark.parametrize("key", [jwk("rs1"), {"kty": "x"}], ids=["whole", "small"])
async def test_jwks_021_ten_thousand_keys_are_refused(key: dict[str, Any]) -> None:
    clock = ManualClock()
    body = json.dumps({"keys": [key] * 9_999 + [jwk("rs1")]}).encode()
    async with an_endpoint(body) as endpoint:
        assert await outcome(JWKSKeys(endpoint.url, clock=clock), clock) == 401
