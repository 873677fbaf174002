"""A folder of two files."""

from pathlib import Path

import pytest

from .folder_kit import GUIDE, NOTES, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    write(root, "guide.md", GUIDE)
    write(root, "more/notes.txt", NOTES)
    return root
