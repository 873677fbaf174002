"""`/v1/blobs`: content for inputs, too large for a body; each tenant has its own."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from starlette.responses import Response
from starlette.types import ASGIApp

from lib.errors import BlobMissing
from lib.events import BlobStore
from lib_server.bodies import BlobView, Empty
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_SHOWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain"})


def _blobs(call: Call[Any, Any]) -> BlobStore:
    blobs = call.engine.blobs
    if blobs is None:
        raise Problem("unsupported", "the engine of this server has no blob store: give it blobs=")
    return blobs


def _mark(digest: str) -> str:
    """Return the name of the mark, of the caller's tenant, that owns an upload."""
    return f"lib_server/blob/{digest}"


async def uploaded(call: Call[Any, Any], digest: str) -> tuple[bytes, str]:
    """Return the content and the media type of an upload of the caller's tenant.

    Raises:
        BlobMissing: there is none, also if it is another tenant's.
    """
    mark = await call.store.mark(_mark(digest)) if _DIGEST.fullmatch(digest) else None
    if mark is None and not await _is_used(call, digest):
        raise BlobMissing(digest)
    content = await _blobs(call).get(digest)
    media_type = "application/octet-stream" if mark is None else json.loads(mark)["media_type"]
    return content, media_type


async def _is_used(call: Call[Any, Any], digest: str) -> bool:
    """Return True if a run that the caller may see refers to a blob."""
    is_digest = _DIGEST.fullmatch(digest) is not None
    return is_digest and bool(await call.store.blob_users(digest))


async def _upload(call: Call[Empty, None]) -> ASGIApp:
    blobs = _blobs(call)
    media_type = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(media_type):
        raise Problem("unsupported_media_type", "expected the type of the content, as image/png")
    content = await call.request.body()
    digest = await blobs.put(content)
    await call.store.set_mark(_mark(digest), json.dumps({"media_type": media_type}))
    view = BlobView(digest=digest, size=len(content), media_type=media_type)
    return answer(view, 201)


async def _download(call: Call[Empty, None]) -> ASGIApp:
    try:
        content, media_type = await uploaded(call, call.path("digest"))
    except BlobMissing:
        raise Problem("blob_not_found", "no blob has this digest") from None
    headers = {
        "cache-control": "private, max-age=31536000, immutable",
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
    }
    if media_type not in _SHOWN:
        headers["content-disposition"] = "attachment"
    return Response(content, headers=headers, media_type=media_type)


ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/blobs",
        handler=_upload,
        summary="Upload content; `Content-Type` says what it is",
        tag="blobs",
        right="run",
        content="*/*",
        answers={201: BlobView},
        problems=["unsupported", "unsupported_media_type"],
    ),
    Route(
        method="GET",
        path="/v1/blobs/{digest}",
        handler=_download,
        summary="Download content that the tenant has uploaded, or that its runs refer to",
        tag="blobs",
        right="read",
        answers={200: None},
        problems=["unsupported"],
    ),
]
