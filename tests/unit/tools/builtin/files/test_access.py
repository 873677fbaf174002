"""File access: its settings, its root, and what it says when it cannot read."""

import copy
import errno
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from lib.errors import ToolError
from lib.tools.builtin import DENY, FileAccess

from .access_kit import refusal


def test_an_access_has_the_settings_of_the_specification(root: Path) -> None:
    access = FileAccess(root)

    public = {field.name: getattr(access, field.name) for field in fields(access) if field.init}
    assert public == {"root": root, "max_bytes": 200_000, "allow_hidden": False, "deny": DENY}
    assert access == FileAccess(root, 200_000, False, DENY)  # noqa: FBT003 - as specified
    assert hash(access) == hash(FileAccess(root))
    assert repr(access) == f"FileAccess(root={root!r}, max_bytes=200000, allow_hidden=False)"
    with pytest.raises(FrozenInstanceError):
        access.max_bytes = 1  # pyright: ignore[reportAttributeAccessIssue] - that is refused


def test_a_read_tells_everything_that_the_design_names(found: type[FileAccess], root: Path) -> None:
    assert found(root).read("a/t.txt", offset=1, limit=1) == {
        "path": "a/t.txt",
        "text": "two\n",
        "offset": 1,
        "lines": 1,
        "next_offset": 2,
        "truncated": True,
        "size": 14,
        "encoding": "utf-8",
        "replaced": 0,
    }


@pytest.mark.parametrize("make", [str, Path])
def test_a_root_may_be_text_or_a_path(root: Path, make: Callable[[Path], Any]) -> None:
    assert FileAccess(make(root)).read("a/t.txt")["lines"] == 3


def test_a_root_must_be_a_directory_that_exists(found: type[FileAccess], root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        found(root / "nope")
    with pytest.raises(NotADirectoryError):
        found(root / "a" / "t.txt")


def test_settings_that_make_no_sense_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        FileAccess(root, max_bytes=0)
    with pytest.raises(ValueError, match="deny pattern"):
        FileAccess(root, deny=("",))


@pytest.mark.parametrize(
    "settings",
    [
        {"allow_hidden": "false"},
        {"allow_hidden": 0},
        {"allow_hidden": None},
        {"max_bytes": 2.5},
        {"max_bytes": True},
        {"max_bytes": "5"},
        {"max_bytes": None},
        {"deny": "*.sec"},
        {"deny": None},
        {"deny": 5},
        {"deny": (b"*.sec",)},
    ],
)
def test_settings_of_another_type_are_refused_before_anything_is_shared(
    settings: dict[str, Any], root: Path
) -> None:
    (name,) = settings

    with pytest.raises(TypeError, match=name.removesuffix("s")):
        FileAccess(root, **settings)


def test_a_name_that_is_shown_with_escapes_says_that_nothing_reads_it(root: Path) -> None:
    (root / "a\u3164b").write_text("x", encoding="utf-8")
    access = FileAccess(root)
    entries: Any = access.list()["entries"]
    plain, escaped = entries

    assert plain == {"name": "a", "type": "directory", "size": None}
    assert escaped == {"name": r"a\u3164b", "type": "file", "size": 1, "escaped": True}
    with pytest.raises(ToolError, match="listed with escapes cannot be requested"):
        access.read(r"a\u3164b")


def test_an_access_can_be_copied_replaced_and_pickled(root: Path) -> None:
    access = FileAccess(root, allow_hidden=True, deny=("*.sec",))

    for other in (
        copy.copy(access),
        copy.deepcopy(access),
        pickle.loads(pickle.dumps(access)),
        replace(access),
    ):
        assert other == access
        assert other.read("a/t.txt")["lines"] == 3


@pytest.mark.parametrize("value", ["1", 1.0, True, None, -1])
@pytest.mark.parametrize("name", ["offset", "limit"])
def test_numbers_are_whole_and_not_negative(root: Path, name: str, value: Any) -> None:
    access = FileAccess(root)
    if (name, value) == ("limit", None):
        assert access.read("a/t.txt", limit=None)["lines"] == 3
        return

    for call in (access.read, access.list):
        assert refusal(lambda c=call: c("a", **{name: value})).code == "invalid_arguments"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, "unavailable"),
        (errno.EPERM, "unavailable"),
        (errno.EMFILE, "unavailable"),
        (errno.EIO, "failed"),
        (errno.ESTALE, "failed"),
        (errno.ENOENT, "not_found"),
    ],
)
def test_what_the_system_says_is_said_in_own_words(
    walked: type[FileAccess], root: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    access = walked(root)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number), "/an/absolute/path")

    for steps in ("PathSteps", "PortableSteps"):
        monkeypatch.setattr(f"lib.tools.builtin.files.steps.{steps}.reopen", fail)
    error = refusal(lambda: access.read("a/t.txt"))

    assert error.code == code
    assert error.message.startswith("'a/t.txt' ")
    assert "absolute" not in error.message
    assert error.__cause__ is error.__context__ is None


def test_several_threads_may_read_and_list_at_once(walked: type[FileAccess], root: Path) -> None:
    for number in range(300):
        (root / "a" / f"f{number}.txt").write_text(f"{number}\n" * 50, encoding="utf-8")
    access = walked(root)
    listed = access.list("a")
    wrong: list[object] = []

    def work(start: int) -> None:
        for number in range(start, start + 60):
            name = f"a/f{number % 300}.txt"
            if access.read(name)["text"] != f"{number % 300}\n" * 50 or access.list("a") != listed:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 300, 75)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
