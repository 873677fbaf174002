"""A folder and its index stay in step, whatever happens to files, manifest or process."""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib.errors import LibError

from .folder_kit import NOTES, NOTHING, Crash, Shelf, ingest, texts, write


async def test_skipped_files_are_reported_and_those_that_turned_binary_are_forgotten(
    folder: Path, tmp_path: Path
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    write(folder, "large.md", "x" * 2_000)
    await ingest(folder, shelf, manifest=manifest)
    write(folder, "more/notes.txt", "\0")

    report = await ingest(folder, shelf, manifest=manifest, max_bytes=1_000)

    assert report == replace(
        NOTHING,
        unchanged=1,
        removed=2,
        skipped=[("large.md", "larger than 1000 bytes"), ("more/notes.txt", "binary")],
        chunks=2,
    )
    assert list(shelf.docs) == ["guide.md#0", "guide.md#1"]


async def test_what_cannot_be_read_for_now_stays_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest)
    refuse(monkeypatch, "more", "guide.md")

    report = await ingest(folder, shelf, manifest=manifest)

    assert report == replace(
        NOTHING,
        skipped=[
            ("guide.md", "cannot be read: Permission denied"),
            ("more", "cannot be listed: Permission denied"),
        ],
        chunks=3,
    )
    assert len(shelf.docs) == 3


async def test_nothing_is_forgotten_when_the_folder_itself_cannot_be_listed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest, prefix="p/")
    refuse(monkeypatch, "docs")

    report = await ingest(folder, shelf, manifest=manifest, prefix="p/")

    assert (report.removed, report.chunks, len(shelf.docs)) == (0, 3, 3)


def refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Deny access by name; permissions would not stop a test that runs as root."""

    def guarded(function: Any) -> Any:
        def call(path: Path, *args: Any, **options: Any) -> Any:
            if path.name in names:
                raise PermissionError(13, "Permission denied")
            return function(path, *args, **options)

        return call

    monkeypatch.setattr(os, "scandir", guarded(os.scandir))
    monkeypatch.setattr(Path, "open", guarded(Path.open))


async def test_a_file_that_vanishes_during_the_run_is_reported(
    folder: Path, tmp_path: Path
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    fit = Vanishing(folder / "guide.md")

    report = await ingest(folder, shelf, manifest=manifest, fit=fit)
    again = await ingest(folder, shelf, manifest=manifest)

    assert report.skipped == [("guide.md", "vanished while the folder was read")]
    assert texts(shelf) == {"more/notes.txt#0": NOTES.strip()}
    assert (again.unchanged, again.chunks) == (1, 1)


class Vanishing:
    """Removes a file while the embedder is being fitted, and once more while it is not there."""

    fingerprint = ""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    async def fit(self, texts: Iterable[str]) -> None:
        await asyncio.to_thread(self.victim.unlink)


async def test_lost_chunks_are_ingested_again(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest)
    await shelf.delete(["guide.md#1"])

    report = await ingest(folder, shelf, manifest=manifest)

    assert report == replace(NOTHING, unchanged=2, chunks=3, embedded=2)
    assert len(shelf.docs) == 3


async def test_a_missing_folder_is_an_error_and_forgets_nothing(
    folder: Path, tmp_path: Path
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest)

    with pytest.raises(FileNotFoundError):
        await ingest(tmp_path / "none", shelf, manifest=manifest)

    assert len(shelf.docs) == 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        "null",
        '{"format": "lib.ingest", "version": 99}',
        '{"format": "x", "version": 1}',
    ],
)
async def test_a_damaged_or_foreign_manifest_is_refused(
    folder: Path, tmp_path: Path, content: str
) -> None:
    write(tmp_path, "manifest.json", content)

    with pytest.raises(LibError, match=r"manifest\.json is no ingest manifest"):
        await ingest(folder, Shelf(), manifest=tmp_path / "manifest.json")


@pytest.mark.parametrize("crash_at", range(1, 12))
async def test_a_run_that_dies_anywhere_is_completed_by_the_next_one(
    folder: Path, tmp_path: Path, crash_at: int
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest)
    write(folder, "guide.md", "# Other\n\nOne.\n\n# Two\n\nTwo.\n\n# Three\n\nThree.\n")
    write(folder, "new.md", "New.")
    (folder / "more" / "notes.txt").unlink()
    shelf.crash_at = shelf.calls + crash_at

    crashed = False
    try:
        await ingest(folder, shelf, manifest=manifest)
    except Crash:
        crashed = True
    shelf.crash_at = -1
    write(folder, "guide.md", "# Third version\n")
    await ingest(folder, shelf, manifest=manifest)

    assert crashed == (crash_at <= 9)  # the index gets 1 and 4 deletions, and 4 additions
    assert texts(shelf) == {"guide.md#0": "# Third version", "new.md#0": "New."}
