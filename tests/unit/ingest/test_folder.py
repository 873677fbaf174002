"""A folder becomes documents of an index, and the index follows what is changed."""

import shutil
from dataclasses import replace
from pathlib import Path

from lib.ingest import IngestReport, Splitter
from lib.vector import Doc

from .folder_kit import NOTHING, Shelf, ingest, texts, write


async def test_files_become_documents_with_source_and_position(folder: Path) -> None:
    shelf = Shelf()

    report = await ingest(folder, shelf)

    assert report == replace(NOTHING, added=2, chunks=3, embedded=3)
    assert list(shelf.docs.values()) == [
        Doc(
            "guide.md#0",
            "# Guide\n\nEngines run agents.",
            {
                "source": "guide.md",
                "title": "Guide",
                "line": 1,
                "end_line": 3,
                "heading": "Guide",
            },
        ),
        Doc(
            "guide.md#1",
            "## Install\n\nType make demo.",
            {
                "source": "guide.md",
                "title": "Guide",
                "line": 5,
                "end_line": 7,
                "heading": "Guide > Install",
            },
        ),
        Doc(
            "more/notes.txt#0",
            "Plain notes about vectors.",
            {"source": "more/notes.txt", "title": "notes", "line": 1, "end_line": 1},
        ),
    ]


async def test_unchanged_files_are_left_alone(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf()
    await ingest(folder, shelf, manifest=tmp_path / "manifest.json")
    calls = shelf.calls

    report = await ingest(folder, shelf, manifest=str(tmp_path / "manifest.json"))

    assert report == replace(NOTHING, unchanged=2, chunks=3)
    assert shelf.calls == calls


async def test_changed_and_removed_files_leave_nothing_stale(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    write(folder, "empty.md", "")
    await ingest(folder, shelf, manifest=manifest)
    write(folder, "guide.md", "Now it is short.\n")
    write(folder, "new.rst", "New.\n")
    shutil.rmtree(folder / "more")

    report = await ingest(folder, shelf, manifest=manifest)

    assert report == IngestReport(
        added=1, changed=1, unchanged=1, removed=1, skipped=[], chunks=2, embedded=2
    )
    assert texts(shelf) == {"guide.md#0": "Now it is short.", "new.rst#0": "New."}


async def test_without_a_manifest_everything_is_ingested_again(folder: Path) -> None:
    shelf = Shelf()
    await ingest(folder, shelf)

    report = await ingest(folder, shelf)

    assert report == replace(NOTHING, added=2, chunks=3, embedded=3)
    assert len(shelf.docs) == 3


async def test_other_ways_to_cut_cut_everything_again(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest, splitter=Splitter(max_chars=9, overlap=0))

    report = await ingest(folder, shelf, manifest=manifest)

    assert report == replace(NOTHING, unchanged=2, chunks=3, embedded=3)
    assert len(shelf.docs) == 3


async def test_folders_share_an_index_behind_prefixes(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf()
    await ingest(folder, shelf, manifest=tmp_path / "a.json", prefix="a/")
    await ingest(folder, shelf, manifest=tmp_path / "b.json", prefix="b/")
    shutil.rmtree(folder / "more")

    report = await ingest(folder, shelf, manifest=tmp_path / "a.json", prefix="a/")

    assert report.removed == 1
    assert list(shelf.docs) == [
        *("a/guide.md#0", "a/guide.md#1", "b/guide.md#0", "b/guide.md#1", "b/more/notes.txt#0")
    ]
    assert shelf.docs["b/guide.md#0"].meta["source"] == "b/guide.md"


async def test_progress_counts_every_file_once(folder: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    await ingest(folder, shelf, manifest=manifest)
    write(folder, "guide.md", "changed")

    def note(done: int, total: int, source: str) -> None:
        seen.append((done, total, source))

    await ingest(folder, shelf, manifest=manifest, on_progress=note)

    assert seen == [(1, 2, "more/notes.txt"), (2, 2, "guide.md")]


async def test_metadata_holds_the_encoding_and_ids_stay_short(tmp_path: Path) -> None:
    shelf, deep = Shelf(), "d" * 200
    path = tmp_path / deep / deep / deep / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"caf\xe9")

    await ingest(tmp_path, shelf)

    ((name, doc),) = shelf.docs.items()
    assert len(name) < 100
    assert doc.meta == {
        "source": f"{deep}/{deep}/{deep}/a.txt",
        "title": "a",
        "line": 1,
        "end_line": 1,
        "encoding": "windows-1252",
    }
