"""Content that is too large for a log, kept under its SHA-256."""

from __future__ import annotations

from typing import Final, Protocol

INLINE_LIMIT: Final = 256 * 1024
"""Bytes of content that an event may hold itself."""


class BlobStore(Protocol):
    """Content under its digest: what is put twice is kept once, and never changes."""

    async def put(self, content: bytes) -> str:
        """Keep the content durably and return its SHA-256 as hex."""
        ...

    async def get(self, digest: str) -> bytes:
        """Return the content.

        Raises:
            BlobMissing: it is not here, or its bytes no longer have this digest.
        """
        ...

    async def has(self, digest: str) -> bool:
        """Tell whether the content is here, without reading it."""
        ...

    async def delete(self, digest: str) -> bool:
        """Forget the content; return whether it was here."""
        ...
