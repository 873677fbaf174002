"""Attachments between messages and the blob store: large content never enters a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lib.errors import BlobMissing, ContentTooLarge
from lib.events import INLINE_LIMIT, BlobStore
from lib.llm import Attachment, BlobRef, Message, Part


async def store(messages: Iterable[Message], blobs: BlobStore | None) -> list[Message]:
    """Return the messages with every attachment above the inline limit moved to the blob store.

    Raises:
        ContentTooLarge: there is such an attachment and no blob store.
    """
    return [
        replace(message, parts=tuple([await _store(part, blobs) for part in message.parts]))
        for message in messages
    ]


async def _store(part: Part, blobs: BlobStore | None) -> Part:
    if not isinstance(part, Attachment) or part.data is None or len(part.data) <= INLINE_LIMIT:
        return part
    if blobs is None:
        raise ContentTooLarge(len(part.data), limit=INLINE_LIMIT)
    blob = BlobRef(await blobs.put(part.data), len(part.data), part.media_type)
    return replace(part, data=None, blob=blob)


async def load(messages: Iterable[Message], blobs: BlobStore | None) -> list[Message]:
    """Return the messages with the content of their blobs, as a client needs them.

    Raises:
        BlobMissing: a blob is not there, or there is no blob store.
    """
    return [
        message
        if not any(isinstance(part, Attachment) and part.blob for part in message.parts)
        else replace(message, parts=tuple([await _load(part, blobs) for part in message.parts]))
        for message in messages
    ]


async def _load(part: Part, blobs: BlobStore | None) -> Part:
    if not isinstance(part, Attachment) or part.blob is None:
        return part
    if blobs is None:
        raise BlobMissing(part.blob.sha256)
    return replace(part, data=await blobs.get(part.blob.sha256), blob=None)
