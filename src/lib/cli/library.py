"""The documents of the demo: a folder, kept in step with an index under the data folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from lib._util.json import digest
from lib.errors import LibError
from lib.ingest import IngestReport, ingest_folder
from lib.ingest.progress import progress_bar
from lib.vector import EmbeddingIndex, LSAEmbedder, SQLiteVectorStore

DIMENSION: Final = 512


@dataclass(frozen=True, slots=True)
class Library:
    """Documents that can be searched."""

    index: EmbeddingIndex
    report: IngestReport

    @property
    def summary(self) -> str:
        """The number of files and passages, in words."""
        report = self.report
        files = report.added + report.changed + report.unchanged
        new = report.added + report.changed
        skipped = f", {len(report.skipped)} skipped" if report.skipped else ""
        return f"{files} files ({new} new or changed{skipped}), {report.chunks} passages"

    async def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return the best passages, each with its source and line."""
        hits = await self.index.search(query, k)
        return [
            {
                "source": hit.meta["source"],
                "line": hit.meta["line"],
                **({"heading": hit.meta["heading"]} if "heading" in hit.meta else {}),
                "text": hit.text,
            }
            for hit in hits
        ]


def index_home(folder: Path, data: Path) -> Path:
    """Return the directory of this folder's index, created if it is missing."""
    home = data / f"library-{digest(str(folder.resolve()))[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    return home


@asynccontextmanager
async def open_library(folder: Path, home: Path, console: Console) -> AsyncGenerator[Library]:
    """Bring the index of the folder up to date and open it, with a progress bar meanwhile.

    Args:
        folder: the documents.
        home: where their index is kept; see `index_home`.
        console: shows the bar.
    """
    store = SQLiteVectorStore(str(home / "vectors.db"), dimension=DIMENSION)
    await store.setup()
    try:
        embedder = await _embedder(home / "lsa.npz")
        index = EmbeddingIndex(store, embedder, hybrid="auto")
        report = await _ingest(folder, home, index, embedder, console)
        await embedder.save(home / "lsa.npz")
        yield Library(index, report)
    finally:
        await store.close()


async def _embedder(path: Path) -> LSAEmbedder:
    """Return the saved embedder, a new one if it cannot be loaded."""
    try:
        return await LSAEmbedder.load(path)
    except (OSError, LibError):
        return LSAEmbedder(DIMENSION)


async def _ingest(
    folder: Path, home: Path, index: EmbeddingIndex, embedder: LSAEmbedder, console: Console
) -> IngestReport:
    manifest = home / "manifest.json"
    try:
        with progress_bar(console) as show:
            report = await ingest_folder(
                folder, index, manifest=manifest, fit=embedder, on_progress=show
            )
    except ValueError as error:  # there are files, and not one word in them
        raise click.UsageError(f"nothing in {str(folder)!r} can be searched: {error}") from error
    if not report.chunks:
        raise click.UsageError(f"there is no text, Markdown or HTML file in {str(folder)!r}")
    return report
