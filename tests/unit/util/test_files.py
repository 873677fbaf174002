"""A file is replaced as a whole or not at all."""

from pathlib import Path

import pytest

from lib._util.files import write_atomically


def test_content_is_replaced_and_directories_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"

    write_atomically(path, b"old")
    write_atomically(path, b"new")

    assert path.read_bytes() == b"new"
    assert [file.name for file in path.parent.iterdir()] == ["b.json"]


def test_a_failed_write_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()  # a file cannot replace a directory

    with pytest.raises(OSError, match="taken"):
        write_atomically(path, b"new")

    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
