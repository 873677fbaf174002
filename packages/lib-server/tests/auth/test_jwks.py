"""Keys of an issuer over real sockets: how many requests are made, and what becomes of answers."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fakes.raw_server import raw_server
from lib.testing.clock import ManualClock
from lib_server.auth.jwk import MAX_KEYS
from lib_server.auth.jwks import JWKSKeys
from lib_server.auth.jwt import JWTAuthenticator
from lib_server.auth.principal import AuthenticationUnavailable, Unauthenticated

from .issuer import AUDIENCE, ISSUER, b64, jwk, key_set, token


class Endpoint:
    """An issuer's endpoint: counts requests and answers with what a test has put there."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/keys"
        self.paths: list[str] = []
        self.status = "200 OK"
        self.body: bytes = key_set().encode()
        self.headers = ""
        self.size: int | None = None
        self.is_silent = False

    @property
    def requests(self) -> int:
        return len(self.paths)

    def publish(self, *keys: dict[str, Any]) -> None:
        self.body = key_set(*keys).encode()


@asynccontextmanager
async def an_endpoint() -> AsyncGenerator[Endpoint]:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        endpoint.paths.append(request.split()[1].decode())
        if endpoint.is_silent:
            writer.write(b"HTTP/1.1 200 OK\r\n")
            await reader.read()
        size = len(endpoint.body) if endpoint.size is None else endpoint.size
        writer.write(
            f"HTTP/1.1 {endpoint.status}\r\ncontent-length: {size}\r\nconnection: close\r\n"
            f"{endpoint.headers}\r\n".encode()
        )
        writer.write(endpoint.body)
        for _ in range(max(0, size - len(endpoint.body)) // 65_536):
            writer.write(b" " * 65_536)
            await writer.drain()

    async with raw_server(accept) as port:
        endpoint = Endpoint(port)
        yield endpoint


@asynccontextmanager
async def keys_of(
    endpoint: Endpoint, clock: ManualClock, **options: Any
) -> AsyncGenerator[JWKSKeys]:
    keys = JWKSKeys(options.pop("url", endpoint.url), clock=clock, **options)
    try:
        yield keys
    finally:
        await keys.aclose()


async def outcome(keys: JWKSKeys, clock: ManualClock, **recipe: Any) -> int:
    authenticator = JWTAuthenticator(keys, issuer=ISSUER, audience=AUDIENCE, clock=clock)
    try:
        await authenticator.authenticate(f"Bearer {token(recipe, clock.now().timestamp())}")
    except Unauthenticated:
        return 401
    except AuthenticationUnavailable:
        return 503
    return 200


async def test_invented_key_ids_make_one_request_in_a_cooldown() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock, cooldown_s=30) as keys:
        assert await outcome(keys, clock) == 200
        clock.advance(30)
        outcomes = {await outcome(keys, clock, header={"kid": f"k{n}"}) for n in range(200)}
        flood = endpoint.requests
        clock.advance(30)
        await outcome(keys, clock, header={"kid": "k200"})

    assert outcomes == {401}
    assert (flood, endpoint.requests) == (2, 3)


async def test_a_failed_request_starts_the_cooldown_too() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock) as keys:
        endpoint.status = "500 Internal Server Error"
        outcomes = {await outcome(keys, clock, header={"kid": f"k{n}"}) for n in range(200)}

    assert outcomes == {401}
    assert endpoint.requests == 1
    assert keys.attempts == {"refused": 1}


async def test_callers_that_wait_at_once_share_one_request() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock) as keys:
        outcomes = await asyncio.gather(*(outcome(keys, clock) for _ in range(100)))

    assert outcomes == [200] * 100
    assert endpoint.requests == 1


async def test_a_caller_that_gives_up_does_not_end_the_request_of_others() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock) as keys:
        first = asyncio.create_task(outcome(keys, clock))
        second = asyncio.create_task(outcome(keys, clock))
        await asyncio.sleep(0)  # noqa: TID251 - lets both begin
        first.cancel()

        assert await second == 200
        assert endpoint.requests == 1


async def test_a_new_key_is_found_by_one_request() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock) as keys:
        assert await outcome(keys, clock) == 200
        endpoint.publish(jwk("rs1"), jwk("rs2"))
        clock.advance(30)

        assert await outcome(keys, clock, header={"kid": "rs2"}, sign="rs2") == 200
        assert endpoint.requests == 2


async def test_a_removed_key_is_refused_when_the_keys_are_too_old() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock, max_age_s=600) as keys:
        assert await outcome(keys, clock) == 200
        endpoint.publish(jwk("es1"))
        clock.advance(479)
        assert await outcome(keys, clock) == 200
        clock.advance(121)

        assert await outcome(keys, clock) == 401
        assert endpoint.requests == 2


async def test_keys_are_fetched_in_the_background_before_they_are_too_old() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock, max_age_s=600) as keys:
        await outcome(keys, clock)
        clock.advance(480)
        endpoint.is_silent = True  # the answer never comes, and the caller does not wait for it

        assert await outcome(keys, clock) == 200
        while endpoint.requests < 2:  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0)  # noqa: TID251 - lets the request arrive


async def test_keys_are_used_while_the_issuer_is_down_and_not_for_ever() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock, max_stale_s=86_400) as keys:
        assert await outcome(keys, clock) == 200
        endpoint.status = "503 Service Unavailable"
        clock.advance(86_400)
        assert await outcome(keys, clock) == 200
        clock.advance(30)

        assert await outcome(keys, clock) == 401
        endpoint.status = "200 OK"
        clock.advance(30)
        assert await outcome(keys, clock) == 200


async def test_an_issuer_that_cannot_be_reached_is_no_fault_of_the_token() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint:
        url = endpoint.url
    async with keys_of(endpoint, clock, url=url) as keys:
        assert await outcome(keys, clock) == 503
        assert keys.attempts == {"unreachable": 1}
    async with an_endpoint() as slow, keys_of(slow, clock, timeout_s=0.05) as keys:
        slow.is_silent = True
        assert await outcome(keys, clock) == 503


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("too large", {"size": 100_000_000}),
        ("a redirect", {"status": "302 Found", "headers": "location: /other\r\n"}),
        ("compressed", {"headers": "content-encoding: gzip\r\n"}),
        ("no JSON", {"body": b"<html>"}),
        ("a list", {"body": b"[]"}),
        ("too many keys", {"body": json.dumps({"keys": [jwk("rs1")] * (MAX_KEYS + 1)}).encode()}),
    ],
)
async def test_an_answer_that_is_no_key_set_is_refused(name: str, changes: dict[str, Any]) -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock) as keys:
        for attribute, value in changes.items():
            setattr(endpoint, attribute, value)

        assert await outcome(keys, clock) == 401, name
        assert endpoint.requests == 1


KEYS: list[tuple[list[dict[str, Any]], dict[str, Any], int]] = [
    ([{"kty": "oct", "kid": "rs1", "k": b64(b"k" * 32)}], {"sign": "hmac:oct"}, 401),
    ([jwk("rs1", key_ops=["encrypt"])], {}, 401),
    ([jwk("rs1", use="enc")], {}, 401),
    ([jwk("rs1"), jwk("attacker", kid="rs1")], {"sign": "attacker"}, 401),
    ([jwk("rs1"), jwk("attacker", kid="rs1")], {}, 401),
    ([jwk("rs1024", bits=1024)], {"header": {"kid": "rs1024"}}, 401),
    ([jwk("es1", y=b64(bytes(32)))], {"header": {"alg": "ES256", "kid": "es1"}}, 401),
    ([{"kty": "RSA", "kid": []}, jwk("rs1")], {}, 200),
    ([jwk("rs1", d="AQAB")], {}, 401),
]


@pytest.mark.parametrize(("keys", "recipe", "status"), KEYS)
async def test_keys_that_may_not_verify_accept_no_token(
    keys: list[dict[str, Any]], recipe: dict[str, Any], status: int
) -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, keys_of(endpoint, clock) as issuer:
        endpoint.publish(*keys)

        assert await outcome(issuer, clock, **recipe) == status


async def test_an_issuer_names_its_keys_in_its_discovery_document() -> None:
    clock = ManualClock()
    async with an_endpoint() as endpoint, an_endpoint() as discovery:
        issuer = discovery.url.removesuffix("keys")
        discovery.body = json.dumps({"issuer": issuer, "jwks_uri": endpoint.url}).encode()
        async with keys_of(endpoint, clock, url=None, issuer=issuer) as keys:
            assert await outcome(keys, clock) == 200
            assert discovery.paths == ["/.well-known/openid-configuration"]
        wrong = [
            {"issuer": "https://evil.example", "jwks_uri": endpoint.url},
            {"issuer": issuer, "jwks_uri": "http://issuer.example/keys"},
            {"issuer": issuer, "jwks_uri": 7},
            {"issuer": issuer},
        ]
        for document in wrong:
            discovery.body = json.dumps(document).encode()
            async with keys_of(endpoint, clock, url=None, issuer=issuer) as keys:
                assert await outcome(keys, clock) == 401
        assert endpoint.requests == 1


def test_keys_are_fetched_over_https_only_unless_from_this_machine() -> None:
    wrong = [
        "http://issuer.example/jwks",
        "http://127.0.0.1.evil.example/jwks",
        "http://localhost@evil.example/jwks",
        "https://user@issuer.example/jwks",
        "ftp://issuer.example/jwks",
        "file:///etc/passwd",
        "https://",
        "https://issuer.example:x/jwks",
        "",
    ]
    for url in wrong:
        with pytest.raises(ValueError, match=r"^expected"):
            JWKSKeys(url)
    for url in ("https://issuer.example/jwks", "http://localhost:1/jwks", "http://[::1]/jwks"):
        JWKSKeys(url)
    with pytest.raises(ValueError, match="not both"):
        JWKSKeys()
