"""HTTP to a server: through the guarded network, with headers for its origin alone."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import httpx2

from lib.mcp.client.connection import NOT_SENT
from lib.tools.builtin.fetch.pinned_transport import NotSentError, PinnedTransport
from lib.tools.builtin.fetch.policy import FetchPolicy
from lib.tools.builtin.fetch.url import Target, parse

Headers: TypeAlias = Mapping[str, str] | Callable[[], Awaitable[Mapping[str, str]]]

_LOST: Final = -32098


def policy_for(url: str, *, private: bool, anywhere: bool, max_bytes: int) -> FetchPolicy:
    """Return what a client of this URL may reach: its host at its port, and nothing else.

    Args:
        url: of the server.
        private: whether it may be on a network that is not public, and without TLS.
        anywhere: whether other hosts may be reached, as OAuth needs; public ones at port 443.
        max_bytes: of one response.

    Raises:
        FetchBlocked: the URL is not one of http or https.
        ValueError: it is without TLS, and `private` is False.
    """
    target = parse(url)
    if target.scheme == "http" and not private:
        raise ValueError(
            "expected an https URL of an MCP server, got an http one: "
            "allow_private_networks=True allows it"
        )
    ports = (target.port,)
    if anywhere:
        ports = tuple(range(1, 65_536)) if private else tuple({target.port, 443})
    return FetchPolicy(
        allowed_hosts=() if anywhere else (target.host,),
        allowed_ports=ports,
        allow_http=private,
        allow_private_networks=private,
        max_bytes=max_bytes,
    )


class EndpointTransport(httpx2.AsyncBaseTransport):
    """The guarded network of one server, which answers for itself where that fails.

    A request that fails is answered with an error of JSON-RPC: raised, it would end the connection,
    and with it the calls of other runs.
    """

    def __init__(self, url: str, policy: FetchPolicy, headers: Headers) -> None:
        """Prepare; nothing is opened yet."""
        self._endpoint: Target = parse(url)
        self._headers = headers
        self._network = PinnedTransport(policy)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, with the headers if it goes to the server's origin."""
        try:
            if _same_origin(request, self._endpoint):
                more = self._headers() if callable(self._headers) else self._headers
                request.headers.update(more if isinstance(more, Mapping) else await more)
            return await self._network.handle_async_request(request)
        except NotSentError as error:
            return _refusal(NOT_SENT, f"not called: {error}")
        # Around the network, and a function of the application that makes the headers.
        except Exception:  # noqa: BLE001 - see above
            return _refusal(_LOST, "the connection has failed")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._network.aclose()


def _same_origin(request: httpx2.Request, endpoint: Target) -> bool:
    return parse(str(request.url)).origin == endpoint.origin


def _refusal(code: int, message: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    headers = {"Content-Type": "application/json"}
    return httpx2.Response(502, headers=headers, content=json.dumps(body))
