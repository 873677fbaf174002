"""Durable agents over HTTP: `Server(engine)` is an ASGI application, `lib-server serve` runs it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lib_server.auth.api_key import ApiKeyAuthenticator
    from lib_server.auth.jwks import JWKSKeys
    from lib_server.auth.jwt import JWTAuthenticator, StaticKeys
    from lib_server.auth.keys import ApiKeys
    from lib_server.auth.principal import Authenticator, FirstOf, Principal, Unauthenticated
    from lib_server.client.client import Client
    from lib_server.client.errors import (
        AccessDenied,
        ClientError,
        InvalidRequest,
        RequestConflict,
        ResourceNotFound,
        StreamReset,
    )
    from lib_server.client.sync import SyncClient
    from lib_server.limits import Limits, Quota, Rate
    from lib_server.server import Server

__all__ = [
    "AccessDenied",
    "ApiKeyAuthenticator",
    "ApiKeys",
    "Authenticator",
    "Client",
    "ClientError",
    "FirstOf",
    "InvalidRequest",
    "JWKSKeys",
    "JWTAuthenticator",
    "Limits",
    "Principal",
    "Quota",
    "Rate",
    "RequestConflict",
    "ResourceNotFound",
    "Server",
    "StaticKeys",
    "StreamReset",
    "SyncClient",
    "Unauthenticated",
    "__version__",
]

__version__: Final = "0.1.0"

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    _WHERE = {
        "AccessDenied": "lib_server.client.errors",
        "ApiKeyAuthenticator": "lib_server.auth.api_key",
        "ApiKeys": "lib_server.auth.keys",
        "Authenticator": "lib_server.auth.principal",
        "Client": "lib_server.client.client",
        "ClientError": "lib_server.client.errors",
        "FirstOf": "lib_server.auth.principal",
        "InvalidRequest": "lib_server.client.errors",
        "JWKSKeys": "lib_server.auth.jwks",
        "JWTAuthenticator": "lib_server.auth.jwt",
        "Limits": "lib_server.limits",
        "Principal": "lib_server.auth.principal",
        "Quota": "lib_server.limits",
        "Rate": "lib_server.limits",
        "RequestConflict": "lib_server.client.errors",
        "ResourceNotFound": "lib_server.client.errors",
        "Server": "lib_server.server",
        "StaticKeys": "lib_server.auth.jwt",
        "StreamReset": "lib_server.client.errors",
        "SyncClient": "lib_server.client.sync",
        "Unauthenticated": "lib_server.auth.principal",
    }

    def __getattr__(name: str) -> Any:
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = vars(sys.modules[__name__])[name] = getattr(import_module(_WHERE[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_WHERE})
