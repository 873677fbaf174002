"""Durable agents over HTTP: `Server(engine)` is an ASGI application, `lib-server serve` runs it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lib_server.auth.principal import Authenticator, Principal, Unauthenticated
    from lib_server.limits import Limits
    from lib_server.server import Server

__all__ = ["Authenticator", "Limits", "Principal", "Server", "Unauthenticated", "__version__"]

__version__: Final = "0.1.0"

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    _WHERE = {
        "Authenticator": "lib_server.auth.principal",
        "Limits": "lib_server.limits",
        "Principal": "lib_server.auth.principal",
        "Server": "lib_server.server",
        "Unauthenticated": "lib_server.auth.principal",
    }

    def __getattr__(name: str) -> Any:
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = vars(sys.modules[__name__])[name] = getattr(import_module(_WHERE[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_WHERE})
