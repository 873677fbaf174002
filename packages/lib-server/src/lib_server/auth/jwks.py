"""The public keys of an issuer, fetched over HTTPS and kept: never a request per token.

A fetch is one for all that wait for it, and the next one starts `cooldown_s` after the last
attempt, whatever became of that: neither tokens with invented key ids nor an issuer that is down
make a flood. Keys that were fetched are used for `max_stale_s` while the issuer is down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import RemoteError
from lib.http.client import HTTPClient
from lib_server.auth.jwk import KeySet, UnusableKey, VerifyingKey, parse_object, read_key_set
from lib_server.auth.principal import AuthenticationUnavailable

TIMEOUT_S: Final = 5.0
MAX_BYTES: Final = 256 * 1024

_OK: Final = 200
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_REFRESH_AT: Final = 0.8
_UNKNOWN_KIDS: Final = 256
_log = logging.getLogger(__name__)


class JWKSKeys:
    """The keys of a JSON Web Key Set at an URL, or of an OpenID issuer."""

    def __init__(
        self,
        url: str | None = None,
        *,
        issuer: str | None = None,
        max_age_s: float = 600.0,
        cooldown_s: float = 30.0,
        max_stale_s: float = 86_400.0,
        timeout_s: float = TIMEOUT_S,
        http: Any = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; the first token makes the first request.

        Args:
            url: of the key set; `https`, or `http` on loopback.
            issuer: instead of an URL, an OpenID issuer, whose discovery document names the URL.
            max_age_s: how old keys may be that a token is checked with; a key that the issuer
                removes is refused after that. At 80 % of it, a fetch starts in the background.
            cooldown_s: from one attempt to fetch keys to the next.
            max_stale_s: how old keys may be while no fetch succeeds.
            timeout_s: for a whole fetch.
            http: an `httpx2.AsyncClient` to fetch with; it stays the caller's.
            clock: for ages.

        Raises:
            ValueError: keys may not be fetched from the URL; or none, or two, are named.
        """
        if (url is None) == (issuer is None):
            raise ValueError("expected the url of a key set, or an issuer, and not both")
        self._url, self._issuer = url, issuer
        self._on_loopback: bool = _check_url(url or issuer or "")
        self._max_age_s, self._cooldown_s = max_age_s, cooldown_s
        self._max_stale_s = max_stale_s
        self._clock = clock
        self._http = HTTPClient(
            http=http,
            timeout_s=timeout_s,
            max_bytes=MAX_BYTES,
            failure=RemoteError,
            unreadable=RemoteError,
            environment_proxy=not self._on_loopback,
        )
        self._keys: KeySet | None = None
        self._fetched_at = self._attempted_at = float("-inf")
        self._reachable = True
        self._fetching: asyncio.Task[None] | None = None
        self._unknown = OrderedDict[str, float]()
        self._attempts = Counter[str]()

    @property
    def attempts(self) -> Mapping[str, int]:
        """The number of fetches by outcome: `ok`, `refused`, `unreachable`."""
        return dict(self._attempts)

    async def find(self, kid: str, algorithm: str) -> VerifyingKey | None:
        """Return the only key of this name that may verify this algorithm, or None.

        Raises:
            AuthenticationUnavailable: there are no keys, since the issuer cannot be reached.
        """
        age_s = self._clock.monotonic() - self._fetched_at
        if age_s >= self._max_age_s:
            await self._refresh()
        elif age_s >= self._max_age_s * _REFRESH_AT:
            self._start_fetch()
        keys = self._current()
        if kid in keys.keys or self._is_unknown(kid):
            return keys.find(kid, algorithm)
        if await self._refresh():
            keys = self._current()
            if kid not in keys.keys:
                self._note_unknown(kid)
        return keys.find(kid, algorithm)

    async def aclose(self) -> None:
        """End a fetch that is under way, and close the connections."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        await self._http.aclose()

    def _current(self) -> KeySet:
        """Return the keys that may be used now; none if the issuer publishes none."""
        too_old = self._clock.monotonic() - self._fetched_at > self._max_stale_s
        if self._keys is not None and not too_old:
            return self._keys
        if not self._reachable:
            raise AuthenticationUnavailable(
                "the issuer's keys cannot be fetched", retry_after_s=self._cooldown_s
            )
        return KeySet({}, {})

    async def _refresh(self) -> bool:
        """Wait for a fetch; return False if none is due yet."""
        fetching = self._start_fetch()
        if fetching is None:
            return False
        await asyncio.wait([fetching])  # a caller that is cancelled does not end it
        return True

    def _start_fetch(self) -> asyncio.Task[None] | None:
        """Return the fetch that is under way, a new one if it is due."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        now = self._clock.monotonic()
        if now - self._attempted_at < self._cooldown_s:
            return None
        self._attempted_at = now
        self._fetching = asyncio.create_task(self._fetch(), name="lib-server-jwks")
        return self._fetching

    async def _fetch(self) -> None:
        outcome = "refused"
        try:
            url = self._url or await self._discovered()
            keys = read_key_set(await self._get(url))
        except RemoteError as error:
            self._reachable = error.status is not None or not error.retryable
            outcome = "refused" if self._reachable else "unreachable"
            _log.warning("the issuer's keys were not fetched: %s", error)
        except UnusableKey as error:
            self._reachable = True
            _log.warning("the issuer's keys were not fetched: %s", error.reason)
        else:
            outcome, self._reachable = "ok", True
            self._keys, self._fetched_at = keys, self._clock.monotonic()
            for reason, count in keys.left_out.items():
                _log.warning("left out %d of the issuer's keys: %s", count, reason)
        finally:
            self._attempts[outcome] += 1

    async def _get(self, url: str) -> bytes:
        async with self._http.request("GET", url, _HEADERS) as answer:
            if answer.status != _OK:
                raise RemoteError(f"the server answered {answer.status}", status=answer.status)
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise RemoteError("the server's answer is compressed", status=answer.status)
            return await answer.read()

    async def _discovered(self) -> str:
        """Return the URL of the issuer's keys.

        Source: OpenID Connect Discovery 1.0, 4.
        """
        issuer = self._issuer or ""
        try:
            document = parse_object(await self._get(issuer.rstrip("/") + _WELL_KNOWN))
        except ValueError:
            raise UnusableKey("not a discovery document") from None
        url = document.get("jwks_uri")
        if document.get("issuer") != issuer:
            raise UnusableKey("the discovery document is of another issuer")
        try:
            on_loopback = _check_url(url if isinstance(url, str) else "")
        except ValueError:
            raise UnusableKey("the discovery document names no https URL of keys") from None
        if on_loopback and not self._on_loopback:
            raise UnusableKey("the discovery document names keys on this machine")
        return str(url)

    def _is_unknown(self, kid: str) -> bool:
        noted_at = self._unknown.get(kid)
        return noted_at is not None and self._clock.monotonic() - noted_at < 2 * self._cooldown_s

    def _note_unknown(self, kid: str) -> None:
        self._unknown.pop(kid, None)
        self._unknown[kid] = self._clock.monotonic()
        if len(self._unknown) > _UNKNOWN_KIDS:
            self._unknown.popitem(last=False)


def _check_url(url: str) -> bool:
    """Return True for an URL on loopback.

    Raises:
        ValueError: it is not an https URL, nor an http URL on loopback.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("expected an https URL of the issuer's keys") from None
    on_loopback = host == "localhost"
    with suppress(ValueError):
        on_loopback = on_loopback or ip_address(host).is_loopback
    schemes = {"https", "http"} if on_loopback else {"https"}
    if parts.scheme not in schemes or not host or parts.username or parts.fragment:
        raise ValueError("expected an https URL of the issuer's keys, http only on loopback")
    return on_loopback
