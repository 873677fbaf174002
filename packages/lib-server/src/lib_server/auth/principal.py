"""The authenticated caller, and the protocol of what authenticates one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

from lib.errors import LibError
from lib.events import Marks

Scope = Literal["read", "run", "approve", "admin"]

SCOPES: Final[frozenset[Scope]] = frozenset({"read", "run", "approve", "admin"})
"""What a caller may do: look, start and cancel runs, decide approvals, administer."""

MAX_CREDENTIAL_CHARS: Final = 8 * 1024
"""Of an Authorization header; a longer one is refused before it is looked at."""

_TENANT: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_USER: Final = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller: the only source of tenant, user and metadata of a request.

    Attributes:
        key_id: identifies the credential in logs and limits; never secret.
        tenant: whose runs these are, None for a caller of the whole store.
        user: within the tenant.
        scopes: what the caller may do.
        metadata: of the credential, for runs that it starts.
        expires_at: when the credential ends, in seconds since 1970; None for never.
    """

    key_id: str
    tenant: str | None = None
    user: str | None = None
    scopes: frozenset[Scope] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expires_at: float | None = None


class Unauthenticated(LibError):
    """The request has no credential that is valid now.

    Attributes:
        code: for the caller: `missing` or `invalid_token`, and nothing about the cause.
        reason: one of few fixed words, for metrics; never sent to the caller.
    """

    def __init__(self, reason: str) -> None:
        self.code: Literal["missing", "invalid_token"] = (
            "missing" if reason == "missing" else "invalid_token"
        )
        self.reason: str = reason
        super().__init__(
            "expected a header 'Authorization: Bearer …'"
            if self.code == "missing"
            else "the credential is not valid"
        )


class AuthenticationUnavailable(LibError):
    """The credential could not be checked: the key store or the issuer cannot be reached.

    Attributes:
        retry_after_s: when another attempt may succeed, in seconds.
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        self.retry_after_s: float = retry_after_s
        super().__init__(message)


class Authenticator(Protocol):
    """Turns the Authorization header of a request into a principal."""

    def recognizes(self, token: str) -> bool:
        """Return True if the token has the format of this authenticator's, valid or not."""
        ...

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the caller.

        Args:
            authorization: the value of the only Authorization header, None without one.

        Raises:
            Unauthenticated: the header is missing or does not hold a valid credential.
            AuthenticationUnavailable: the credential could not be checked.
        """
        ...


@runtime_checkable
class Attached(Protocol):
    """An authenticator that lives with its server: it may use its store, and ends with it."""

    def attach(self, store: Marks) -> None:
        """Take the server's event store, which is set up."""
        ...

    async def aclose(self) -> None:
        """Finish what is under way; safe to repeat."""
        ...


@runtime_checkable
class FetchesKeys(Protocol):
    """An authenticator that fetches the keys of issuers."""

    def key_fetches(self) -> Mapping[str, int]:
        """Return how many fetches there were, by their outcome."""
        ...


@runtime_checkable
class TakesTokens(Protocol):
    """An authenticator of tokens that authorization servers issue."""

    def issuers(self) -> Mapping[str, Collection[str]]:
        """Return the scopes that may be requested of each of them, by its issuer."""
        ...


def issuers_of(authenticator: Authenticator | None) -> Mapping[str, Collection[str]]:
    """Return the scopes by the issuer of tokens; nothing where no tokens are taken."""
    return authenticator.issuers() if isinstance(authenticator, TakesTokens) else {}


class FirstOf:
    """Several authenticators, of which the first that recognizes a token's format decides.

    A refusal is final: no token is tried on two of them.

    Attributes:
        authenticators: all of them, in their order.
    """

    def __init__(self, *authenticators: Authenticator) -> None:
        """Take them in their order.

        Raises:
            ValueError: there is none.
        """
        if not authenticators:
            raise ValueError("expected at least one authenticator")
        self.authenticators: tuple[Authenticator, ...] = authenticators

    def recognizes(self, token: str) -> bool:
        """Return True if one of them recognizes the token."""
        return any(each.recognizes(token) for each in self.authenticators)

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the caller; see `Authenticator`."""
        token = bearer_token(authorization)
        for each in self.authenticators:
            if each.recognizes(token):
                return await each.authenticate(authorization)
        raise Unauthenticated("format")

    def key_fetches(self) -> Mapping[str, int]:
        """Return how many fetches of keys there were, by their outcome."""
        total = Counter[str]()
        for each in self.authenticators:
            if isinstance(each, FetchesKeys):
                total.update(each.key_fetches())
        return total

    def issuers(self) -> Mapping[str, Collection[str]]:
        """Return the scopes of all of them, by the issuer of tokens."""
        found: dict[str, Collection[str]] = {}
        for each in self.authenticators:
            found.update(issuers_of(each))
        return found

    def attach(self, store: Marks) -> None:
        """Attach those that live with the server."""
        for each in self.authenticators:
            if isinstance(each, Attached):
                each.attach(store)

    async def aclose(self) -> None:
        """Close those that live with the server."""
        for each in self.authenticators:
            if isinstance(each, Attached):
                await each.aclose()


def bearer_token(authorization: str | None) -> str:
    """Return the token of a header `Bearer TOKEN`.

    Raises:
        Unauthenticated: there is no header, or it is not of exactly this form.

    Source: RFC 6750, 2.1; RFC 9110, 11.4 (the scheme is case-insensitive).
    """
    if authorization is None:
        raise Unauthenticated("missing")
    if len(authorization) > MAX_CREDENTIAL_CHARS:
        raise Unauthenticated("size")
    found = _BEARER.fullmatch(authorization)
    if found is None:
        raise Unauthenticated("header")
    return found[1]


def is_tenant(value: object) -> bool:
    """Return True for the id of a tenant: 1 to 64 of `A-Za-z0-9_.-`, the first of them no dot."""
    return isinstance(value, str) and _TENANT.fullmatch(value) is not None


def is_user(value: object) -> bool:
    """Return True for the id of a user: 1 to 256 characters, none of them a control character."""
    return isinstance(value, str) and _USER.fullmatch(value) is not None
