"""`/v1/me`: the caller as the server sees it."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.types import ASGIApp

from lib_server.bodies import Empty, MeView
from lib_server.routing import AnyRoute, Call, Route, answer


async def _me(call: Call[Empty, None]) -> ASGIApp:
    principal, services = call.principal, call.services
    ends = principal.expires_at
    view = MeView(
        key_id=principal.key_id,
        tenant=principal.tenant,
        user=principal.user,
        scopes=sorted(principal.scopes),
        expires_at=None if ends is None else datetime.fromtimestamp(ends, UTC),
        uploads=call.engine.blobs is not None,
        manages_keys=services.keys is not None and "admin" in principal.scopes,
        version=services.version,
    )
    return answer(view)


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/me",
        handler=_me,
        summary="Look at the credential of the request: its tenant, its user, its scopes",
        tag="credentials",
        right="any",
        answers={200: MeView},
    ),
]
