"""`SafeFetcher`: gets a URL, and reaches nothing that its policy does not name.

The connections of a caller's transport, of httpx2 or of the older httpx, are not ours, so there
the URL itself is rewritten to the checked address. The name goes into the Host header and into
`sni_hostname`, by which TLS is verified. Such a connection is used once: a pool that knows it by
its address could use it for another name.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from lib.content.hygiene import fenced
from lib.errors import FetchBlocked, ToolError, ToolErrorCode
from lib.tools.builtin.fetch.address import Address, text
from lib.tools.builtin.fetch.answer import Answer, Headers, Sender
from lib.tools.builtin.fetch.body import (
    Body,
    decoders_for,
    looks_binary,
    read_body,
    sniffed_type,
    whole_letters,
)
from lib.tools.builtin.fetch.bounded_stream import TooMuchSentError
from lib.tools.builtin.fetch.fair import LoopTurns, party_of
from lib.tools.builtin.fetch.network import MAX_CONNECTIONS, Network
from lib.tools.builtin.fetch.policy import FetchPolicy, Rules, takes
from lib.tools.builtin.fetch.resolver import Addresses, LookupFailedError, Resolve, Resolver
from lib.tools.builtin.fetch.url import Target, join, parse

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport

log: Final = logging.getLogger(__name__)

MAX_RETRY_AFTER_S: Final = 86_400
MAX_FETCHES_PER_PARTY: Final = 8
"""How many requests to the hosts of one domain are under way at once, in one event loop."""

MAX_FENCED_URL_CHARS: Final = 1_000
PARTIAL: Final = 206

_SECONDS: Final = re.compile("[0-9]{1,6}", re.ASCII)  # `int` refuses thousands of digits
_ACCEPT: Final = (
    b"text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, application/json;q=0.8, "
    b"text/plain;q=0.8, */*;q=0.1"
)
_STATUS_CODES: Final[dict[int, ToolErrorCode]] = {
    401: "denied",
    403: "denied",
    404: "not_found",
    407: "denied",
    410: "not_found",
    429: "rate_limited",
    451: "denied",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A fetched page.

    Attributes:
        url: where it came from, after redirects.
        requested_url: what the caller passed.
        status: of the last answer, 200 to 299.
        content_type: media type in lower case; sniffed where the server sent none.
        charset: what the server calls it, in lower case; to be believed only if well known.
        body: decompressed, at most `max_bytes` of the policy.
        truncated: whether the body was cut off, ended before its end, or is a part (206).
        hops: the URLs that redirected, in their order.
    """

    url: str
    requested_url: str
    status: int
    content_type: str
    charset: str | None
    body: bytes
    truncated: bool
    hops: tuple[str, ...] = ()


class SafeFetcher:
    """Fetches URLs for a caller that may have been tricked into wrong ones, such as a model.

    Every URL, also one that a redirect names, is read by a strict grammar and held against the
    policy. All addresses of its host must be public. The connection is made to one of these
    addresses, while TLS, SNI and Host stay the name's. The environment (proxies, netrc, certificate
    files) is ignored, no cookie is kept, no credential is sent but what `extra` holds. One deadline
    is over everything. Hosts of one domain get few requests at once; others wait, also for their
    deadline. It may be used from several event loops.
    """

    def __init__(
        self,
        policy: FetchPolicy | None = None,
        *,
        resolver: Resolver | Resolve | None = None,
        transport: AsyncBaseTransport | None = None,
        verify: ssl.SSLContext | bool = True,
        proxy: str | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            policy: what may be reached, by default every public host.
            resolver: looks up names: a function of (host, port) or (host), async or one that blocks
                (it then runs in a thread), or an object with such a method `resolve`.
            transport: an httpx2 (or httpx) transport to ask through, which is closed with this. It
                gets URLs with the checked address in place of the name, which stands in the Host
                header and in the extension `sni_hostname`, and never keeps a connection. It must
                not use a proxy or HTTP/2.
            verify: how certificates are checked: True is by those of the system, False not at all.
            proxy: URL of an HTTP proxy that makes all connections. Then names are looked up, and
                addresses checked, by the proxy: it must refuse private ones itself. URLs and hosts
                are still held against the policy.

        Raises:
            TypeError: the policy is none, the resolver has no such shape, the proxy is no str.
            ValueError: `transport` and `proxy` are both given, or the proxy's URL is not valid.
        """
        if policy is not None and not isinstance(policy, FetchPolicy):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without types
            raise TypeError(f"policy is a FetchPolicy, not {type(policy).__name__}")
        if transport is not None and proxy is not None:
            raise ValueError("give transport or proxy, not both")
        self.policy: FetchPolicy = FetchPolicy() if policy is None else policy
        self._rules = Rules(self.policy)
        addresses = Addresses(self._rules, resolver)
        self._sender: Sender = (
            Network(addresses, verify=verify, proxy=proxy, max_bytes=self.policy.max_bytes)
            if transport is None
            else CustomTransport(transport, addresses)
        )
        self._turns = LoopTurns(MAX_FETCHES_PER_PARTY, MAX_CONNECTIONS)
        self._headers = [
            (b"User-Agent", self.policy.user_agent.encode("ascii")),
            (b"Accept-Encoding", b"gzip, deflate"),
        ]
        self._extra = [
            (name.encode("ascii"), value.encode("ascii"))
            for name, value in self.policy.extra.items()
        ]

    async def fetch(self, url: str, *, may_visit: Callable[[str], bool] | None = None) -> Page:
        """Get what is at a URL, following redirects.

        Args:
            url: http or https, complete.
            may_visit: called with each host that a redirect leads to and that is not the first one.

        Returns:
            The page, if the server answered with success.

        Raises:
            FetchBlocked: the policy forbids it, or something that the server said.
            ToolError: it could not be fetched: "timeout", "unavailable", "not_found", "denied",
                "rate_limited", "too_large" or "failed".
        """
        try:
            async with asyncio.timeout(self.policy.timeout_s):
                return await self._follow(url, may_visit)
        except TimeoutError:
            message = f"no complete answer within {self.policy.timeout_s:g} s"
            fault = ToolError("timeout", message)
        except ToolError as error:
            fault = error
        fault.__cause__ = fault.__context__ = None  # which may hold an address
        raise fault

    async def aclose(self) -> None:
        """Close the connections of this event loop; another fetch opens new ones."""
        await self._sender.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _follow(self, url: str, may_visit: Callable[[str], bool] | None) -> Page:
        first = target = parse(url)
        same_origin = True
        hops: list[str] = []
        while True:
            self._rules.check(target)
            same_origin = same_origin and target.origin == first.origin
            with_extra = same_origin and self._rules.gets_extra(target)
            async with self._answer(target, with_extra=with_extra) as answer:
                location = answer.location
                if location is None:
                    return await self._page(answer, url, target, tuple(hops))
            if len(hops) == self.policy.max_redirects:
                raise FetchBlocked("too many redirects", host=first.name)
            hops.append(target.url)
            target = self._redirected(target, location)
            if target.url == hops[-1]:
                raise FetchBlocked("a redirect to the same URL", host=first.name)
            if may_visit and target.host != first.host and not may_visit(target.host):
                raise FetchBlocked(_needs_approval(target), host=first.name)

    def _redirected(self, target: Target, location: str) -> Target:
        following = join(target, location)
        if target.scheme == "https" and following.scheme == "http":
            raise FetchBlocked("a redirect from https to http", redirected=True)
        return following

    @asynccontextmanager
    async def _answer(self, target: Target, *, with_extra: bool) -> AsyncGenerator[Answer]:
        """Ask, and close the answer afterwards; errors of the network become ours."""
        headers = [*self._headers, *(self._extra if with_extra else ())]
        if not any(name.lower() == b"accept" for name, _ in headers):
            headers.append((b"Accept", _ACCEPT))
        try:
            async with self._turns.here().turn(party_of(target.host)):
                answer = await self._sender.ask(
                    target, headers, connect_timeout_s=self.policy.connect_timeout_s
                )
                try:
                    answer.check()
                    yield answer
                finally:
                    await answer.aclose()
        except FetchBlocked as error:
            fault = _blocked(error.rule, target)
        except LookupFailedError as error:
            host = "that the server redirected to" if target.redirected else repr(target.host)
            fault = ToolError(error.code, f"the host {host} {error.message}")
        except ToolError:
            raise
        except self._sender.failures as error:
            log.debug("fetching from %s failed: %r", target.host, error)
            fault = _named(error, target)
        else:
            return
        raise fault

    async def _page(
        self, answer: Answer, requested_url: str, target: Target, hops: tuple[str, ...]
    ) -> Page:
        _check_status(answer)
        media_type, charset = answer.content_type
        if media_type and not takes(self.policy.content_types, media_type):
            raise _blocked(f"content of {known_type(media_type)} is not read", target)
        body = await self._body(answer)
        declared, media_type = bool(media_type), media_type or sniffed_type(body.content)
        binary = _is_text(media_type) and looks_binary(body.content, charset, declared=declared)
        if binary or not takes(self.policy.content_types, media_type):
            raise _blocked("the content is binary or of a type not read", target)
        truncated = body.truncated or answer.status == PARTIAL  # which was not requested
        content = whole_letters(body.content, charset) if truncated else body.content
        return Page(
            url=target.url,
            requested_url=requested_url,
            status=answer.status,
            content_type=media_type,
            charset=charset,
            body=content,
            truncated=truncated,
            hops=hops,
        )

    async def _body(self, answer: Answer) -> Body:
        decoders = decoders_for(answer.lines(b"content-encoding"))
        async with aclosing(answer.chunks()) as chunks:
            return await read_body(
                chunks, decoders, max_bytes=self.policy.max_bytes, ended_early=_ended_early
            )


def _check_status(answer: Answer) -> None:
    """Pass an answer that says success."""
    status = answer.status
    if status < 300:  # noqa: PLR2004 - success
        return
    code: ToolErrorCode = "unavailable" if status >= 500 else "failed"  # noqa: PLR2004 - HTTP
    later = [int(value) for value in answer.values(b"retry-after") if _SECONDS.fullmatch(value)]
    hint = f": try again in {later[0]} s" if later and later[0] <= MAX_RETRY_AFTER_S else ""
    raise ToolError(_STATUS_CODES.get(status, code), f"the server answered {status}{hint}")


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(("+xml", "+json", "/xml", "/json"))


def _ended_early(error: Exception) -> bool:
    """Return True if a body was cut: by us, or by who closed the connection, as h11 words it."""
    if isinstance(error, TooMuchSentError):
        return True
    return "peer closed connection without sending complete message body" in str(error)


def _blocked(rule: str, target: Target) -> FetchBlocked:
    return FetchBlocked(rule, host=target.name, redirected=target.redirected)


def _needs_approval(target: Target) -> str:
    where = fenced(target.url[:MAX_FENCED_URL_CHARS], source="the server")
    return f"a redirect to a host that needs approval: it may be requested by its own URL\n{where}"


def _named(error: Exception, target: Target) -> ToolError:
    """Return what a failure of the network is to a model; of its text, nothing is kept."""
    name = type(error).__name__
    where = "the server" if target.name is None else repr(target.name)
    if target.redirected:
        where = "the server that was redirected to"
    if isinstance(error, TooMuchSentError):
        return ToolError("too_large", f"{where} sends too much before its answer")
    if "Timeout" in name:
        return ToolError("timeout", f"{where} did not take the connection in time")
    if "ProtocolError" in name or "DecodingError" in name:
        return ToolError("failed", f"{where} does not answer in valid HTTP")
    if _has_cause(error, ssl.SSLError):
        return ToolError("failed", f"the certificate of {where} could not be verified")
    return ToolError("unavailable", f"the connection to {where} failed")


def _has_cause(error: BaseException | None, kind: type[Exception]) -> bool:
    seen: list[Any] = []
    while error is not None and error not in seen:
        if isinstance(error, kind):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


_NAMED: Final = frozenset(
    {
        *("application/pdf", "application/zip", "application/gzip", "application/octet-stream"),
        *("application/javascript", "application/json", "application/xml", "application/wasm"),
        *("application/msword", "application/rtf", "application/epub+zip", "application/rss+xml"),
        *("application/vnd.ms-excel", "application/vnd.ms-powerpoint", "application/x-tar"),
        *("application/vnd.openxmlformats-officedocument.wordprocessingml.document",),
        *("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",),
        *("application/vnd.openxmlformats-officedocument.presentationml.presentation",),
        *("audio/mpeg", "audio/ogg", "audio/wav", "video/mp4", "video/webm", "font/woff2"),
        *("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/svg+xml"),
        *("text/html", "text/plain", "text/css", "text/csv", "text/javascript", "text/markdown"),
        *("text/xml", "text/calendar", "text/event-stream", "multipart/form-data"),
    }
)
# Source: the IANA registry of media types (2026-11), its top-level types.
_KINDS: Final = frozenset(
    {
        *("application", "audio", "example", "font", "haptics", "image", "message", "model"),
        *("multipart", "text", "video"),
    }
)


def known_type(media_type: str) -> str:
    """Return what to call a media type: its name if it is well known, else its kind, else none."""
    if media_type in _NAMED:
        return f"type {media_type}"
    kind = media_type.partition("/")[0]
    return f"a type of {kind}" if kind in _KINDS else "a type of no known kind"


class CustomTransport:
    """Asks through a transport."""

    def __init__(self, transport: Any, addresses: Addresses) -> None:
        """Take the transport; it is closed with this."""
        self._transport, self._addresses = transport, addresses
        self._package: Any = _package(transport)
        self.failures: tuple[type[Exception], ...] = (Exception,)  # it raises what it likes

    async def ask(self, target: Target, headers: Headers, *, connect_timeout_s: float) -> Answer:
        """Send a GET request to the first address that takes it.

        Raises:
            FetchBlocked: an address of the host may not be reached.
            LookupFailedError: the host could not be looked up.
        """
        found = await self._addresses.of(target.host, target.port, timeout_s=connect_timeout_s)
        *others, last = found
        for address in others:
            try:
                return await self._ask(target, address, headers, connect_timeout_s)
            except (self._package.ConnectError, self._package.ConnectTimeout):
                continue
        return await self._ask(target, last, headers, connect_timeout_s)

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    async def _ask(
        self, target: Target, address: Address, headers: Headers, connect_timeout_s: float
    ) -> Answer:
        pinned = Target(target.scheme, text(address), target.port, target.path, address)
        extensions: dict[str, Any] = {
            "timeout": {"connect": connect_timeout_s, "read": None, "write": None, "pool": None}
        }
        if target.address is None:
            extensions["sni_hostname"] = target.host
        request = self._package.Request(
            "GET",
            pinned.url,
            headers=[
                (b"Host", target.authority.encode("ascii")),
                *headers,
                (b"Connection", b"close"),
            ],
            extensions=extensions,
        )
        response = await self._transport.handle_async_request(request)
        raw = response.headers.raw
        return Answer(response.status_code, raw, response.stream, response.aclose)


def _package(transport: Any) -> Any:
    """Return the package that the transport belongs to: httpx2, or the older httpx."""
    for base in type(transport).__mro__:
        name = base.__module__.partition(".")[0]
        if name in {"httpx", "httpx2"}:
            return importlib.import_module(name)
    return importlib.import_module("httpx2")
