"""For any tree and any path, what is read lies inside the root and may be shown."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors import ToolError
from lib.tools.builtin import FileAccess

NAMES: Final = ["a", "b", "c", ".h", "k.pem", "\uff4b.pem"]
SHOWN: Final = {"a", "b", "c"}
CODES: Final = {"blocked", "not_found", "invalid_arguments", "unsupported"}

names = st.sampled_from(NAMES)
targets = st.lists(st.sampled_from([*NAMES, "..", "..", "."]), min_size=1, max_size=4).map("/".join)
links = st.tuples(st.sampled_from(["", "", "{root}/", "{base}/", "{base}/other/", "/"]), targets)
leaves = st.just("file") | links
trees = st.recursive(
    st.dictionaries(names, leaves, max_size=4),
    lambda below: st.dictionaries(names, leaves | below, max_size=4),
    max_leaves=12,
)
paths = st.lists(st.sampled_from([*NAMES, "..", ".", ""]), min_size=1, max_size=6).map("/".join)
Tree = Mapping[str, object]


def plant(directory: Path, tree: Tree, base: Path) -> None:
    """Make what the tree says; the content of a file is its path below the base."""
    directory.mkdir()
    for name, node in tree.items():
        path = directory / name
        if isinstance(node, Mapping):
            plant(path, node, base)  # pyright: ignore[reportUnknownArgumentType] - drawn trees nest
        elif isinstance(node, tuple):
            above, below = node  # pyright: ignore[reportUnknownVariableType] - drawn trees nest
            path.symlink_to(f"{above}{below}".format(base=base, root=base / "root"))
        else:
            path.write_text(str(path.relative_to(base)), encoding="utf-8")


def resolved(root: Path, path: str) -> list[str] | None:
    """Return the components of where the path leads, or None where that is not below the root."""
    place = os.path.realpath(root / path)
    inside = Path(place).is_relative_to(root)
    return list(Path(place).relative_to(root).parts) if inside else None


def answer(call: Callable[[], object]) -> Any:
    try:
        return call()
    except ToolError as error:
        return error


@given(trees, st.lists(paths, min_size=1, max_size=12), st.booleans())
def test_files_that_are_read_are_inside_the_root_and_neither_hidden_nor_denied(
    tree: Tree, tried: list[str], allow_hidden: bool
) -> None:
    with tempfile.TemporaryDirectory() as made:
        base = Path(made).resolve()
        plant(base / "root", tree, base)
        plant(base / "other", {"a": "file", "b": {"c": "file"}}, base)
        access = FileAccess(base / "root", allow_hidden=allow_hidden)
        shown = SHOWN | {".h"} if allow_hidden else SHOWN
        for path in tried:
            leads = resolved(base / "root", path)
            text = answer(lambda path=path: access.read(path)["text"])
            if isinstance(text, ToolError):
                assert text.code in CODES
                plain = leads is not None and leads == path.split("/") and set(leads) <= shown
                assert not (plain and (base / "root" / path).is_file())
                continue
            assert leads is not None
            assert text == "/".join(["root", *leads])
            assert set(leads) <= shown
            assert {part for part in path.split("/") if part not in ("", ".", "..")} <= shown


@given(trees, paths)
def test_listed_files_are_allowed_and_lie_in_the_directory(tree: Tree, path: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        base = Path(made).resolve()
        plant(base / "root", tree, base)
        access = FileAccess(base / "root")
        leads = resolved(base / "root", path)
        entries = answer(lambda: access.list(path)["entries"])
        if isinstance(entries, ToolError):
            assert entries.code in CODES
            return
        assert leads is not None
        there = {entry.name for entry in os.scandir(base / "root" / "/".join(leads))}
        assert [entry["name"] for entry in entries] == sorted(there & SHOWN)


@given(st.text(max_size=30))
def test_any_path_is_either_answered_or_refused(path: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        access = FileAccess(Path(made))
        with pytest.raises(ToolError) as caught:
            access.read(path)

        assert caught.value.code in CODES
        assert caught.value.message.isprintable()
        assert made not in caught.value.message
