"""Names of media types that may stand in a message: a server can write anything for one."""

from __future__ import annotations

from typing import Final

_NAMED: Final = frozenset(
    {
        *("application/pdf", "application/zip", "application/gzip", "application/octet-stream"),
        *("application/javascript", "application/json", "application/xml", "application/wasm"),
        *("application/msword", "application/rtf", "application/epub+zip", "application/rss+xml"),
        *("application/vnd.ms-excel", "application/vnd.ms-powerpoint", "application/x-tar"),
        *("application/vnd.openxmlformats-officedocument.wordprocessingml.document",),
        *("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",),
        *("application/vnd.openxmlformats-officedocument.presentationml.presentation",),
        *("audio/mpeg", "audio/ogg", "audio/wav", "video/mp4", "video/webm", "font/woff2"),
        *("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/svg+xml"),
        *("text/html", "text/plain", "text/css", "text/csv", "text/javascript", "text/markdown"),
        *("text/xml", "text/calendar", "text/event-stream", "multipart/form-data"),
    }
)
# Source: the IANA registry of media types (2026-11), its top-level types.
_KINDS: Final = frozenset(
    {
        *("application", "audio", "example", "font", "haptics", "image", "message", "model"),
        *("multipart", "text", "video"),
    }
)


def known_type(media_type: str) -> str:
    """Return what to call a media type: its name if it is well known, else its kind, else none."""
    if media_type in _NAMED:
        return f"type {media_type}"
    kind = media_type.partition("/")[0]
    return f"a type of {kind}" if kind in _KINDS else "a type of no known kind"
