"""The corpus of fetches, each case through real sockets to a hostile server.

Every case runs over own pinned connections; those that are about URLs, names, policies and
redirects run through a custom transport, too. `NOT_HERE` names what cannot run, and why.
"""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest

from fakes.hostile_server import HostileServer, Received, blackhole
from lib.errors import FetchBlocked, ToolError
from lib.tools import ToolContext
from lib.tools.builtin.fetch.address import read
from lib.tools.builtin.fetch.fetcher import SafeFetcher
from lib.tools.builtin.fetch.policy import FetchPolicy
from lib.tools.builtin.fetch.tool import http_fetch_tool

DATA: Final = Path(__file__).parents[4] / "data" / "builtin"
CASES: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in (DATA / "ssrf.jsonl").read_text(encoding="utf-8").splitlines()
]

NOT_HERE: Final[dict[str, str]] = {}
"""Cases that cannot run in these tests, with the reason of each: none."""

OUR_CHOICE: Final = {
    "S548": "429 is an error that says when to try again",
}
"""Cases of level "may" in which we do the other thing, with the reason of each."""

EXTRA: Final = {"Authorization": "Bearer key", "X-Api-Key": "key"}
SHORT_S: Final = 0.4
LONG_S: Final = 600.0
"""For cases in which no time is to run out, on a busy machine either."""

SLOW: Final = {"slow_body", "slow_headers", "flood_1xx", "syn_blackhole"}
CONTEXT: Final = ToolContext(run_id="run", call_id="call", idempotency_key="key")

CERTIFICATES: Final = {
    "wrong_host_cert": "wrong_host_cert.pem",
    "ip_san_only": "ip_san_only.pem",
    "self_signed": "self_signed.pem",
    "expired": "expired.pem",
    "alpn_h2_coalesce": "wrong_host_cert.pem",
}

TEXTS: Final[dict[str, Callable[[str], bool]]] = {
    "gzip_bomb": lambda text: "longer than what was read" in text,
    "deflate_bomb": lambda text: "longer than what was read" in text,
    "br_bomb": lambda text: "longer than what was read" in text,
    "zstd_bomb": lambda text: "longer than what was read" in text,
    "raw_deflate": lambda text: "a deflated page" in text,
    "truncated_gzip": lambda text: "longer than what" in text and "a compressed page" in text,
    "content_length_huge": lambda text: "longer than what was read" in text and "a page" in text,
    "no_content_type_html": lambda text: "title: t" in text and "a page of some words" in text,
    "ctype_params": lambda text: "café" in text,
    "ctype_mismatch": lambda text: "<html><p>a page</p></html>" in text,
    "charset_utf16_bom": lambda text: "a page é" in text,
    "charset_meta": lambda text: "日本語のページ" in text,
    "charset_unknown": lambda text: "a page é" in text,
    "charset_punycode": lambda text: "a page a page" in text,
    "charset_rot13": lambda text: "a page" in text,
    "charset_zip": lambda text: "a page" in text,
    "charset_utf7": lambda text: "+AGE-" in text,
    "charset_utf32": lambda text: "page" in text.replace("\x00", "").replace(" ", ""),
    "charset_bad_bytes": lambda text: "a page caf\ufffd here" in text,
    "split_multibyte": lambda text: "longer than" in text and "\ufffd" not in text,
    "hidden_text": lambda text: "Everybody sees" in text and "secret" not in text,
}
"""What the text of a result must be like, beyond being there."""


@cache
def trust() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=DATA / "tls" / "authority.pem")


class Names:
    """The names of a case; a name may have other addresses when it is looked up again."""

    def __init__(self, hosts: Mapping[str, Any]) -> None:
        self._answers: dict[str, Any] = {
            host: [answers["a"]] if "a" in answers else answers for host, answers in hosts.items()
        }
        self.looked_up: list[str] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        self.looked_up.append(host)
        if host not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "not known to 192.168.7.7")
        if self._answers[host] == "HANG":
            await asyncio.Event().wait()
        answers: list[list[str]] = self._answers[host]
        return answers[min(self.looked_up.count(host), len(answers)) - 1]

    def may_be_dialled(self) -> set[str]:
        lists = [answers for answers in self._answers.values() if answers != "HANG"]
        return {address for answers in lists for answer in answers for address in answer}


class Case:
    """A line of the corpus."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.id: str = case["id"]
        self.kind: str = case["kind"]
        self.url: str = case["url"]
        self.expected: str = case["expected"]
        self.environment: dict[str, str] = case.get("env", {})
        self.outcome: str = case.get("outcome", "")
        self._policy: dict[str, Any] = case.get("policy", {})
        server: dict[str, Any] = case.get("server", {})
        self.scenario: str = server.get("scenario", "")
        self.redirects: dict[str, str] = server.get("redirects", {})
        self.status: int = server.get("status", 302)
        self.names = Names(
            {
                "srv.test": [["93.184.216.34"]],
                "other.test-public.com": [["93.184.216.34"]],
                **case.get("resolver", {}),
            }
        )
        self.slow = self.scenario in SLOW or "HANG" in str(case.get("resolver"))

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0].lower()

    @property
    def policy(self) -> FetchPolicy:
        limit_s = SHORT_S if self.slow else LONG_S
        more: dict[str, Any] = {"timeout_s": limit_s, "connect_timeout_s": limit_s / 2}
        if self.kind == "redirect":
            more |= {"extra": EXTRA, "extra_hosts": (str(urlsplit(self.url).hostname),)}
        return FetchPolicy(**self._policy, **more)

    @property
    def certificate(self) -> Path:
        return DATA / "tls" / CERTIFICATES.get(self.outcome, "good.pem")

    @property
    def verify(self) -> ssl.SSLContext | bool:
        return trust() if self.kind in {"redirect", "tls"} else False


def check_refusal(error: ToolError, case: Case) -> None:
    """Hold that a refusal shows nothing of the internal network."""
    secrets = {text for text in case.names.may_be_dialled() if text not in case.url}
    secrets |= {"192.168.7.7", "Errno"}
    if case.kind == "message":
        secrets |= {"10.1.2.3", "fd00", "/8"}
    shown = f"{error} {error!r} {vars(error)}"
    assert not [secret for secret in secrets if secret in shown]
    assert error.__cause__ is None
    assert error.__context__ is None


def check_hops(requests: Sequence[Received], case: Case) -> None:
    """Hold that extra headers stay with the first origin, by https, and cookies nowhere."""
    left = False
    for request in requests:
        url, first = urlsplit(request.url), urlsplit(case.url)
        left = left or (url.scheme, url.netloc) != (first.scheme, first.netloc)
        gets = url.scheme == "https" and not left
        assert (request.headers.get("authorization") is not None) == gets
        assert (request.headers.get("x-api-key") is not None) == gets
        assert "cookie" not in request.headers
        assert request.server_name == (url.hostname if url.scheme == "https" else None)


def check_dialled(dialled: Sequence[tuple[str, int]], case: Case, outcome: str) -> None:
    """Hold that only addresses that the resolver gave were dialled, and none before a refusal."""
    allowed = {read(text) for text in case.names.may_be_dialled()}
    if outcome == "allowed":
        allowed.add(read(str(urlsplit(case.url).hostname)))
    assert {read(address) for address, _ in dialled} <= allowed
    if case.kind in {"url", "dns", "policy", "message"} and outcome == "blocked":
        assert not dialled


@asynccontextmanager
async def named(line: Mapping[str, Any], failed: list[str]) -> AsyncGenerator[Case]:
    """Note the failure of a case by its id, so that the next one runs."""
    try:
        yield Case(line)
    except Exception as error:  # noqa: BLE001 - every failure is named
        failed.append(f"{line['id']}: {error!r}")


async def test_every_case_has_its_expected_outcome_over_pinned_connections(
    internet: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failed: list[str] = []
    for line in CASES:
        async with named(line, failed) as case:
            caplog.clear()
            internet.dialled.clear()
            with monkeypatch.context() as patched, ExitStack() as silent:
                for name, value in case.environment.items():
                    patched.setenv(name, value)
                if case.scenario == "syn_blackhole":
                    internet.silent = silent.enter_context(blackhole())
                    silent.callback(setattr, internet, "silent", None)
                await check_pinned(case, internet, caplog)

    assert not failed
    assert not NOT_HERE


async def check_pinned(case: Case, internet: Any, caplog: pytest.LogCaptureFixture) -> None:
    internet.secure = None if case.kind == "redirect" else case.scheme == "https"
    fetcher = SafeFetcher(case.policy, resolver=case.names, verify=case.verify)
    tool = http_fetch_tool(fetcher=fetcher)

    async def main() -> str:
        server = HostileServer(
            redirects=case.redirects, status=case.status, certificate=case.certificate
        )
        async with server as internet.server, fetcher:
            if case.outcome == "alpn_h2_coalesce":
                await fetcher.fetch("https://other.test-public.com/")
            return await tool.call({"url": case.url}, CONTEXT)

    try:
        text, outcome = await main(), "allowed"
    except ToolError as error:
        text, outcome = "", "blocked"
        check_refusal(error, case)

    assert outcome == case.expected or case.id in OUR_CHOICE
    assert outcome == "blocked" or TEXTS.get(case.scenario, bool)(text)
    check_dialled(internet.dialled, case, outcome)
    check_hops(internet.server.requests if case.kind == "redirect" else (), case)
    assert not [secret for secret in case.names.may_be_dialled() if secret in caplog.text]


async def test_every_case_has_its_expected_outcome_through_a_custom_transport() -> None:
    failed: list[str] = []
    kinds = {"url", "dns", "policy", "message", "redirect"}
    lines = [line for line in CASES if line["kind"] in kinds]
    for line in lines:
        if line["id"] != "S480":  # the transport verifies TLS: see test_custom_transport.py
            async with named(line, failed) as case:
                await check_through_transport(case)

    assert not failed
    assert len(lines) == 381


async def check_through_transport(case: Case) -> None:
    seen: list[httpx2.Request] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        path = request.url.raw_path.decode()
        location = case.redirects.get(f"{request.url.scheme}://{request.headers['host']}{path}")
        if location is None:
            return httpx2.Response(200, text="a page")
        return httpx2.Response(case.status, headers=[(b"Location", location.encode())])

    transport = httpx2.MockTransport(serve)
    fetcher = SafeFetcher(case.policy, resolver=case.names, transport=transport)
    try:
        await fetcher.fetch(case.url)
        outcome = "allowed"
    except ToolError as error:
        outcome = "blocked"
        check_refusal(error, case)

    assert outcome == case.expected
    for request in seen:
        literal = request.url.host == request.headers["host"].strip("[]")
        assert literal or request.url.host in case.names.may_be_dialled()
        assert literal or request.extensions["sni_hostname"] in case.names.looked_up
        assert request.headers["connection"] == "close"


def test_what_the_corpus_leaves_to_us_is_of_level_may() -> None:
    levels = {line["id"]: line["level"] for line in CASES}

    assert all(levels[name] == "may" for name in OUR_CHOICE)


async def test_refusals_of_literal_addresses_do_not_repeat_them() -> None:
    with pytest.raises(FetchBlocked) as caught:
        await SafeFetcher().fetch("http://10.1.2.3/")

    assert caught.value.host is None
    assert str(caught.value) == "fetching this URL is blocked: address not public"
