"""JSON Web Tokens of an issuer: strict checks before and after the signature is verified.

PyJWT verifies the signature and nothing else. A token is refused

1. before: longer than 8 KiB; not three segments of canonical base64url; a header with a member that
   is not allowed or stands twice; an algorithm that is not on the list, or not its key's;
2. after: a claim that stands twice, is missing, or has another type than its own; another issuer or
   audience; a time that has passed or has not come.

Source: RFC 7515, RFC 7519, RFC 8725.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol, cast

import jwt

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.events import Marks
from lib_server.auth.jwk import (
    ALGORITHMS,
    MAX_KID_CHARS,
    KeySet,
    VerifyingKey,
    decode_base64url,
    parse_object,
    read_key_set,
)
from lib_server.auth.jwks import JWKSKeys
from lib_server.auth.principal import (
    SCOPES,
    Principal,
    Scope,
    Unauthenticated,
    bearer_token,
    is_tenant,
    is_user,
)

DEFAULT_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
MAX_TOKEN_CHARS: Final = 8 * 1024
MAX_LEEWAY_S: Final = 60.0

_SEGMENTS: Final = 3
_HEADERS: Final = frozenset({"alg", "kid", "typ"})
_NEVER: Final = frozenset({"b64", "crit", "cty", "enc", "jku", "jwk", "x5c", "x5u", "zip"})
_TYPES: Final = frozenset({"jwt", "at+jwt"})
_MAX_TIME: Final = 2**53


class Keys(Protocol):
    """The public keys of an issuer."""

    async def find(self, kid: str, algorithm: str) -> VerifyingKey | None:
        """Return the only key of this name that may verify this algorithm, or None.

        Raises:
            AuthenticationUnavailable: there are no keys, since the issuer cannot be reached.
        """
        ...


class StaticKeys:
    """Keys from a document that never changes, such as a file beside the configuration."""

    def __init__(self, key_set: str | bytes) -> None:
        """Read a JSON Web Key Set.

        Raises:
            ValueError: it is none, or a key of it cannot be used.
        """
        try:
            self._keys: KeySet = read_key_set(key_set)
        except ValueError as error:
            raise ValueError(f"expected a JSON Web Key Set: {error}") from None
        if self._keys.left_out or not self._keys.keys:
            reasons = ", ".join(sorted(self._keys.left_out)) or "there is none"
            raise ValueError(f"expected public keys for signatures: {reasons}")

    async def find(self, kid: str, algorithm: str) -> VerifyingKey | None:
        """Return the only key of this name that may verify this algorithm, or None."""
        return self._keys.find(kid, algorithm)


class JWTAuthenticator:
    """Authenticates callers by JSON Web Tokens that one issuer signed for this server."""

    def __init__(
        self,
        keys: Keys,
        *,
        issuer: str,
        audience: str | Collection[str],
        algorithms: Collection[str] = DEFAULT_ALGORITHMS,
        tenant_claim: str | None = "tenant",
        user_claim: str = "sub",
        scope_claim: str = "scope",
        scopes: Mapping[str, Scope] | None = None,
        metadata_claims: Collection[str] = (),
        typ: str | None = None,
        ignored_headers: Collection[str] = (),
        leeway_s: float = 30.0,
        max_lifetime_s: float = 86_400.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; nothing is fetched yet.

        Args:
            keys: of the issuer: `JWKSKeys`, or `StaticKeys`.
            issuer: exactly what the claim `iss` has to be.
            audience: the claim `aud` has to be one of these, or a list with one of them.
            algorithms: the signatures that are allowed; only asymmetric ones can be.
            tenant_claim: the claim with the tenant, which each token has to have; None where
                callers have no tenant.
            user_claim: the claim with the user.
            scope_claim: the claim with the scopes, a list or a text with spaces between them.
            scopes: the server's scope for each scope of the issuer; None for the same names. All
                others grant nothing.
            metadata_claims: claims that become the principal's metadata.
            typ: what the header `typ` has to be, such as `at+jwt`; None for that, `JWT` or none.
            ignored_headers: header members that an issuer adds and that mean nothing here, such
                as `x5t`.
            leeway_s: how far the issuer's clock may be off, up to a minute.
            max_lifetime_s: how long a token may live, from `iat` where it has one, else from now.
            clock: for the times of tokens.

        Raises:
            ValueError: an argument is not as it has to be; the message says which.
        """
        self._keys = keys
        self._issuer: str = issuer
        self._audiences: frozenset[str] = frozenset(
            [audience] if isinstance(audience, str) else audience
        )
        self._algorithms: frozenset[str] = frozenset(algorithms)
        self._tenant_claim, self._user_claim = tenant_claim, user_claim
        self._scope_claim = scope_claim
        self._scopes: Mapping[str, Scope] = (
            {scope: scope for scope in SCOPES} if scopes is None else dict(scopes)
        )
        self._metadata_claims: tuple[str, ...] = tuple(metadata_claims)
        self._types: frozenset[str] = _TYPES if typ is None else frozenset({_media_type(typ)})
        self._needs_typ: bool = typ is not None
        self._headers: frozenset[str] = _HEADERS | frozenset(ignored_headers)
        self._leeway_s, self._max_lifetime_s = leeway_s, max_lifetime_s
        self._clock = clock
        self._check_arguments()

    def _check_arguments(self) -> None:
        if not self._issuer or not self._audiences or "" in self._audiences:
            raise ValueError("expected an issuer and an audience, got an empty one")
        if not self._algorithms or not self._algorithms <= ALGORITHMS:
            raise ValueError(f"expected algorithms of {sorted(ALGORITHMS)}")
        if not SCOPES.issuperset(self._scopes.values()):
            raise ValueError(f"expected scopes of {sorted(SCOPES)}")
        if not _NEVER.isdisjoint(self._headers):
            raise ValueError(f"the headers {sorted(_NEVER)} cannot be ignored")
        if not 0 <= self._leeway_s <= MAX_LEEWAY_S:
            raise ValueError(f"expected leeway_s from 0 to {MAX_LEEWAY_S:g}")
        if not self._max_lifetime_s > 0:
            raise ValueError("expected max_lifetime_s above 0")

    def __repr__(self) -> str:
        """Return the issuer and the audience."""
        return f"JWTAuthenticator(issuer={self._issuer!r}, audience={sorted(self._audiences)})"

    def key_fetches(self) -> Mapping[str, int]:
        """Return how many fetches of its keys there were, by their outcome."""
        attempts: Mapping[str, int] = getattr(self._keys, "attempts", {})
        return attempts

    def issuers(self) -> Mapping[str, Collection[str]]:
        """Return the scopes that may be requested of the issuer."""
        return {self._issuer: frozenset(self._scopes)}

    def recognizes(self, token: str) -> bool:
        """Return True if the token has two dots, as no API key has."""
        return token.count(".") == _SEGMENTS - 1

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the caller that the issuer vouches for; see `Authenticator`."""
        token = bearer_token(authorization)
        claims = parse_claims(await self.verified_payload(token))
        return self._principal(claims)

    def attach(self, store: Marks) -> None:
        """Do without the server's store."""

    async def aclose(self) -> None:
        """Close the connections to the issuer."""
        if isinstance(self._keys, JWKSKeys):
            await self._keys.aclose()

    async def verified_payload(self, token: str) -> bytes:
        """Return the payload of a token whose header is allowed and whose signature is valid.

        Raises:
            Unauthenticated: it is not.
        """
        header = self._header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise Unauthenticated("algorithm")
        if not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID_CHARS:
            raise Unauthenticated("kid")
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise Unauthenticated("key")
        try:
            return cast(
                bytes, jwt.PyJWS([algorithm]).decode(token, key.public, algorithms=[algorithm])
            )
        except Exception:  # noqa: BLE001 - whatever a library makes of hostile bytes is a refusal
            raise Unauthenticated("signature") from None

    def _header(self, token: str) -> dict[str, Any]:
        """Return the header of a token of the right form."""
        if len(token) > MAX_TOKEN_CHARS:
            raise Unauthenticated("size")
        segments = token.split(".")
        if len(segments) != _SEGMENTS or not all(segments):
            raise Unauthenticated("format")
        try:
            contents = [decode_base64url(segment) for segment in segments]
            header = parse_object(contents[0])
        except ValueError:
            raise Unauthenticated("format") from None
        if not header.keys() <= self._headers:
            raise Unauthenticated("header_member")
        typ = header.get("typ")
        if ("typ" in header or self._needs_typ) and (
            not isinstance(typ, str) or _media_type(typ) not in self._types
        ):
            raise Unauthenticated("typ")
        return header

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        if claims.get("iss") != self._issuer:
            raise Unauthenticated("issuer")
        if not self._is_audience(claims.get("aud")):
            raise Unauthenticated("audience")
        expires_at = self._check_times(claims)
        subject, user = claims.get("sub"), claims.get(self._user_claim)
        if not is_user(subject) or not is_user(user):
            raise Unauthenticated("subject")
        tenant = None if self._tenant_claim is None else claims.get(self._tenant_claim)
        if self._tenant_claim is not None and not is_tenant(tenant):
            raise Unauthenticated("tenant")
        owner = hashlib.sha256(f"{self._issuer}\n{subject}".encode()).hexdigest()
        return Principal(
            key_id=f"jwt_{owner[:16]}",
            tenant=tenant,
            user=user,
            scopes=self._granted(claims.get(self._scope_claim, "")),
            metadata=self._metadata(claims),
            expires_at=expires_at,
        )

    def _is_audience(self, claim: Any) -> bool:
        values: list[Any] = cast(list[Any], claim) if isinstance(claim, list) else [claim]
        if not all(isinstance(value, str) for value in values):
            return False
        return not self._audiences.isdisjoint(values)

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """Return when the token expires."""
        now = self._clock.now().timestamp()
        expires_at = _time(claims.get("exp"))
        issued_at = _time(claims["iat"]) if "iat" in claims else None
        if expires_at + self._leeway_s <= now:
            raise Unauthenticated("expired")
        if "nbf" in claims and _time(claims["nbf"]) - self._leeway_s > now:
            raise Unauthenticated("not_yet")
        if issued_at is not None and issued_at - self._leeway_s > now:
            raise Unauthenticated("not_yet")
        if expires_at - (now if issued_at is None else issued_at) > self._max_lifetime_s:
            raise Unauthenticated("lifetime")
        return expires_at

    def _metadata(self, claims: Mapping[str, Any]) -> dict[str, Any]:
        metadata = {name: claims[name] for name in self._metadata_claims if name in claims}
        try:
            json.dumps(metadata, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:  # lone surrogates, which no store could hold
            raise Unauthenticated("metadata") from None
        return metadata

    def _granted(self, claim: Any) -> frozenset[Scope]:
        names = claim.split(" ") if isinstance(claim, str) else claim
        if not isinstance(names, list):
            raise Unauthenticated("scope")
        listed = cast(list[Any], names)
        if not all(isinstance(name, str) for name in listed):
            raise Unauthenticated("scope")
        return frozenset(self._scopes[name] for name in listed if name in self._scopes)


def parse_claims(payload: bytes) -> dict[str, Any]:
    """Return the claims of a token.

    Raises:
        Unauthenticated: the payload is not a JSON object whose members have names of their own.
    """
    try:
        return parse_object(payload)
    except ValueError:
        raise Unauthenticated("claims") from None


def _time(value: Any) -> float:
    """Return a NumericDate."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unauthenticated("time")
    if not abs(value) <= _MAX_TIME:  # nor NaN
        raise Unauthenticated("time")
    return float(value)


def _media_type(typ: str) -> str:
    """Return a `typ` as it is compared: see RFC 7515, 4.1.9."""
    return typ.lower().removeprefix("application/")
