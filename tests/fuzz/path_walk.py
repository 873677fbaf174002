"""Fuzz the walk of paths: random trees of files, links and pipes, and random paths into them.

    python tests/fuzz/path_walk.py [--seconds 60] [--seed N]
    scripts/fuzz path_walk          # guided by coverage: paths into a few trees that stay

Whatever is read must be the content of a file that lies below the root, under a name that may be
shown; whatever is not read must be a `ToolError`; a plain path to a plain file must be read. Each
path is walked in the three ways of the library. A finding prints the seed and the path, and ends
with an exception.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from lib.errors import ToolError
from lib.tools.builtin import FileAccess
from lib.tools.builtin.files import access as access_module
from lib.tools.builtin.files.access import tree_of
from lib.tools.builtin.files.found import Tree
from lib.tools.builtin.files.resolved import ResolvedTree
from lib.tools.builtin.files.steps import PathSteps, PortableSteps
from lib.tools.builtin.files.walk import WalkedTree

PATHS_PER_TREE: Final = 150
GUIDED_TREES: Final = 8
KNOWN_SHARE: Final = 0.4
ODD_SHARE: Final = 0.2
ABSOLUTE_SHARE: Final = 0.1
NAMES: Final = ("a", "b", "c", "d", ".git", "x.pem", "id_rsa", "...", "caf\u00e9", "-", "a b")
ODD: Final = (
    *("", ".", "..", "~", "/", "\\", "\0", "\n", ":", " a", "a.", "nul", "\ud800", "\uff0e\uff0e"),
    *("%2e%2e", "*", "x" * 256, "ID_RSA", "\uff58.pem", ".g\u200cit", "a/", "GIT~1", "$HOME"),
)
SHOWN: Final = frozenset({"a", "b", "c", "d", "caf\u00e9", "-", "a b"})
WAYS: Final[dict[str, Callable[[Path], Tree]]] = {
    "linux": lambda root: WalkedTree(root, PathSteps()),
    "portable": lambda root: WalkedTree(root, PortableSteps()),
    "resolved": ResolvedTree,
}


@dataclass(frozen=True, slots=True)
class World:
    """A root with files and links, and what lies beside it."""

    root: Path
    accesses: dict[str, FileAccess]
    paths: list[str]
    plain: frozenset[str]


def grow(base: Path, dice: random.Random) -> World:
    """Make a tree; the content of each file is its own path, seen from the base."""
    root = base / "root"
    folders = [root, base / "root-evil", base / "outside" / "a"]
    made: list[Path] = []
    for folder in folders:
        folder.mkdir(parents=True)
    for path in (folder / name for folder in folders[1:] for name in "ab"):
        put(path, base)
        made.append(path)
    for _ in range(dice.randrange(4, 30)):
        path = dice.choice(folders) / dice.choice(NAMES)
        if os.path.lexists(path):
            continue
        plant(path, base, made, dice)
        made.append(path)
        if path.is_dir() and not path.is_symlink():
            folders.append(path)
    accesses = {way: accessed(root, tree) for way, tree in WAYS.items()}
    paths = [str(path.relative_to(root)) for path in made if path.is_relative_to(root)]
    return World(root, accesses, paths, frozenset(path for path in paths if is_plain(root, path)))


def is_plain(root: Path, path: str) -> bool:
    """Tell whether nothing speaks against reading the path."""
    place = root / path
    return place.is_file() and not place.is_symlink() and set(path.split("/")) <= SHOWN


def plant(path: Path, base: Path, made: list[Path], dice: random.Random) -> None:
    """Put a directory, a file, a link or a pipe there."""
    kind = dice.choices(("directory", "file", "link", "pipe"), (35, 30, 32, 3))[0]
    if kind == "directory":
        path.mkdir()
    elif kind == "file":
        put(path, base)
    elif kind == "link":
        path.symlink_to(target(path, base, made, dice))
    else:
        os.mkfifo(path)


def put(path: Path, base: Path) -> None:
    """Write a file that says where it lies."""
    path.write_text(str(path.relative_to(base)), encoding="utf-8")


def accessed(root: Path, tree: Callable[[Path], Tree]) -> FileAccess:
    """Return an access that finds files in this way."""
    access_module.tree_of = tree
    try:
        return FileAccess(root)
    finally:
        access_module.tree_of = tree_of


def target(path: Path, base: Path, made: list[Path], dice: random.Random) -> str:
    """Return where a link leads: to something that is there, or to a place of random words."""
    chosen = dice.choice(made)
    inner = "/".join(dice.choice((*NAMES, "..", "..", ".")) for _ in range(dice.randrange(1, 5)))
    above = dice.choice(("", "", "root/", "", "root-evil/", "root/../", "outside/"))
    options = (str(chosen), os.path.relpath(chosen, path.parent), inner, f"{base}/{above}{inner}")
    return dice.choices(options, (20, 30, 30, 20))[0]


def requested_path(world: World, dice: random.Random) -> str:
    """Return a path to ask for."""
    if world.paths and dice.random() < KNOWN_SHARE:
        return dice.choice(world.paths)
    words: Sequence[str] = (*NAMES, *NAMES, "..", "..", ".")
    if dice.random() < ODD_SHARE:
        words = (*words, *ODD)
    path = "/".join(dice.choice(words) for _ in range(dice.randrange(1, 7)))
    return f"{world.root}/{path}" if dice.random() < ABSOLUTE_SHARE else path


def check(world: World, path: str) -> str:
    """Ask for the path in every way; return what came of it.

    Raises:
        AssertionError: something was read that must not be, or refused that need not be.
    """
    outcome = "refused"
    for way, access in world.accesses.items():
        answer = attempt(access, path)
        if isinstance(answer, ToolError):
            assert answer.message.isprintable(), (way, path)
            above = str(world.root.parent)  # shown only if the request holds it
            assert above in path or above not in answer.message, (way, path)
            assert path not in world.plain, (way, path, answer.message)
            continue
        inside, _, below = answer.partition("/")
        assert inside == "root", (way, path, answer)
        assert set(below.split("/")) <= SHOWN, (way, path, answer)
        assert (world.root / below).read_text(encoding="utf-8") == answer, (way, path, answer)
        outcome = "read"
        check_listing(access, path.rpartition("/")[0] or ".")
    return outcome


def attempt(access: FileAccess, path: str) -> str | ToolError:
    """Return the text, or why there is none; any other error ends the run."""
    try:
        return str(access.read(path)["text"])
    except ToolError as error:
        return error


def check_listing(access: FileAccess, path: str) -> None:
    """List a directory in which a file was read: no name may be there that is not shown."""
    try:
        entries: Any = access.list(path)["entries"]
    except ToolError:
        return
    for entry in entries:
        assert entry["name"] in SHOWN, (path, entry)


def main(
    *, seconds: float = 60.0, seed: int | None = None, trees: int | None = None
) -> dict[str, int]:
    """Fuzz for a time, or for a number of trees; return how often paths were read and refused.

    Args:
        seconds: how long, unless `trees` is given.
        seed: of the first tree; each further one counts up.
        trees: how many trees.
    """
    first = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    end = time.monotonic() + seconds
    outcomes = {"trees": 0, "read": 0, "refused": 0}
    while outcomes["trees"] != trees and (trees is not None or time.monotonic() < end):
        number = first + outcomes["trees"]
        dice = random.Random(number)
        base = Path(tempfile.mkdtemp(prefix="lib-fuzz-"))
        try:
            world = grow(base, dice)
            for _ in range(PATHS_PER_TREE):
                outcomes[check(world, requested_path(world, dice))] += 1
        except BaseException:
            print(f"path_walk: --seed {number} finds it again")  # noqa: T201 - a program's output
            raise
        finally:
            shutil.rmtree(base)
        outcomes["trees"] += 1
    return outcomes


def planted(base: Path) -> list[World]:
    """Return a few trees that are always the same."""
    worlds = list[World]()
    for number in range(GUIDED_TREES):
        (base / str(number)).mkdir()
        worlds.append(grow(base / str(number), random.Random(number)))
    return worlds


def one(data: bytes, worlds: Sequence[World]) -> None:
    """Check one input of atheris; its first byte says into which tree the path leads."""
    if data:
        check(worlds[data[0] % GUIDED_TREES], data[1:].decode("utf-8", "surrogateescape"))


def guided() -> None:
    """Let atheris find the paths."""
    atheris: Any = import_module("atheris")
    worlds = planted(Path(tempfile.mkdtemp(prefix="lib-fuzz-")))
    atheris.instrument_all()
    atheris.Setup(sys.argv, partial(one, worlds=worlds))
    atheris.Fuzz()


if __name__ == "__main__":
    if any(argument.startswith("-max_total_time") for argument in sys.argv):
        guided()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    print(main(seconds=arguments.seconds, seed=arguments.seed))  # noqa: T201 - a program's output
