"""Every case of the corpus on real files, links, pipes, sockets, devices and sparse files.

A case that fails on a naive implementation is one line of tests/data/builtin/files.jsonl:
`expected` is "allowed", "refused" (by a rule) or "error" (nothing there to read). Cases of the
level "may" are run, and may do either; they must not escape, hang, or raise anything else.
"""

import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Final, cast

from lib.errors import ToolError
from lib.tools.builtin import FileAccess

from .access_kit import OnLinux, OnWindows

CORPUS: Final = Path(__file__).parents[4] / "data" / "builtin" / "files.jsonl"
CASES: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()
]
REFUSED: Final = {"blocked", "invalid_arguments", "unsupported"}
MISSING: Final = {"not_found"}

CANNOT_RUN: Final = {
    "F201": "8.3 names exist on Windows only; see test_names.py for the rule",
    "F202": "8.3 names exist on Windows only; see test_names.py for the rule",
    "F203": "needs a volume that takes A and a for one letter",
}
NEEDS_ROOT: Final = {"F092": "a device file can be made by root only"}
RESOLVED_DIFFERS: Final = {
    "F060": "a path that is resolved at once cannot be seen leaving the root and coming back",
    "F074": "the system follows the links, as many as it likes",
}
SLOW_ON_EACH: Final = {"F242": "20,000 files are made once"}
SECRETS: Final = ("TOP", "EVIL", "root:")


def build(base: Path, step: Mapping[str, Any]) -> None:
    """Make what one step of a set-up says."""
    (kind,) = (key for key in step if key in BUILDERS)
    path = base / str(step[kind])
    path.parent.mkdir(parents=True, exist_ok=True)
    BUILDERS[kind](path, step, base)


def build_file(path: Path, step: Mapping[str, Any], base: Path) -> None:
    if "hex" in step:
        path.write_bytes(bytes.fromhex(step["hex"]))
    elif "repeat" in step:
        text, count = cast("tuple[str, int]", step["repeat"])
        path.write_bytes(text.encode() * count)
    else:
        path.write_bytes(str(step["content"]).encode())


def build_socket(path: Path, step: Mapping[str, Any], base: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path holds 100 characters at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def build_sparse(path: Path, step: Mapping[str, Any], base: Path) -> None:
    with path.open("wb") as file:
        file.truncate(step["size"])


def build_many(path: Path, step: Mapping[str, Any], base: Path) -> None:
    path.mkdir()
    for number in range(step["count"]):
        os.close(os.open(path / f"f{number:05d}.txt", os.O_CREAT | os.O_WRONLY))


def build_badname(path: Path, step: Mapping[str, Any], base: Path) -> None:
    os.close(os.open(os.fsencode(path) + b"/bad\xff\xfe.txt", os.O_CREAT | os.O_WRONLY))


def filled(text: str, base: Path) -> str:
    return text.replace("{ROOT}", str(base / "root")).replace("{BASE}", str(base))


BUILDERS: Final[dict[str, Callable[[Path, Mapping[str, Any], Path], object]]] = {
    "file": build_file,
    "dir": lambda path, _step, _base: path.mkdir(parents=True, exist_ok=True),
    "symlink": lambda path, step, base: path.symlink_to(filled(step["to"], base)),
    "hardlink": lambda path, step, base: path.hardlink_to(base / step["to"]),
    "fifo": lambda path, _step, _base: os.mkfifo(path),
    "socket": build_socket,
    "device": lambda path, _step, _base: os.mknod(path, 0o20600, os.makedev(1, 5)),
    "sparse": build_sparse,
    "many": build_many,
    "badname": build_badname,
}


def exchange_with_link(path: Path, target: str) -> Iterator[None]:
    aside, link = path.with_name(f"{path.name}.aside"), path.with_name(f"{path.name}.link")
    while True:
        path.rename(aside)
        link.symlink_to(target)
        link.rename(path)
        yield
        path.unlink()
        aside.rename(path)
        yield


def rename_parent(base: Path) -> Iterator[None]:
    for new in cycle([base.with_name(f"{base.name}.moved"), base]):
        old = base if new != base else base.with_name(f"{base.name}.moved")
        old.rename(new)
        yield


def replace_with_fifo(path: Path) -> Iterator[None]:
    while True:
        path.unlink()
        os.mkfifo(path)
        yield
        path.unlink()
        path.write_text("one\ntwo\nthree\n", encoding="utf-8")
        yield


def resize(path: Path, *sizes: bytes) -> Iterator[None]:
    for content in cycle(sizes):
        path.write_bytes(content)
        yield


RACES: Final[dict[str, Callable[[Path], Iterator[None]]]] = {
    "F084": lambda base: exchange_with_link(base / "root/a", ".."),
    "F085": lambda base: exchange_with_link(base / "root/a/t.txt", "../../secret.txt"),
    "F086": rename_parent,
    "F087": lambda base: replace_with_fifo(base / "root/a/t.txt"),
    "F088": lambda base: resize(base / "root/a/t.txt", b"x\n" * 50_000, b""),
    "F089": lambda base: resize(base / "root/a/t.txt", b"x\n", b"x\n" * 50_000),
}


@contextmanager
def racing(moves: Iterator[None]) -> Generator[None]:
    """Make the moves in another thread, over and over, for the block; the last pair is finished."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            next(moves)
            next(moves)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        assert not thread.is_alive()


def names(answer: Mapping[str, Any]) -> list[str]:
    return [entry["name"] for entry in answer["entries"]]


LIST_CHECKS: Final[dict[str, Callable[[Mapping[str, Any]], bool]]] = {
    "F235": lambda answer: names(answer) == ["a"],
    "F241": lambda answer: (
        {"name": "out", "type": "link", "size": None} in answer["entries"]
        and "secret" not in str(answer)
    ),
    "F242": lambda answer: (
        names(answer) == [f"f{number:05d}.txt" for number in range(1000)]
        and answer["truncated"]
        and answer["next_offset"] == 1000
    ),
    "F246": lambda answer: names(answer) == [r"bad\xff\xfe.txt"],
    "F247": lambda answer: names(answer) == [r"evil\nname.txt"],
}
CHECKS: Final[dict[str, Callable[[Mapping[str, Any]], bool]]] = {
    **LIST_CHECKS,
    "F210": lambda page: (
        page["text"] == "line0\nline1\nline2\n"
        and (page["lines"], page["next_offset"], page["truncated"]) == (3, 3, True)
    ),
    "F212": lambda page: page["text"] == "" and page["lines"] == 0 and not page["truncated"],
    "F213": lambda page: page["text"] == "" and page["next_offset"] == 0,
    "F218": lambda page: page["text"] == "" and page["next_offset"] is None,
    "F219": lambda page: page["text"] == "" and not page["truncated"] and page["size"] == 0,
    "F220": lambda page: page["text"] == "a\nb" and page["lines"] == 2,
    "F221": lambda page: page["text"] == "a\r\nb\r\n" and page["lines"] == 2,
    "F223": lambda page: page["text"] == "x" * 200_000 and page["truncated"],
    "F224": lambda page: (
        page["text"] == "0123456789abcdef\n" * 11_764
        and (page["lines"], page["next_offset"], page["truncated"]) == (11_764, 11_764, True)
    ),
    "F226": lambda page: page["text"] == "\u00e9" * 500 and page["replaced"] == 0,
    "F227": lambda page: page["text"] == "ab\n",
    "F229": lambda page: page["text"] == "ab\n" and page["encoding"] == "utf-16-be",
    "F230": lambda page: page["text"] == "caf\ufffd\n" and page["replaced"] == 1,
}


def attempt(access: FileAccess, case: Mapping[str, Any]) -> dict[str, object] | ToolError:
    path = case["path"]
    try:
        if case["op"] == "list":
            return access.list(path, **case.get("args", {}))
        return access.read(path, **case.get("args", {}))
    except ToolError as error:
        return error


def outcome_of(answer: dict[str, object] | ToolError) -> str:
    if isinstance(answer, dict):
        return "allowed"
    return "refused" if answer.code in REFUSED else "error" if answer.code in MISSING else "failed"


def hold_to(case: Mapping[str, Any], answer: dict[str, object] | ToolError, base: Path) -> None:
    """Assert that the answer is what the case expects, and gives nothing away."""
    if case["level"] != "may":
        assert outcome_of(answer) == case["expected"], (case["why"], answer)
    if isinstance(answer, dict):
        check = CHECKS.get(case["id"])
        assert check is None or check(answer), (case.get("outcome"), str(answer)[:300])
        if case["id"] != "F083":  # a hard link is the file
            assert not any(secret in str(answer.get("text")) for secret in SECRETS)
        return
    assert len(answer.message) < 300
    if not case["path"].startswith(str(base)[:5]):
        assert str(base) not in answer.message
    assert answer.__cause__ is None
    assert answer.message.isprintable()


def runs_here(case: Mapping[str, Any]) -> str | None:
    """Return why the case cannot run here, or None."""
    if case["id"] in CANNOT_RUN:
        return CANNOT_RUN[case["id"]]
    needs_root = case["id"] in NEEDS_ROOT and os.geteuid() != 0
    return NEEDS_ROOT[case["id"]] if needs_root else None


@contextmanager
def directory_of_a_case(above: Path) -> Generator[Path]:
    # Below its own directory: one case renames it. Removed at once: one case makes 20,000 files.
    base = above / "base"
    (base / "root").mkdir(parents=True)
    try:
        yield base
    finally:
        shutil.rmtree(above, ignore_errors=True)


def test_every_case_of_the_corpus_has_its_expected_outcome(
    found: type[FileAccess], tmp_path: Path
) -> None:
    failed: list[str] = []
    ran = 0
    for case in CASES:
        reason = runs_here(case)
        if found is OnWindows:
            reason = reason or RESOLVED_DIFFERS.get(case["id"])
        if found is not OnLinux:
            reason = reason or SLOW_ON_EACH.get(case["id"])
        if reason:
            continue
        ran += 1
        try:
            with directory_of_a_case(tmp_path / case["id"]) as base:
                check_case(case, base, found)
        except Exception as error:  # noqa: BLE001 - every failure is named, and the next case runs
            failed.append(f"{case['id']}: {error!r}")

    assert not failed
    assert ran >= len(CASES) - len({**CANNOT_RUN, **NEEDS_ROOT, **RESOLVED_DIFFERS, **SLOW_ON_EACH})


def check_case(case: Mapping[str, Any], base: Path, kind: type[FileAccess]) -> None:
    """Build what a case needs, and hold its answer to what it expects."""
    for step in case["setup"]:
        build(base, step)
    options = dict(case.get("access") or {})
    race = bool(options.pop("race", False))
    root = base / options.pop("root", "root")
    access = kind(root, **options)
    requested = {**case, "path": filled(case["path"], base)}
    started = time.monotonic()

    if not race:
        hold_to(requested, attempt(access, requested), base)
        return

    with racing(RACES[case["id"]](base)):
        while time.monotonic() - started < 0.15:
            answer = attempt(access, requested)
            if isinstance(answer, dict):
                assert re.fullmatch(r"(one\ntwo\nthree\n|(x\n)*)", str(answer["text"]))
    answer = attempt(access, requested)
    assert outcome_of(answer) == "allowed"


def test_every_case_that_cannot_run_is_named_with_its_reason() -> None:
    elsewhere = {case["id"] for case in CASES if not {"any", "posix"} & {case["platform"]}}
    assert set(CANNOT_RUN) == elsewhere
    case_ids = {case["id"] for case in CASES}
    assert case_ids >= {*NEEDS_ROOT, *RESOLVED_DIFFERS, *CHECKS, *RACES}
    races = {case["id"] for case in CASES if '"race": true' in json.dumps(case)}
    assert set(RACES) == races
    assert len(CASES) == len(case_ids) == 203
