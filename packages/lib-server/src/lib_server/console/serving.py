"""Serves the console beside the routes below `/v1`, to all who can reach the server.

The page holds nothing of any tenant: what it shows, it reads with the key of its user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lib_server.console.assets import POLICY, Assets, read_assets
from lib_server.problems import Problem
from lib_server.routing import route_path

ROOT: Final = "/console/"

_SAFE: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_PAGE_HEADERS: Final = {
    **_SAFE,
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}
_ASSET_HEADERS: Final = {**_SAFE, "cache-control": "public, max-age=31536000, immutable"}


class Console:
    """Answers requests below `/console/`, leads `/` there, and hands on all others."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request."""
        path = route_path(scope)
        own = path in {"/", "/console"} or path.startswith(ROOT)
        return (self._serve if own else self._app)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route_path(scope)
        if scope["method"] not in {"GET", "HEAD"}:
            detail = "this resource has GET, HEAD"
            raise Problem("method_not_allowed", detail, headers={"allow": "GET, HEAD"})
        assets = await asyncio.to_thread(read_assets)  # from the disk once, then from memory
        await _answer(scope, path, assets)(scope, receive, send)


def _answer(scope: Scope, path: str, assets: Assets) -> Response:
    if not path.startswith(ROOT):
        return RedirectResponse(f"{scope.get('root_path', '')}{ROOT}", headers=dict(_SAFE))
    name = path.removeprefix(ROOT)
    if not name:
        return Response(assets.page, headers=_PAGE_HEADERS, media_type="text/html; charset=utf-8")
    asset = assets.files.get(name)
    if asset is None:
        raise Problem("not_found", "the console has no such file: load its page again")
    return Response(asset.content, headers=_ASSET_HEADERS, media_type=asset.media_type)
