"""A directory is exchanged with a link to the outside, and back, under a reader.

The attack is shown to work first: against a reader that resolves, checks and opens.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from lib.errors import ToolError
from lib.tools.builtin import FileAccess

RACE_S: Final = 4.0 if os.environ.get("LIB_TEST_LONG") else 1.0
BOTH: Final = {"inside", "refused"}
EXCHANGE: Final = 2
AT_FDCWD: Final = -100


def exchanger() -> Callable[[bytes, bytes], int] | None:
    """Return renameat2(2) with RENAME_EXCHANGE, or None where the system has none."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is None:
        return None
    return lambda one, other: call(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE)


@contextmanager
def exchanged(one: Path, other: Path) -> Generator[None]:
    """Exchange the two names without pause for the block, and leave them as they were."""
    exchange = exchanger()
    first, second, aside = bytes(one), bytes(other), bytes(one) + b".aside"
    over = threading.Event()

    def swap() -> None:
        if exchange is None or exchange(first, second):
            os.rename(first, aside)  # noqa: PTH104 - bytes
            os.rename(second, first)  # noqa: PTH104 - the fastest way to race
            os.rename(aside, second)  # noqa: PTH104 - the fastest way to race

    def run() -> None:
        while not over.is_set():
            swap()
            swap()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    for folder, text in ((made / "a", "inside"), (tmp_path / "outside", "TOP")):
        folder.mkdir(parents=True)
        (folder / "t.txt").write_text(text, encoding="utf-8")
    (made / "evil").symlink_to("../outside")
    (made / "a" / "evil.txt").symlink_to("../../outside/t.txt")
    return made


def read_naively(root: Path, path: str) -> str:
    resolved = os.path.realpath(root / path)
    if not resolved.startswith(f"{root}{os.sep}"):
        raise PermissionError(path)
    with open(resolved, encoding="utf-8") as file:  # noqa: PTH123 - as everyone does it
        return file.read()


def read_for(seconds: float, read: Callable[[], str], *wanted: str) -> dict[str, int]:
    """Return how often each text, or a refusal, came back, until the wanted ones did."""
    seen: dict[str, int] = {}
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < seconds or not set(wanted) <= set(seen):
        assert elapsed < 30, f"saw {seen} and waits for {wanted}"
        try:
            text = read()
        except (ToolError, OSError):
            text = "refused"
        seen[text] = seen.get(text, 0) + 1
    return seen


@pytest.mark.parametrize("names", [("a", "evil"), ("a/t.txt", "a/evil.txt")])
def test_no_byte_from_outside_comes_through_a_race(
    found: type[FileAccess], root: Path, names: tuple[str, str]
) -> None:
    access = found(root)

    with exchanged(root / names[0], root / names[1]):
        seen = read_for(RACE_S / 4, lambda: str(access.read("a/t.txt")["text"]), *BOTH)
    assert set(seen) == BOTH


def test_the_walk_withstands_the_race_in_which_a_check_before_opening_leaks(root: Path) -> None:
    access = FileAccess(root)

    with exchanged(root / "a", root / "evil"):
        naive = read_for(0, lambda: read_naively(root, "a/t.txt"), "TOP")
        walked = read_for(RACE_S, lambda: str(access.read("a/t.txt")["text"]), *BOTH)
        listed = read_for(RACE_S / 4, lambda: str(access.list("a")["entries"]))
    assert naive["TOP"] == 1
    assert set(walked) == BOTH
    assert all("evil.txt" in one or one == "refused" for one in listed)


def test_no_race_through_links_leads_to_what_is_hidden(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "t.txt").write_text("HIDDEN", encoding="utf-8")
    (root / "cover").symlink_to(".git")
    access = FileAccess(root)

    with exchanged(root / "a", root / "cover"):
        seen = read_for(RACE_S / 4, lambda: str(access.read("a/t.txt")["text"]), *BOTH)
    assert set(seen) == BOTH
