"""Listings of file access: what they tell, in which order, and what they leave out."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib.tools.builtin import FileAccess
from lib.tools.builtin.files.budget import Budget
from lib.tools.builtin.files.listing import list_entries

from .access_kit import refusal


def test_a_listing_leaves_out_what_neither_name_may_open(
    found: type[FileAccess], root: Path
) -> None:
    for name in (".git", ".env", "id_rsa", "x.pem.bak", "ok.txt"):
        (root / "a" / "b" / name).write_text("", encoding="utf-8")
    (root / "a" / ".aws").mkdir()
    (root / "a" / ".aws" / "plain.txt").write_text("", encoding="utf-8")
    (root / "cloud").symlink_to("a/.aws")

    listed = found(root).list("a/b")["entries"]
    assert listed == [{"name": "ok.txt", "type": "file", "size": 0}]
    every: Any = found(root, allow_hidden=True, deny=()).list("a/b")["entries"]
    shown = [".env", ".git", "id_rsa", "ok.txt", "x.pem.bak"]
    assert [entry["name"] for entry in every] == shown
    open_to_hidden = found(root, allow_hidden=True)
    assert open_to_hidden.list("a/.aws")["entries"] == []
    assert open_to_hidden.list("cloud")["entries"] == []
    assert open_to_hidden.list(f"{root}/a/.aws")["entries"] == []


def test_an_absolute_listing_is_that_of_the_relative_path(
    found: type[FileAccess], tmp_path: Path
) -> None:
    root = tmp_path / ".ssh" / "id_rsa"
    (root / "a").mkdir(parents=True)

    assert found(root).list(str(root))["entries"] == found(root).list()["entries"] != []


def test_a_listing_is_paged_in_a_stable_order(found: type[FileAccess], root: Path) -> None:
    for number in range(25):
        (root / "a" / "b" / f"{number:02d}").mkdir()
    access = found(root)

    read: list[object] = []
    offset: Any = 0
    while offset is not None:
        one: dict[str, Any] = access.list("a/b", offset=offset, limit=7)
        read += one["entries"]
        assert one["truncated"] is (one["next_offset"] is not None)
        offset = one["next_offset"]
    assert read == [
        {"name": f"{number:02d}", "type": "directory", "size": None} for number in range(25)
    ]
    assert access.list("a/b", offset=99)["entries"] == access.list("a/b", limit=0)["entries"] == []
    assert access.list("a/b", limit=10**9)["truncated"] is False


def test_a_listing_tells_types_without_following_a_link(
    found: type[FileAccess], root: Path
) -> None:
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    (root / "out").symlink_to("../secret.txt")
    (root / "dir").symlink_to("a")

    assert found(root).list() == {
        "path": ".",
        "entries": [
            {"name": "a", "type": "directory", "size": None},
            {"name": "dir", "type": "link", "size": None},
            {"name": "loop", "type": "link", "size": None},
            {"name": "out", "type": "link", "size": None},
            {"name": "pipe", "type": "other", "size": None},
        ],
        "offset": 0,
        "next_offset": None,
        "truncated": False,
    }


def test_what_is_gone_when_it_is_looked_at_is_still_listed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        name = "gone.txt"

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            return follow_symlinks

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise FileNotFoundError

    @contextmanager
    def scandir(where: object) -> Generator[list[Gone]]:
        yield [Gone()]

    access = FileAccess(root)
    monkeypatch.setattr(os, "scandir", scandir)

    assert access.list("a")["entries"] == [{"name": "gone.txt", "type": "other", "size": None}]


def test_a_directory_of_too_many_names_is_refused(root: Path) -> None:
    error = refusal(lambda: FileAccess(root).list_within(".", budget=Budget(scan_bytes=63)))

    assert error.code == "too_large"


def test_names_are_judged_in_proportion_to_the_page(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"{number:03d}").mkdir()
    judged = 0

    def keep(name: bytes, is_directory: bool) -> bool:
        nonlocal judged
        judged += 1
        return is_directory and name != b"001"

    page, more = list_entries(str(tmp_path), keep=keep, offset=0, limit=10, budget=Budget())

    assert [entry.name for entry in page] == [b"000", *(b"%03d" % n for n in range(2, 11))]
    assert (more, judged) == (True, 12)
    page, more = list_entries(str(tmp_path), keep=keep, offset=490, limit=10, budget=Budget())
    assert (len(page), more) == (9, False)
