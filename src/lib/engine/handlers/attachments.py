"""Attachments between messages and the blob store: large content never enters a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import is_not
from typing import Final

from lib.engine.core.conversation import History
from lib.errors import BlobMissing, ContentTooLarge
from lib.events import INLINE_LIMIT, BlobStore, Event, EventStore, NewEvent
from lib.events.blobs import StoredBlob, blob_refs
from lib.llm import Attachment, BlobRef, Message, Part


async def store(
    messages: Iterable[Message], blobs: BlobStore | None, *, view: EventStore | None = None
) -> list[Message]:
    """Return the messages with every attachment above the inline limit moved to the blob store.

    Args:
        messages: the input of a run or a turn, or a reply.
        blobs: where the content goes.
        view: what its tenant sees of the store: a blob to which no run there refers is a missing
            one. None lets any blob be named.

    Raises:
        BlobMissing: a blob is named that is not the tenant's.
        ContentTooLarge: there is such an attachment and no blob store.
    """
    stored = list(messages)
    for place, message in enumerate(stored):
        parts = [await _store(part, blobs, view) for part in message.parts]
        if any(map(is_not, parts, message.parts)):
            stored[place] = replace(message, parts=tuple(parts))
    return stored


async def _store(part: Part, blobs: BlobStore | None, view: EventStore | None) -> Part:
    if not isinstance(part, Attachment):
        return part
    if part.blob is not None and view is not None and not await view.blob_users(part.blob.sha256):
        raise BlobMissing(part.blob.sha256)
    if part.data is None or len(part.data) <= INLINE_LIMIT:
        return part
    if blobs is None:
        raise ContentTooLarge(len(part.data), limit=INLINE_LIMIT)
    blob = BlobRef(await blobs.put(part.data), len(part.data), part.media_type)
    return replace(part, data=None, blob=blob)


async def load(history: History, blobs: BlobStore | None) -> list[Message]:
    """Return the messages with the content of their blobs, as a client needs them.

    Raises:
        BlobMissing: a blob is not there, or there is no blob store.
    """
    messages = list(history)
    for place in history.stored:
        parts = [await load_part(part, blobs) for part in messages[place].parts]
        messages[place] = replace(messages[place], parts=tuple(parts))
    return messages


async def load_part(part: Part, blobs: BlobStore | None) -> Part:
    """Return the part with the content of its blob; see `load`."""
    if not isinstance(part, Attachment) or part.blob is None:
        return part
    if blobs is None:
        raise BlobMissing(part.blob.sha256)
    return replace(part, data=await blobs.get(part.blob.sha256), blob=None)


HELD_BYTES: Final = 64 * 1024 * 1024
"""How much content an engine holds between a put and the append that refers to it, at most."""


class PinnedBlobs:
    """A blob store that holds what was put until an append refers to it, and then looks again.

    An erasure of another run may find content unused between its put and its append. See
    `lib.privacy.blobs`. What was put first is let go first, and is then not put again.
    """

    def __init__(self, blobs: BlobStore, *, most_bytes: int = HELD_BYTES) -> None:
        """Hold nothing yet."""
        self._blobs = blobs
        self._most_bytes = most_bytes
        self._held: dict[str, tuple[bytes, int]] = {}

    async def put(self, content: bytes) -> str:
        """Keep the content, and hold it; see `BlobStore.put`."""
        digest = await self._blobs.put(content)
        _, times = self._held.pop(digest, (content, 0))
        self._held[digest] = (content, times + 1)
        total = sum(len(held) for held, _ in self._held.values())
        while total > self._most_bytes:
            oldest, _ = self._held.pop(next(iter(self._held)))
            total -= len(oldest)
        return digest

    async def get(self, digest: str) -> bytes:
        """Return the content, also while it is being put again; see `BlobStore.get`."""
        content, _ = self._held.get(digest, (None, 0))
        return await self._blobs.get(digest) if content is None else content

    async def has(self, digest: str) -> bool:
        """Return True if the content is here."""
        return await self._blobs.has(digest)

    async def delete(self, digest: str) -> bool:
        """Forget the content; return whether it was here."""
        return await self._blobs.delete(digest)

    async def stored(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        """Return the contents in the order of their digests; see `BlobStore.stored`."""
        return await self._blobs.stored(after=after, limit=limit)

    async def appended(self, events: Iterable[Event | NewEvent]) -> None:
        """Put again what these events refer to, if it has been deleted since it was put.

        Raises:
            BlobError: the store cannot be written.
        """
        for digest in {ref.digest for event in events for ref in blob_refs(event.kind, event.data)}:
            content, _ = self._held.get(digest, (None, 0))
            try:
                if content is not None and not await self._blobs.has(digest):
                    await self._blobs.put(content)
            finally:
                self._let_go(digest)

    def _let_go(self, digest: str) -> None:
        """Hold the content for one put less, if it is held."""
        content, times = self._held.pop(digest, (b"", 0))
        if times > 1:
            self._held[digest] = (content, times - 1)


def held(blobs: BlobStore | None) -> PinnedBlobs | None:
    """Return the blob store that an engine uses in place of its own."""
    return None if blobs is None else PinnedBlobs(blobs)


async def appended(blobs: PinnedBlobs | None, events: Iterable[Event | NewEvent]) -> None:
    """Note that these events have been appended; see `PinnedBlobs.appended`."""
    if blobs is not None:
        await blobs.appended(events)
