"""Content under its digest, and the references to it in payloads."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lib.errors import BlobError, BlobMissing
from lib.events import kinds as k
from lib.events.blobs import (
    BlobReference,
    BlobStore,
    DirectoryBlobStore,
    MemoryBlobStore,
    blob_digests,
    blob_refs,
)
from lib.testing.clock import ManualClock

CONTENTS = {"nothing": b"", "text": b"hello", "a megabyte": bytes(range(256)) * 4096}
BLOB_STORES: dict[str, Callable[[Path], BlobStore]] = {
    "memory": lambda _: MemoryBlobStore(),
    "directory": lambda place: DirectoryBlobStore(place / "not" / "there yet"),
}


@pytest.fixture(params=BLOB_STORES.values(), ids=list(BLOB_STORES))
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return request.param(tmp_path)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("content", CONTENTS.values(), ids=list(CONTENTS))
async def test_content_is_found_under_its_digest_until_it_is_deleted(
    blobs: BlobStore, content: bytes
) -> None:
    digest = sha256(content)
    assert await blobs.has(digest) is False
    assert await blobs.delete(digest) is False
    assert await blobs.put(content) == digest
    assert await blobs.put(content) == digest
    assert await blobs.get(digest) == content
    assert await blobs.has(digest) is True
    assert await blobs.delete(digest) is True
    assert await blobs.has(digest) is False
    with pytest.raises(BlobMissing) as caught:
        await blobs.get(digest)
    assert (caught.value.digest, caught.value.damaged) == (digest, False)
    assert await blobs.put(content) == digest
    assert await blobs.get(digest) == content


@pytest.mark.parametrize(
    "digest", ["", "..", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 65, "é"]
)
async def test_text_that_is_no_digest_is_not_found(blobs: BlobStore, digest: str) -> None:
    await blobs.put(b"hello")
    with pytest.raises(BlobMissing) as caught:
        await blobs.get(digest)
    assert caught.value.digest == digest
    assert await blobs.has(digest) is False
    assert await blobs.delete(digest) is False


async def test_content_put_at_the_same_time_is_kept_once(tmp_path: Path) -> None:
    stores = [DirectoryBlobStore(tmp_path) for _ in range(4)]
    contents = [b"x" * size for size in range(10)]
    await asyncio.gather(*(store.put(content) for store in stores for content in contents))
    for content in contents:
        assert await stores[0].get(sha256(content)) == content
    assert len(files(tmp_path)) == 10


async def test_a_blob_is_a_file_named_by_its_digest(tmp_path: Path) -> None:
    digest = await DirectoryBlobStore(tmp_path).put(b"hello")

    assert files(tmp_path) == [tmp_path / digest[:2] / digest]
    assert files(tmp_path)[0].read_bytes() == b"hello"


@pytest.mark.parametrize("damage", [b"", b"hell", b"jello", b"hello again"])
async def test_damaged_content_is_never_returned_and_is_mended_by_putting_it_again(
    tmp_path: Path, damage: bytes
) -> None:
    blobs = DirectoryBlobStore(tmp_path)
    digest = await blobs.put(b"hello")
    path = tmp_path / digest[:2] / digest
    await asyncio.to_thread(path.write_bytes, damage)
    with pytest.raises(BlobMissing) as caught:
        await blobs.get(digest)
    assert (caught.value.digest, caught.value.damaged) == (digest, True)
    await blobs.put(b"hello")
    assert await blobs.get(digest) == b"hello"


async def test_a_disk_that_does_not_take_it_is_a_blob_error(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"in the way")

    blobs = DirectoryBlobStore(place)
    for call in (blobs.put(b"hello"), blobs.get(sha256(b"hello")), blobs.delete("a" * 64)):
        with pytest.raises(BlobError) as caught:
            await call
        assert type(caught.value) is BlobError
        assert isinstance(caught.value.__cause__, OSError)
    assert place.read_bytes() == b"in the way"


@pytest.fixture
def unreadable() -> Iterator[Path]:
    """Return a directory that cannot be listed, as an unprivileged user: root may list any."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        yield place
        place.chmod(0o777)


async def test_a_directory_that_cannot_be_opened_is_no_reason_to_fail(unreadable: Path) -> None:
    await DirectoryBlobStore(unreadable).put(b"hello")
    [path] = files(unreadable)
    path.chmod(0o444)
    path.parent.chmod(0o333)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        again = await DirectoryBlobStore(unreadable).put(b"hello")
    finally:
        os.seteuid(user)
    path.parent.chmod(0o777)

    assert again == sha256(b"hello")


async def test_what_is_stored_is_listed_page_by_page_in_the_order_of_digests(
    blobs: BlobStore,
) -> None:
    assert await blobs.stored() == []
    digests = sorted([await blobs.put(bytes([number])) for number in range(20)])
    pages: list[list[str]] = []
    after = ""
    while page := [one.digest for one in await blobs.stored(after=after, limit=7)]:
        pages.append(page)
        after = page[-1]

    assert [digest for page in pages for digest in page] == digests
    assert [len(page) for page in pages] == [7, 7, 6]
    assert {one.size for one in await blobs.stored()} == {1}


async def test_putting_again_is_noted(tmp_path: Path) -> None:
    clock = ManualClock()

    async def main(blobs: BlobStore) -> None:
        digest = await blobs.put(b"hello")
        assert [one.put_at for one in await blobs.stored()] == [clock.now()]
        clock.advance(60)
        assert await blobs.put(b"hello") == digest
        assert [one.put_at for one in await blobs.stored()] == [clock.now()]

    await main(MemoryBlobStore(clock=clock))
    await main(DirectoryBlobStore(tmp_path, clock=clock))


async def test_only_contents_are_listed_of_a_directory(tmp_path: Path) -> None:
    blobs = DirectoryBlobStore(tmp_path)
    digest = await blobs.put(b"hello")
    (tmp_path / digest[:2] / f".{digest}.1-1.tmp").write_bytes(b"hel")
    (tmp_path / digest[:2] / "notes").write_bytes(b"")
    (tmp_path / "zz").write_bytes(b"")
    (tmp_path / digest[:2] / ("f" * 64)).symlink_to(tmp_path / "nowhere")  # as if deleted meanwhile

    assert [one.digest for one in (await blobs.stored())] == [digest]


A, B = BlobReference("a" * 64, 1, "image/png"), BlobReference("b" * 64, 2, "audio/wav")


def as_json(reference: BlobReference) -> dict[str, Any]:
    return {"$blob": reference.digest, "size": reference.size, "type": reference.media_type}


IMAGE = {"type": "image", "blob": as_json(A)}
CALL = {
    "type": "tool_call",
    "id": "c",
    "name": "look",
    "arguments": {"part": IMAGE, "q": as_json(B)},
}
TEXT = {"type": "text", "text": "x", "blob": as_json(B)}


@pytest.mark.parametrize(
    ("payload", "references"),
    [
        ({}, []),
        ({"text": "$blob"}, []),
        (as_json(A), [A]),
        ({"parts": [{"type": "image", "data": as_json(A)}, [as_json(B)], as_json(A)]}, [A, B, A]),
        ({"more": {"deep": {"er": as_json(B)}}, "$blob": 1, "size": as_json(A)}, [B, A]),
        ({"$blob": "a", "size": "1", "type": "x"}, []),
        ({"$blob": "a", "size": 1}, []),
        ({"$blob": "a" * 63, "size": 1, "type": "x"}, []),
        ({"$blob": "A" * 64, "size": 1, "type": "x"}, []),
        ({"$blob": "a" * 64 + "\n", "size": 1, "type": "x"}, []),
        ({"$blob": "a" * 64, "size": -1, "type": "x"}, []),
        ({"$blob": "a" * 64, "size": True, "type": "x"}, []),
        ({**as_json(A), "card": "4111"}, []),
        ([None, 1, 1.5, True, "text", as_json(A)], [A]),
    ],
)
def test_references_are_found_anywhere_in_an_applications_payload(
    payload: Any, references: list[BlobReference]
) -> None:
    assert list(blob_refs("user.note", payload)) == references


def test_a_payload_of_any_depth_is_searched() -> None:
    payload: Any = as_json(A)
    for _ in range(10_000):
        payload = [{"deeper": payload}]

    assert list(blob_refs("user.note", payload)) == [A]


@pytest.mark.parametrize(
    ("kind", "payload", "references"),
    [
        (k.RUN_STARTED, {"input": [{"parts": [IMAGE, TEXT, IMAGE]}, {"content": "x"}]}, [A, A]),
        (k.TURN_REQUESTED, {"input": [{"parts": [IMAGE]}]}, [A]),
        (k.LLM_COMPLETED, {"reply": {"parts": [IMAGE, CALL]}}, [A]),
        (k.LLM_COMPLETED, {"reply": {"parts": [{**IMAGE, "blob": {"deep": as_json(A)}}]}}, []),
        (k.LLM_COMPLETED, {"reply": {"parts": [{**IMAGE, "note": as_json(B)}]}}, [A]),
        (k.TOOL_REQUESTED, {"args": as_json(A)}, []),
        (k.TOOL_REQUESTED, {"args": {"input": [{"parts": [IMAGE]}]}}, []),
        (k.RUN_STARTED, {"input": [as_json(A)], "config": as_json(A)}, []),
        ("lib.novel.kind", {"file": as_json(A)}, []),
        (k.RUN_STARTED, {"input": "x"}, []),
    ],
)
def test_in_our_own_events_only_attachments_refer_to_blobs(
    kind: str, payload: Any, references: list[BlobReference]
) -> None:
    assert list(blob_refs(kind, payload)) == references
    assert blob_digests(kind, payload) == {each.digest for each in references}
