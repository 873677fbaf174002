"""The bar shows how many files are done."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from lib.ingest import ingest_folder
from lib.ingest.progress import progress_bar
from lib.vector import EmbeddingIndex, InMemoryVectorStore, LSAEmbedder


async def test_the_bar_ends_full(tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "[red]c.md"):
        (tmp_path / name).write_text(f"# {name}\n", "utf-8")
    lsa = LSAEmbedder(4)
    index = EmbeddingIndex(InMemoryVectorStore(), lsa)
    out = io.StringIO()

    with progress_bar(Console(file=out, width=100), label="reading") as move:
        await ingest_folder(tmp_path, index, fit=lsa, on_progress=move)

    assert out.getvalue().startswith("reading")
    assert "3/3" in out.getvalue()


def test_the_bar_is_drawn_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as move:
        move(1, 2, "[red]a.md")

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "1/2" in shown.err
    assert "[red]a.md" in shown.err
