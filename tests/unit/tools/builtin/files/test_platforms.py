"""Tests what depends on the platform, as far as this one can show it."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lib.errors import ToolError
from lib.tools.builtin import FileAccess
from lib.tools.builtin.files import found, steps
from lib.tools.builtin.files.access import tree_of
from lib.tools.builtin.files.resolved import ResolvedTree, without_prefix
from lib.tools.builtin.files.steps import PathSteps, PortableSteps, steps_of_this_platform
from lib.tools.builtin.files.walk import Stopped, WalkedTree, parts_below

from .access_kit import OnMacOS, OnWindows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "a").mkdir(parents=True)
    (made / "a" / "t.txt").write_text("inside", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("TOP", encoding="utf-8")
    return made


def refusal(access: FileAccess, path: str) -> ToolError:
    with pytest.raises(ToolError) as caught:
        access.read(path)
    return caught.value


def test_linux_walks_by_paths_and_others_by_what_they_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert isinstance(steps_of_this_platform(), PathSteps)

    with monkeypatch.context() as no_proc:
        no_proc.setattr(steps.os, "open", refuse_proc)
        no_proc.setattr(steps.os, "supports_dir_fd", {refuse_proc})
        assert isinstance(steps_of_this_platform(), PortableSteps)
    with monkeypatch.context() as no_path:
        no_path.setattr(steps, "_O_PATH", 0)
        assert isinstance(steps_of_this_platform(), PortableSteps)
    with monkeypatch.context() as windows:
        windows.setattr(steps.os, "supports_dir_fd", {os.mkdir})
        assert steps_of_this_platform() is None
        assert isinstance(tree_of(tmp_path), ResolvedTree)


def refuse_proc(path: str, *_: Any) -> int:
    raise FileNotFoundError(path)


def test_a_root_that_cannot_be_resolved_keeps_its_path(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "ln").symlink_to(root / "a" / "t.txt")
    assert found.place_of(-1) is None
    monkeypatch.setattr("lib.tools.builtin.files.walk.place_of", nowhere)
    monkeypatch.chdir(root)

    assert FileAccess(root).read("ln")["text"] == "inside"
    assert refusal(FileAccess(Path()), "ln").code == "blocked"


def nowhere(handle: int) -> None:
    """Tell nothing, as on a system that is neither Linux nor macOS."""


def test_the_portable_steps_refuse_what_changes_between_look_and_opening(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = OnMacOS(root)
    stat = os.stat
    link_out = partial(os.symlink, "../../secret.txt")
    changes: list[Callable[[Path], None]] = [link_out, os.mkfifo, os.mkdir]

    for change in changes:

        def look(name: Any, *, change: Any = change, **options: Any) -> os.stat_result:
            seen = stat(name, **options)
            if name == b"t.txt":
                (root / "a" / "t.txt").unlink()
                change(root / "a" / "t.txt")
            return seen

        with monkeypatch.context() as patched:
            patched.setattr("lib.tools.builtin.files.steps.os.stat", look)
            error = refusal(access, "a/t.txt")
        assert error.code in ("blocked", "unsupported", "not_found")
        assert "TOP" not in error.message
        changed = root / "a" / "t.txt"
        changed.rmdir() if changed.is_dir() else changed.unlink()
        changed.write_text("inside", encoding="utf-8")


def test_what_was_not_opened_for_its_type_cannot_be_read_either(root: Path) -> None:
    os.mkfifo(root / "pipe")
    tree = WalkedTree(root, PortableSteps())

    with (
        tree.find([b"pipe"], lambda _names, _is_passed: None) as found,
        pytest.raises(Stopped, match="special"),
        found.reading(),
    ):
        pass


def test_the_resolved_tree_asks_the_open_file_where_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = OnWindows(root)
    really_open = os.open

    def race(target: str) -> Any:
        def opened(path: Any, flags: int) -> int:
            (root / "a").rename(root / "aside")
            (root / "a").symlink_to(target)
            try:
                return really_open(path, flags)
            finally:
                (root / "a").unlink()
                (root / "aside").rename(root / "a")

        return opened

    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "t.txt").write_text("TOP", encoding="utf-8")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "t.txt").write_text("HIDDEN", encoding="utf-8")
    for target in (str(outside), ".hidden"):
        with monkeypatch.context() as patched:
            patched.setattr("lib.tools.builtin.files.resolved.os.open", race(target))
            assert refusal(access, "a/t.txt").code == "blocked"
    os.mkfifo(root.parent / "pipe")
    (outside / "t.txt").unlink()
    os.mkfifo(outside / "t.txt")
    with monkeypatch.context() as patched:
        patched.setattr("lib.tools.builtin.files.resolved.os.open", race(str(outside)))
        assert refusal(access, "a/t.txt").code == "unsupported"
    with monkeypatch.context() as patched:
        patched.setattr("lib.tools.builtin.files.resolved.place_of", nowhere)
        assert refusal(access, "a/t.txt").code == "unavailable"
    assert access.read("a/t.txt")["text"] == "inside"


def test_the_resolved_tree_takes_a_short_name_only_for_a_file_of_that_name(
    root: Path,
) -> None:
    (root / "REAL~1.TXT").write_text("real", encoding="utf-8")
    access = OnWindows(root)

    assert access.read("REAL~1.TXT")["text"] == "real"
    for path in ("GIT~1/config", "ENV~1", "a/SECRET~1.TXT"):
        assert refusal(access, path).code == "blocked"


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("\\\\?\\C:\\x", "C:\\x"),
        ("\\\\?\\UNC\\server\\share", "\\\\server\\share"),
        ("C:\\x", "C:\\x"),
        ("/x", "/x"),
    ],
)
def test_the_prefix_of_windows_own_answers_is_dropped(path: str, plain: str) -> None:
    assert without_prefix(path) == plain


@pytest.mark.parametrize(
    ("path", "below"),
    [
        (b"/r/x", [b"x"]),
        (b"/r/x/", [b"x", b""]),
        (b"//r//x", [b"x"]),
        (b"/r", []),
        (b"/r/../s", [b"..", b"s"]),
        (b"/rx/y", None),
        (b"/", None),
        (b"/s/r", None),
    ],
)
def test_absolute_paths_are_below_a_root_by_whole_names(
    path: bytes, below: list[bytes] | None
) -> None:
    assert parts_below([b"/elsewhere", b"/r"], path) == below
