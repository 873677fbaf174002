"""The address of a model server, its provider, and the headers of every request."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from lib._util.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The server of a client.

    Attributes:
        address: what paths are added to, without a final slash.
        headers: of each request, keys included.
        provider: the provider that bills calls, None if unknown.
    """

    address: str
    headers: Mapping[str, str]
    provider: str | None

    @property
    def host(self) -> str:
        """The host of the address."""
        return urlsplit(self.address).hostname or ""


OPENAI_URL: Final = "https://api.openai.com/v1"
OPENAI_HOST: Final = "api.openai.com"

JSON_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-type": "application/json",
        "accept-encoding": "identity",  # what is not compressed cannot blow up
        "user-agent": f"lib-agents/{__version__}",
    }
)
"""Headers of every request with a JSON body."""

_AZURE: Final = ".openai.azure.com"
_PROVIDERS: Final[Mapping[str, str]] = {
    OPENAI_HOST: "openai",
    "api.anthropic.com": "anthropic",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.together.xyz": "together",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "openrouter.ai": "openrouter",
}
"""The provider that bills calls to a host, by OpenTelemetry's name where it has one."""


def openai_endpoint(api_key: str | None, base_url: str | None) -> Endpoint:
    """Return the endpoint of OpenAI, or of a server that speaks one of its APIs.

    Raises:
        ValueError: no key for OpenAI, or a key or address that cannot be one.
    """
    address, host = server_address(base_url)
    headers = server_headers(api_key, host)
    return Endpoint(address=address, headers=headers, provider=provider_of(host))


def server_address(base_url: str | None) -> tuple[str, str]:
    """Return the address up to and with `/v1`, without a final slash, and its host.

    Args:
        base_url: defaults to OPENAI_BASE_URL, else OpenAI.

    Raises:
        ValueError: it is no http or https address.
    """
    return checked_address(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)


def checked_address(address: str) -> tuple[str, str]:
    """Return an address without a final slash, and its host.

    Raises:
        ValueError: it is no http or https address.
    """
    host = _host(address)
    if not host:
        raise ValueError("base_url is an http or https address such as http://127.0.0.1:8000/v1")
    return address.rstrip("/"), host


def host_and_port(address: str) -> str:
    """Return where the server of an address listens: no credentials, no path, no query."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(address: str) -> str | None:
    """Return the host of an http or https address, None if it is none."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:  # whose message repeats what may be a part of a password
        return None
    return parts.hostname if usable else None


def server_of(address: str) -> Mapping[str, Any]:
    """Return host and port of a checked address, as `server.address` and `server.port` of spans."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"address": parts.hostname, "port": port}


def provider_of(host: str) -> str | None:
    """Return the provider that bills calls to this host, None if unknown."""
    return "azure.ai.openai" if host.endswith(_AZURE) else _PROVIDERS.get(host)


def server_headers(api_key: str | None, host: str) -> dict[str, str]:
    """Return the headers of a request with a JSON body.

    Args:
        api_key: defaults to OPENAI_API_KEY; a server other than OpenAI's may need none.
        host: of the server.

    Raises:
        ValueError: there is no key for OpenAI, or the key cannot be one.
    """
    key = checked_key(api_key, "OPENAI_API_KEY")
    if not key and host == OPENAI_HOST:
        raise ValueError("OpenAI needs a key: set OPENAI_API_KEY, pass api_key=, or a base_url=")
    return dict(JSON_HEADERS) | ({"authorization": f"Bearer {key}"} if key else {})


def checked_key(api_key: str | None, *variables: str) -> str:
    """Return the key, else the first of these environment variables that is set, else "".

    Raises:
        ValueError: it cannot be a key.
    """
    found = (os.environ.get(name) for name in variables)
    key = (api_key or next(filter(None, found), "")).strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("the API key holds characters that no key has")
    return key


# -- Vertex AI -----------------------------------------------------------------------------------

VERTEX: Final = "gcp.vertex_ai"

TokenSource: TypeAlias = "str | Callable[[], str | Awaitable[str]]"
"""An OAuth token, or what returns the one that is valid now."""


def vertex_address(location: str, version: str) -> str:
    """Return the address of Vertex AI in a location, up to the version of its API."""
    match location:
        case "global":
            host = "aiplatform.googleapis.com"
        case "eu" | "us":
            host = f"aiplatform.{location}.rep.googleapis.com"
        case _:
            host = f"{location}-aiplatform.googleapis.com"
    return f"https://{host}/{version}"


def vertex_publisher(address: str, project: str, location: str, publisher: str) -> str:
    """Return the address of the models of a publisher, such as "google"."""
    return f"{address}/projects/{project}/locations/{location}/publishers/{publisher}"


async def bearer(token: TokenSource) -> dict[str, str]:
    """Return the header with the token that is valid now."""
    if isinstance(token, str):
        found = token
    elif inspect.iscoroutinefunction(token):
        found = await token()
    else:
        made = await asyncio.to_thread(token)
        found = made if isinstance(made, str) else await made
    return {"authorization": f"Bearer {found}"}
