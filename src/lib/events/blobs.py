"""Content that is too large for a log, kept under its SHA-256."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncClosable
from lib._util.files import write_atomically
from lib.errors import BlobError, BlobMissing
from lib.events.kinds import PREFIX

INLINE_LIMIT: Final = 256 * 1024
"""Bytes of content that an event may hold itself."""

_DIGEST: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A reference to content, stored as `{"$blob": digest, "size": …, "type": …}` in a payload."""

    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Content that a blob store holds.

    Attributes:
        size: in bytes.
        put_at: when it was last put, for the first time or again.
    """

    digest: str
    size: int
    put_at: datetime


def blob_refs(kind: str, data: Any) -> Iterator[BlobReference]:
    """Yield the references to blobs that the payload of an event holds.

    In `lib.` kinds, only the blobs of attachments in messages and replies count: a model may write
    a text that looks like a reference into the arguments of a call, and must neither keep another
    run's content alive by that nor seem to own it. In the kinds of applications, references count
    at any depth.
    """
    if kind.startswith(PREFIX):
        yield from filter(None, map(reference_of, _attached(data)))
        return
    pending = [data]
    while pending:
        value = pending.pop()
        if (reference := reference_of(value)) is not None:
            yield reference
            continue
        match value:
            case {**fields}:
                pending.extend(reversed(fields.values()))
            case [*items]:
                pending.extend(reversed(items))
            case _:
                pass


def reference_of(value: Any) -> BlobReference | None:
    """Return a value as a reference if it has the keys `$blob`, `size` and `type` and no other."""
    match value:
        case {"$blob": str(digest), "size": int(size), "type": str(media_type), **rest}:
            is_valid = not rest and size is not True and size is not False and size >= 0
            if is_valid and _DIGEST.fullmatch(digest):
                return BlobReference(digest, size, media_type)
        case _:
            pass
    return None


def blob_digests(kind: str, data: Any) -> set[str]:
    """Return the digests of the blobs that the payload of an event refers to."""
    return {reference.digest for reference in blob_refs(kind, data)}


def _attached(data: Any) -> Iterator[Any]:
    """Yield the `blob` of each attachment in the messages of an event, or in its reply."""
    match data:
        case {"input": [*messages]}:
            holders = messages
        case {"reply": reply}:
            holders = [reply]
        case _:
            holders = []
    for holder in holders:
        match holder:
            case {"parts": [*parts]}:
                yield from map(_blob, parts)
            case _:
                pass


def _blob(part: Any) -> Any:
    match part:
        case {"type": "image" | "audio" | "file", "blob": blob}:
            return blob
        case _:
            return None


BLOB_MARKER: Final = '"$blob"'
"""A part of the canonical JSON of every payload with a reference to a blob."""


class BlobStore(Protocol):
    """Content under its digest: equal content is stored once, and never changes."""

    async def put(self, content: bytes) -> str:
        """Keep the content durably and return its SHA-256 as hex.

        Raises:
            BlobError: the store cannot be written.
        """
        ...

    async def get(self, digest: str) -> bytes:
        """Return the content.

        Raises:
            BlobMissing: it is not in the store, or its bytes no longer have this digest.
        """
        ...

    async def has(self, digest: str) -> bool:
        """Return True if the store has the content, without reading it."""
        ...

    async def delete(self, digest: str) -> bool:
        """Delete the content; return True if the store had it."""
        ...

    async def stored(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        """Return the first `limit` contents whose digests follow `after`, in their order.

        Pass the last digest to go on; fewer than `limit`: the page is the last one.
        """
        ...


class MemoryBlobStore(AsyncClosable):
    """Content in this process, for tests."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Make an empty store.

        Args:
            clock: gives the time at which content is put.
        """
        self._contents: dict[str, bytes] = {}
        self._put_at: dict[str, datetime] = {}
        self._clock = clock

    async def put(self, content: bytes) -> str:
        """Keep the content and return its SHA-256 as hex."""
        digest = await asyncio.to_thread(_sha256, content)
        self._contents[digest] = bytes(content)
        self._put_at[digest] = self._clock.now()
        return digest

    async def get(self, digest: str) -> bytes:
        """Return the content; see `BlobStore.get`."""
        try:
            return self._contents[digest]
        except KeyError:
            raise BlobMissing(digest) from None

    async def has(self, digest: str) -> bool:
        """Return True if the store has the content."""
        return digest in self._contents

    async def delete(self, digest: str) -> bool:
        """Delete the content; return True if the store had it."""
        self._put_at.pop(digest, None)
        return self._contents.pop(digest, None) is not None

    async def stored(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        """Return the contents in the order of their digests; see `BlobStore.stored`."""
        following = sorted(digest for digest in self._contents if digest > after)[:limit]
        return [
            StoredBlob(digest, len(self._contents[digest]), self._put_at[digest])
            for digest in following
        ]


class DirectoryBlobStore(AsyncClosable):
    """One file for each content, in 256 directories named by the first byte of the digest.

    A file is complete or absent, whatever crashes, and any number of processes may put the same
    content. Damage on the disk is noticed when the content is read, and repaired when it is put
    again. A file's modification time is when its content was last put.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Use a directory, which is made with the first `put`.

        Args:
            path: of the directory.
            clock: gives the time at which content is put.
        """
        self._path = Path(path)
        self._clock = clock

    async def put(self, content: bytes) -> str:
        """Keep the content durably and return its SHA-256 as hex; see `BlobStore.put`."""
        return await asyncio.to_thread(self._put, content)

    async def get(self, digest: str) -> bytes:
        """Return the content; see `BlobStore.get`."""
        return await asyncio.to_thread(self._get, digest)

    async def has(self, digest: str) -> bool:
        """Return True if the store has the content, without reading it."""
        return await asyncio.to_thread(self._has, digest)

    async def delete(self, digest: str) -> bool:
        """Delete the content; return True if the store had it."""
        return await asyncio.to_thread(self._delete, digest)

    async def stored(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        """Return the contents in the order of their digests; see `BlobStore.stored`."""
        return await asyncio.to_thread(self._stored, after, limit)

    def _put(self, content: bytes) -> str:
        digest = _sha256(content)
        path = self._file(digest)
        with self._typed_errors():
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                _sync(self._path)
                _sync(self._path.parent)
            if not self._put_again(path, digest):
                write_atomically(path, content)
                with suppress(FileNotFoundError):  # deleted since
                    os.utime(path, ns=self._now())
        return digest

    def _put_again(self, path: Path, digest: str) -> bool:
        """Renew the time of content that is stored; return False if it has to be written anew."""
        try:
            os.utime(path, ns=self._now())  # first, for a collector to see it early
            whole = _sha256(path.read_bytes()) == digest
        except (FileNotFoundError, PermissionError):  # missing, or another user's
            return False
        if whole:
            _sync(path.parent)  # the process that put it may not have done so yet
        return whole

    def _now(self) -> tuple[int, int]:
        now_ns = round(self._clock.now().timestamp() * 1e9)
        return now_ns, now_ns

    def _stored(self, after: str, limit: int) -> list[StoredBlob]:
        found: list[StoredBlob] = []
        with self._typed_errors():
            for name in _names(self._path, after[:2]):
                for digest in _names(self._path / name, after, beyond=True):
                    if len(found) == limit:
                        return found
                    if _DIGEST.fullmatch(digest):
                        with suppress(FileNotFoundError):  # deleted since it was listed
                            at = (self._path / name / digest).stat()
                            put_at = datetime.fromtimestamp(at.st_mtime, UTC)
                            found.append(StoredBlob(digest, at.st_size, put_at))
        return found

    def _get(self, digest: str) -> bytes:
        path = self._file(digest)
        with self._typed_errors():
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                raise BlobMissing(digest) from None
        if _sha256(content) != digest:
            raise BlobMissing(digest, damaged=True)
        return content

    def _has(self, digest: str) -> bool:
        with self._typed_errors():
            try:
                return self._file(digest).is_file()
            except BlobMissing:
                return False

    def _delete(self, digest: str) -> bool:
        with self._typed_errors():
            try:
                path = self._file(digest)
                path.unlink()
            except (BlobMissing, FileNotFoundError):
                return False
            _sync(path.parent)
        return True

    def _file(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):  # it comes from a log, and becomes a path
            raise BlobMissing(digest)
        return self._path / digest[:2] / digest

    @contextmanager
    def _typed_errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise BlobError(f"{type(self).__name__}({str(self._path)!r}): {error}") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _names(directory: Path, after: str, *, beyond: bool = False) -> list[str]:
    """Return the names in a directory from `after` on, sorted; without itself if `beyond`."""
    try:
        names = sorted(path.name for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if (name > after if beyond else name >= after)]


def _sync(directory: Path) -> None:
    """Make the names in a directory durable, where the system can open directories."""
    with suppress(PermissionError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
