"""File access leaves no descriptor open, whatever happens."""

import errno
import os
import resource
from pathlib import Path

import pytest

from lib.tools.builtin import FileAccess
from lib.tools.builtin.files.budget import Budget
from lib.tools.builtin.files.walk import MAX_DEPTH

from .access_kit import no_leak, open_descriptors, refusal


def test_directories_are_held_to_a_bound(walked: type[FileAccess], root: Path) -> None:
    deep = root.joinpath(*["d"] * MAX_DEPTH)
    deep.mkdir(parents=True)
    (deep / "t.txt").write_text("deep", encoding="utf-8")
    (deep / "d").mkdir()

    access = walked(root)
    with no_leak():
        assert access.read("d/" * MAX_DEPTH + "t.txt")["text"] == "deep"
        assert refusal(lambda: access.list("d/" * (MAX_DEPTH + 1))).code == "blocked"


def test_no_descriptor_is_left_open_whatever_happens(found: type[FileAccess], root: Path) -> None:
    (root / "out").symlink_to("../secret.txt")
    (root / "deep").symlink_to("a/b/../../a/b/../../../secret.txt")
    os.mkfifo(root / "a" / "pipe")
    (root / "bin").write_bytes(b"\0")
    access = found(root)
    with no_leak():
        access.read("a/t.txt")
        access.read("a/b/../t.txt")
        access.list("a")
        for path in ("out", "deep", "a/pipe", "bin", "a/t.txt/x", "a/b/nope", "a/x.pem", "a/b"):
            refusal(lambda p=path: access.read(p))
        spent = Budget()
        spent.cancel()
        refusal(lambda: access.read_within("a/t.txt", offset=1, budget=spent))
        refusal(lambda: access.list_within("a", budget=spent))


def test_a_file_without_a_status_is_closed(
    walked: type[FileAccess], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = walked(root)

    def fail(handle: int) -> os.stat_result:
        raise OSError(errno.EIO, "")

    with no_leak(), monkeypatch.context() as patched:
        patched.setattr("lib.tools.builtin.files.steps.os.fstat", fail)
        assert refusal(lambda: access.read("a/t.txt")).code == "failed"
        assert refusal(lambda: access.list(".")).code == "failed"


def test_running_out_of_descriptors_is_said_and_leaves_none_behind(
    walked: type[FileAccess], root: Path
) -> None:
    access = walked(root)
    deep = root.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "t.txt").write_text("deep", encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with no_leak():
        taken = {int(line.split()[0]) for line in open_descriptors()}
        free = [number for number in range(len(taken) + 9) if number not in taken]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[8], hard))
        try:
            error = refusal(lambda: access.read("d/" * 40 + "t.txt"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert error.code == "unavailable"
    assert access.read("d/" * 40 + "t.txt")["text"] == "deep"
