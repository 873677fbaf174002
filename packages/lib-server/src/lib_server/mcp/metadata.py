"""The metadata by which clients of `/mcp` find tokens, if authorization servers issue them.

Source: RFC 9728, OAuth 2.0 Protected Resource Metadata, April 2025.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from lib_server.bodies import Answer, Empty
from lib_server.edge.authentication import METADATA, base_url
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer


class ProtectedResource(Answer):
    """The metadata of `/mcp`."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]


async def _get(call: Call[Empty, None]) -> ASGIApp:
    issuers = call.services.issuers
    if not issuers or call.services.mcp is None:
        raise Problem("not_found", "no authorization server issues tokens for this server")
    return answer(
        ProtectedResource(
            resource=f"{base_url(call.request.scope)}/mcp",
            authorization_servers=sorted(issuers),
            scopes_supported=sorted({scope for scopes in issuers.values() for scope in scopes}),
            bearer_methods_supported=["header"],
        )
    )


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path=path,
        handler=_get,
        summary="Describe how clients of /mcp are authorized",
        tag="mcp",
        right=None,
        query=Empty,
        answers={200: ProtectedResource},
        problems=["not_found"],
    )
    for path in (METADATA, f"{METADATA}/mcp")
]
