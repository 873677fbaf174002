"""A folder and its index stay in step, whatever happens to files, embedder, manifest or process."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib.errors import LibError
from lib.ingest import Index, IngestReport, Splitter, ingest_folder
from lib.testing.aio import run
from lib.vector import Doc, EmbeddingIndex, InMemoryVectorStore, LSAEmbedder

GUIDE = "# Guide\n\nEngines run agents.\n\n## Install\n\nType make demo.\n"
NOTES = "Plain notes about vectors.\n"
NOTHING = IngestReport(added=0, changed=0, unchanged=0, removed=0, skipped=[], chunks=0, embedded=0)


class Crash(Exception):
    """What a test raises where a process would die."""


class Shelf:
    """An index without an embedder, which keeps documents and can fail at any call."""

    def __init__(self) -> None:
        self.docs: dict[str, Doc] = {}
        self.calls = 0
        self.crash_at = -1

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.crash_at:
            raise Crash

    async def add(self, docs: Iterable[Doc]) -> None:
        for doc in docs:
            self._call()
            self.docs[doc.id] = doc

    async def get(self, ids: Iterable[str]) -> list[Doc]:
        return [self.docs[name] for name in ids if name in self.docs]

    async def delete(self, ids: Iterable[str]) -> None:
        for name in ids:
            self._call()
            self.docs.pop(name, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    write(root, "guide.md", GUIDE)
    write(root, "more/notes.txt", NOTES)
    return root


def write(root: Path, path: str, content: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content, "utf-8")


def ingest(folder: Path, index: Index, **options: Any) -> IngestReport:
    return run(ingest_folder(folder, index, **options))


def texts(shelf: Shelf) -> dict[str, str]:
    return {name: doc.text for name, doc in sorted(shelf.docs.items())}


def test_files_become_documents_with_source_and_position(folder: Path) -> None:
    shelf = Shelf()

    report = ingest(folder, shelf)

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


def test_unchanged_files_are_left_alone(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf()
    ingest(folder, shelf, manifest=tmp_path / "manifest.json")
    calls = shelf.calls

    report = ingest(folder, shelf, manifest=str(tmp_path / "manifest.json"))

    assert report == replace(NOTHING, unchanged=2, chunks=3)
    assert shelf.calls == calls


def test_changed_and_removed_files_leave_nothing_stale(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    write(folder, "empty.md", "")
    ingest(folder, shelf, manifest=manifest)
    write(folder, "guide.md", "Now it is short.\n")
    write(folder, "new.rst", "New.\n")
    shutil.rmtree(folder / "more")

    report = ingest(folder, shelf, manifest=manifest)

    assert report == IngestReport(
        added=1, changed=1, unchanged=1, removed=1, skipped=[], chunks=2, embedded=2
    )
    assert texts(shelf) == {"guide.md#0": "Now it is short.", "new.rst#0": "New."}


def test_without_a_manifest_everything_is_ingested_again(folder: Path) -> None:
    shelf = Shelf()
    ingest(folder, shelf)

    report = ingest(folder, shelf)

    assert report == replace(NOTHING, added=2, chunks=3, embedded=3)
    assert len(shelf.docs) == 3


def test_skipped_files_are_reported_and_those_that_turned_binary_are_forgotten(
    folder: Path, tmp_path: Path
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    write(folder, "large.md", "x" * 2_000)
    ingest(folder, shelf, manifest=manifest)
    write(folder, "more/notes.txt", "\0")

    report = ingest(folder, shelf, manifest=manifest, max_bytes=1_000)

    assert report == replace(
        NOTHING,
        unchanged=1,
        removed=2,
        skipped=[("large.md", "larger than 1000 bytes"), ("more/notes.txt", "binary")],
        chunks=2,
    )
    assert list(shelf.docs) == ["guide.md#0", "guide.md#1"]


def test_what_cannot_be_read_for_now_stays_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest)
    refuse(monkeypatch, "more", "guide.md")

    report = ingest(folder, shelf, manifest=manifest)

    assert report == replace(
        NOTHING,
        skipped=[
            ("guide.md", "cannot be read: Permission denied"),
            ("more", "cannot be listed: Permission denied"),
        ],
        chunks=3,
    )
    assert len(shelf.docs) == 3


def test_nothing_is_forgotten_when_the_folder_itself_cannot_be_listed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest, prefix="p/")
    refuse(monkeypatch, "docs")

    report = ingest(folder, shelf, manifest=manifest, prefix="p/")

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


def test_a_file_that_vanishes_during_the_run_is_reported(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    fit = Vanishing(folder / "guide.md")

    report = ingest(folder, shelf, manifest=manifest, fit=fit)
    again = ingest(folder, shelf, manifest=manifest)

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


class Careless(Shelf):
    """Removes a file while it is asked what it holds, before the embedder is fitted."""

    def __init__(self, victim: Path) -> None:
        super().__init__()
        self.victim = victim

    async def get(self, ids: Iterable[str]) -> list[Doc]:
        await asyncio.to_thread(self.victim.unlink)
        return await super().get(ids)


def test_a_file_that_vanishes_before_the_fit_is_not_learned(folder: Path, tmp_path: Path) -> None:
    shelf, lsa = Careless(folder / "guide.md"), LSAEmbedder(8)
    ingest(folder, shelf, manifest=tmp_path / "manifest.json", fit=LSAEmbedder(8))

    report = ingest(folder, shelf, manifest=tmp_path / "manifest.json", fit=lsa)

    only_notes = LSAEmbedder(8)
    run(only_notes.fit([NOTES]))
    assert report.skipped == [("guide.md", "vanished while the folder was read")]
    assert lsa.fingerprint == only_notes.fingerprint


def test_lost_chunks_are_ingested_again(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest)
    run(shelf.delete(["guide.md#1"]))

    report = ingest(folder, shelf, manifest=manifest)

    assert report == replace(NOTHING, unchanged=2, chunks=3, embedded=2)
    assert len(shelf.docs) == 3


def test_other_ways_to_cut_cut_everything_again(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest, splitter=Splitter(max_chars=9, overlap=0))

    report = ingest(folder, shelf, manifest=manifest)

    assert report == replace(NOTHING, unchanged=2, chunks=3, embedded=3)
    assert len(shelf.docs) == 3


def test_folders_share_an_index_behind_prefixes(folder: Path, tmp_path: Path) -> None:
    shelf = Shelf()
    ingest(folder, shelf, manifest=tmp_path / "a.json", prefix="a/")
    ingest(folder, shelf, manifest=tmp_path / "b.json", prefix="b/")
    shutil.rmtree(folder / "more")

    report = ingest(folder, shelf, manifest=tmp_path / "a.json", prefix="a/")

    assert report.removed == 1
    assert list(shelf.docs) == [
        *("a/guide.md#0", "a/guide.md#1", "b/guide.md#0", "b/guide.md#1", "b/more/notes.txt#0")
    ]
    assert shelf.docs["b/guide.md#0"].meta["source"] == "b/guide.md"


def test_progress_counts_every_file_once(folder: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest)
    write(folder, "guide.md", "changed")

    def note(done: int, total: int, source: str) -> None:
        seen.append((done, total, source))

    ingest(folder, shelf, manifest=manifest, on_progress=note)

    assert seen == [(1, 2, "more/notes.txt"), (2, 2, "guide.md")]


def test_encodings_and_long_names_are_told(tmp_path: Path) -> None:
    shelf, deep = Shelf(), "d" * 200
    path = tmp_path / deep / deep / deep / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"caf\xe9")

    ingest(tmp_path, shelf)

    ((name, doc),) = shelf.docs.items()
    assert len(name) < 100
    assert doc.meta == {
        "source": f"{deep}/{deep}/{deep}/a.txt",
        "title": "a",
        "line": 1,
        "end_line": 1,
        "encoding": "latin-1",
    }


def test_a_missing_folder_is_an_error_and_forgets_nothing(folder: Path, tmp_path: Path) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest)

    with pytest.raises(FileNotFoundError):
        ingest(tmp_path / "none", shelf, manifest=manifest)

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
def test_a_damaged_or_foreign_manifest_is_refused(
    folder: Path, tmp_path: Path, content: str
) -> None:
    write(tmp_path, "manifest.json", content)

    with pytest.raises(LibError, match=r"manifest\.json is no ingest manifest"):
        ingest(folder, Shelf(), manifest=tmp_path / "manifest.json")


@pytest.mark.parametrize("crash_at", range(1, 12))
def test_a_run_that_dies_anywhere_is_completed_by_the_next_one(
    folder: Path, tmp_path: Path, crash_at: int
) -> None:
    shelf, manifest = Shelf(), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest)
    write(folder, "guide.md", "# Other\n\nOne.\n\n# Two\n\nTwo.\n\n# Three\n\nThree.\n")
    write(folder, "new.md", "New.")
    (folder / "more" / "notes.txt").unlink()
    shelf.crash_at = shelf.calls + crash_at

    crashed = False
    try:
        ingest(folder, shelf, manifest=manifest)
    except Crash:
        crashed = True
    shelf.crash_at = -1
    write(folder, "guide.md", "# Third version\n")
    ingest(folder, shelf, manifest=manifest)

    assert crashed == (crash_at <= 9)  # 1 and 4 deletions are asked, and 4 additions
    assert texts(shelf) == {"guide.md#0": "# Third version", "new.md#0": "New."}


# -- embedders that learn ---------------------------------------------------------------------


def learned(folder: Path, manifest: Path, lsa: LSAEmbedder, index: EmbeddingIndex) -> IngestReport:
    return ingest(folder, index, manifest=manifest, fit=lsa)


def test_a_learning_embedder_is_fitted_again_when_anything_changes(
    folder: Path, tmp_path: Path
) -> None:
    store, lsa, manifest = InMemoryVectorStore(), LSAEmbedder(8), tmp_path / "manifest.json"
    index = EmbeddingIndex(store, lsa, hybrid=True)

    first = learned(folder, manifest, lsa, index)
    fitted = lsa.fingerprint
    second = learned(folder, manifest, lsa, index)
    kept = lsa.fingerprint
    write(folder, "new.md", "Something about traces.\n")
    third = learned(folder, manifest, lsa, index)

    assert first == replace(NOTHING, added=2, chunks=3, embedded=3)
    assert second == replace(NOTHING, unchanged=2, chunks=3)
    assert third == replace(NOTHING, added=1, unchanged=2, chunks=4, embedded=4)
    assert fitted == kept != lsa.fingerprint
    (hit, *_) = run(index.search("which traces?", 1))
    assert hit.id == "new.md#0"


def test_a_lost_or_other_model_embeds_everything_again(folder: Path, tmp_path: Path) -> None:
    store, manifest = InMemoryVectorStore(), tmp_path / "manifest.json"
    lsa = LSAEmbedder(8)
    learned(folder, manifest, lsa, EmbeddingIndex(store, lsa))

    unfitted = LSAEmbedder(8)
    report = learned(folder, manifest, unfitted, EmbeddingIndex(store, unfitted))

    assert report == replace(NOTHING, unchanged=2, chunks=3, embedded=3)
    assert unfitted.fingerprint == lsa.fingerprint


def test_a_removed_file_is_unlearned(folder: Path, tmp_path: Path) -> None:
    store, lsa, manifest = InMemoryVectorStore(), LSAEmbedder(8), tmp_path / "manifest.json"
    index = EmbeddingIndex(store, lsa)
    learned(folder, manifest, lsa, index)
    (folder / "guide.md").unlink()

    report = learned(folder, manifest, lsa, index)
    shutil.rmtree(folder / "more")
    empty = learned(folder, manifest, lsa, index)

    assert report == replace(NOTHING, unchanged=1, removed=1, chunks=1, embedded=1)
    assert empty == replace(NOTHING, removed=1)
    assert run(store.count()) == 0


def test_a_crash_while_all_is_embedded_again_is_made_good(folder: Path, tmp_path: Path) -> None:
    shelf, lsa, manifest = Shelf(), LSAEmbedder(8), tmp_path / "manifest.json"
    ingest(folder, shelf, manifest=manifest, fit=lsa)
    run(lsa.save(tmp_path / "lsa.npz"))
    write(folder, "new.md", "New.")
    shelf.crash_at = shelf.calls + 5

    with pytest.raises(Crash):
        ingest(folder, shelf, manifest=manifest, fit=lsa)
    restarted = run(LSAEmbedder.load(tmp_path / "lsa.npz"))
    report = ingest(folder, shelf, manifest=manifest, fit=restarted)

    assert report.embedded == report.chunks == 4
    assert restarted.fingerprint == lsa.fingerprint
