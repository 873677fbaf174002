"""Tests which files are read and which are left out, and how bytes become text."""

import hashlib
import os
from pathlib import Path

import pytest

from lib.ingest.files import READERS, Content, Unreadable, list_folder, read_file


def write(root: Path, path: str, content: bytes | str = "text") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_documents_are_found_and_everything_else_is_passed_over(tmp_path: Path) -> None:
    for path in ("b.md", "a/c.TXT", "a/deep/er/d.html", "e.rst", "f (1).markdown", "ünï.htm"):
        write(tmp_path, path)
    for path in (
        *("g.png", "Makefile", "code.py", ".hidden.md", ".git/h.md", "node_modules/i.md"),
        *("__pycache__/j.md", "venv/k.md", "py/env/pyvenv.cfg", "py/env/lib/l.md"),
    ):
        write(tmp_path, path)

    listing = list_folder(tmp_path, tuple(READERS))

    assert listing.files == [
        *("a/c.TXT", "a/deep/er/d.html", "b.md", "e.rst", "f (1).markdown", "ünï.htm")
    ]
    assert (listing.skipped, listing.unlisted) == ([], [])
    assert list_folder(tmp_path, (".py",)).files == ["code.py"]


def test_links_and_odd_files_are_reported_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "a/real.md")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "link.md").symlink_to(tmp_path / "a" / "real.md")
    (tmp_path / "broken.md").symlink_to("nowhere")
    (tmp_path / "self.md").symlink_to("self.md")
    (tmp_path / "picture.png").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.txt")

    listing = list_folder(tmp_path, tuple(READERS))

    assert listing.files == ["a/real.md"]
    assert listing.skipped == [
        ("a/loop", "symbolic link"),
        ("broken.md", "symbolic link"),
        ("link.md", "symbolic link"),
        ("pipe.txt", "no regular file"),
        ("self.md", "symbolic link"),
    ]


def test_a_name_that_is_no_text_is_reported(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.md")).write_text("x", "utf-8")
    except OSError:
        pytest.skip("this file system takes only names that are text")

    assert list_folder(tmp_path, (".md",)).skipped == [("caf\ufffd.md", "its name is no text")]


def test_a_folder_that_cannot_be_listed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a/b.md")
    write(tmp_path, "c.md")
    refuse_to_list(monkeypatch, "a")

    listing = list_folder(tmp_path, (".md",))

    assert listing.files == ["c.md"]
    assert listing.unlisted == ["a"]
    assert listing.skipped == [("a", "cannot be listed: Permission denied")]


def refuse_to_list(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make one folder unlistable; permissions would not stop a test that runs as root."""
    scandir = os.scandir

    def guarded(path: Path) -> object:
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)


def test_a_root_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list_folder(tmp_path / "none", (".md",))
    with pytest.raises(NotADirectoryError):
        list_folder(write(tmp_path, "file.md"), (".md",))


@pytest.mark.parametrize(
    ("raw", "text", "encoding"),
    [
        (b"", "", "utf-8"),
        ("naïve 猫".encode(), "naïve 猫", "utf-8"),
        (b"\xef\xbb\xbfmark", "mark", "utf-8"),
        ("猫\n".encode("utf-16"), "猫\n", "utf-16le"),
        (b"\xfe\xff\x00a", "a", "utf-16be"),
        ("猫".encode("utf-32"), "猫", "utf-32le"),
        (b"\x00\x00\xfe\xff\x00\x00\x00a", "a", "utf-32be"),
        (b"caf\xe9", "café", "windows-1252"),
        (b"\x80", "€", "windows-1252"),
        (b"a\r\nb\rc\n", "a\nb\nc\n", "utf-8"),
        (b"\x1b[1mbold\x1b[0m \x0c", "\x1b[1mbold\x1b[0m \x0c", "utf-8"),
    ],
)
def test_bytes_become_text(tmp_path: Path, raw: bytes, text: str, encoding: str) -> None:
    path = write(tmp_path, "a.txt", raw)

    assert read_file(path, 100) == Content(text, hashlib.sha256(raw).hexdigest(), encoding)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "binary"),
        (b"a \x00 b", "binary"),
        ("a\x00b".encode("utf-16"), "binary"),
        (b"\xfe\xed\xfa\xce\x07\x01", "binary"),
        (b"\xff\xfea", "begins like utf-16le, but is not"),
        (b"\xef\xbb\xbf\xff", "begins like utf-8, but is not"),
        (b"12345678901", "larger than 10 bytes"),
    ],
)
def test_what_is_no_text_is_left_out(tmp_path: Path, raw: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read_file(write(tmp_path, "a.txt", raw), 10)

    assert (refused.value.reason, refused.value.gone) == (reason, True)


def test_a_page_may_name_its_encoding(tmp_path: Path) -> None:
    raw = "<meta charset=koi8-r><p>да".encode("koi8-r")

    page = read_file(write(tmp_path, "a.html", raw), 100)
    text = read_file(write(tmp_path, "a.txt", raw), 100)

    assert (page.text, page.encoding) == ("<meta charset=koi8-r><p>да", "koi8-r")
    assert text.encoding == "windows-1252"


def test_a_page_in_an_encoding_that_browsers_refuse_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="in an encoding that is not read"):
        read_file(write(tmp_path, "a.html", b"<meta charset=iso-2022-kr>\x1b$)C"), 100)


def test_a_file_that_vanished_is_gone_and_one_that_is_refused_is_not(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as vanished:
        read_file(tmp_path / "none.md", 10)
    with pytest.raises(Unreadable) as refused:
        read_file(tmp_path, 10)

    assert (vanished.value.reason, vanished.value.gone) == (
        "vanished while the folder was read",
        True,
    )
    assert (refused.value.reason, refused.value.gone) == ("cannot be read: Is a directory", False)
