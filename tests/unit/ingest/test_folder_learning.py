"""Embedders that learn are fitted to a folder, and again when it changes."""

import asyncio
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from lib.ingest import IngestReport
from lib.vector import Doc, EmbeddingIndex, InMemoryVectorStore, LSAEmbedder

from .folder_kit import NOTES, NOTHING, Crash, Shelf, ingest, write


async def learned(
    folder: Path, manifest: Path, lsa: LSAEmbedder, index: EmbeddingIndex
) -> IngestReport:
    return await ingest(folder, index, manifest=manifest, fit=lsa)


async def test_a_learning_embedder_is_fitted_again_when_anything_changes(
    folder: Path, tmp_path: Path
) -> None:
    store, lsa, manifest = InMemoryVectorStore(), LSAEmbedder(8), tmp_path / "manifest.json"
    index = EmbeddingIndex(store, lsa, hybrid=True)

    first = await learned(folder, manifest, lsa, index)
    fitted = lsa.fingerprint
    second = await learned(folder, manifest, lsa, index)
    kept = lsa.fingerprint
    write(folder, "new.md", "Something about traces.\n")
    third = await learned(folder, manifest, lsa, index)

    assert first == replace(NOTHING, added=2, chunks=3, embedded=3)
    assert second == replace(NOTHING, unchanged=2, chunks=3)
    assert third == replace(NOTHING, added=1, unchanged=2, chunks=4, embedded=4)
    assert fitted == kept != lsa.fingerprint
    (hit, *_) = await index.search("which traces?", 1)
    assert hit.id == "new.md#0"


async def test_a_lost_or_other_model_embeds_everything_again(folder: Path, tmp_path: Path) -> None:
    store, manifest = InMemoryVectorStore(), tmp_path / "manifest.json"
    lsa = LSAEmbedder(8)
    await learned(folder, manifest, lsa, EmbeddingIndex(store, lsa))

    unfitted = LSAEmbedder(8)
    report = await learned(folder, manifest, unfitted, EmbeddingIndex(store, unfitted))

    assert report == replace(NOTHING, unchanged=2, chunks=3, embedded=3)
    assert unfitted.fingerprint == lsa.fingerprint


async def test_a_removed_file_is_unlearned(folder: Path, tmp_path: Path) -> None:
    store, lsa, manifest = InMemoryVectorStore(), LSAEmbedder(8), tmp_path / "manifest.json"
    index = EmbeddingIndex(store, lsa)
    await learned(folder, manifest, lsa, index)
    (folder / "guide.md").unlink()

    report = await learned(folder, manifest, lsa, index)
    shutil.rmtree(folder / "more")
    empty = await learned(folder, manifest, lsa, index)

    assert report == replace(NOTHING, unchanged=1, removed=1, chunks=1, embedded=1)
    assert empty == replace(NOTHING, removed=1)
    assert (await store.count()) == 0


class Careless(Shelf):
    """Removes a file during `get`, before the embedder is fitted."""

    def __init__(self, victim: Path) -> None:
        super().__init__()
        self.victim = victim

    async def get(self, ids: Iterable[str]) -> list[Doc]:
        await asyncio.to_thread(self.victim.unlink)
        return await super().get(ids)


async def test_a_file_that_vanishes_before_the_fit_is_not_learned(
    folder: Path, tmp_path: Path
) -> None:
    shelf, lsa = Careless(folder / "guide.md"), LSAEmbedder(8)
    await ingest(folder, shelf, manifest=tmp_path / "manifest.json", fit=LSAEmbedder(8))

    report = await ingest(folder, shelf, manifest=tmp_path / "manifest.json", fit=lsa)

    only_notes = LSAEmbedder(8)
    await only_notes.fit([NOTES])
    assert report.skipped == [("guide.md", "vanished while the folder was read")]
    assert lsa.fingerprint == only_notes.fingerprint


async def test_a_crash_while_all_is_embedded_again_is_made_good(
    folder: Path, tmp_path: Path
) -> None:
    shelf, lsa, manifest = Shelf(), LSAEmbedder(8), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest, fit=lsa)
    await lsa.save(tmp_path / "lsa.npz")
    write(folder, "new.md", "New.")
    shelf.crash_at = shelf.calls + 5

    with pytest.raises(Crash):
        await ingest(folder, shelf, manifest=manifest, fit=lsa)
    restarted = await LSAEmbedder.load(tmp_path / "lsa.npz")
    report = await ingest(folder, shelf, manifest=manifest, fit=restarted)

    assert report.embedded == report.chunks == 4
    assert restarted.fingerprint == lsa.fingerprint
