"""Walk a path below a directory so that no race with links or renames leads outside.

The rules of the walk:

- Each component is opened below the directory that was opened before it, and nothing is followed:
  the kernel never sees more than one name. What was checked is what is held open.
- A link is expanded here, in its place: its components are put before the rest of the path.
- ".." goes back to the directory that is held open, never to one that the system names. Above the
  root it is refused, even where the path would come back.
- An absolute link or path is walked from the root when it lies under one of the root's own names.
- Every name is judged before it is opened, so that a refusal does not tell whether it exists.
- Only directories are passed, and nothing is opened for reading before its type is known.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from lib.tools.builtin.files.found import Found, Judge, place_of
from lib.tools.builtin.files.steps import Node, Steps

MAX_LINKS: Final = 40
MAX_DEPTH: Final = 128
"""How many directories are held open at once."""
MAX_STEPS: Final = 2048
"""How many components are walked, those of expanded links included."""

Fault = Literal[
    "outside",
    "links",
    "deep",
    "alias",
    "missing",
    "not a directory",
    "special",
    "unreadable",
    "busy",
]


class Stopped(Exception):
    """The walk ends: `fault` is the rule that it met."""

    def __init__(self, fault: Fault) -> None:
        self.fault: Fault = fault
        super().__init__(fault)


def parts_below(root_names: Iterable[bytes], path: bytes) -> list[bytes] | None:
    """Return the components of an absolute path below one of the root's names, or None."""
    parts = path.split(b"/")
    for root in root_names:
        above = [part for part in root.split(b"/") if part]
        names = [part for part in parts if part]
        if names[: len(above)] == above:
            # The empty part at the end, of "x/", says that x is a directory: it stays.
            return [*names[len(above) :], *([b""] if path.endswith(b"/") else [])]
    return None


def leaves(parts: Sequence[bytes]) -> bool:
    """Return True if the path, read as text, goes above where it starts."""
    depth = 0
    for part in parts:
        if part == b"..":
            depth -= 1
            if depth < 0:
                return True
        elif part not in (b"", b"."):
            depth += 1
    return False


class Walk:
    """One walk; its descriptors are closed by `close`, whatever happened."""

    def __init__(
        self,
        steps: Steps,
        root: int,
        *,
        root_names: Callable[[], Sequence[bytes]],
        judge: Callable[[Sequence[bytes], bool], None],
    ) -> None:
        """Start at the root.

        Args:
            steps: how this platform opens names.
            root: a descriptor of the root; it stays open.
            root_names: tells the absolute paths of the root, for absolute links.
            judge: raises when a path of these components may not be opened; see `Judge`.
        """
        self._steps, self._root = steps, root
        self._root_names, self._judge = root_names, judge
        self._held: list[tuple[bytes, int]] = []
        self._pending: list[bytes] = []
        self._links = self._walked = 0
        self.names: Sequence[bytes] = ()
        """The components of what was found, links resolved."""

    def close(self) -> None:
        """Close every directory that the walk holds."""
        while self._held:
            os.close(self._held.pop()[1])

    def find(self, parts: Sequence[bytes]) -> Node:
        """Return what the path leads to, opened; the caller closes its handle.

        Raises:
            Stopped: a rule of the walk forbids it.
            OSError: the system does.
        """
        self._push(parts)
        while self._pending:
            name = self._pending.pop()
            self._walked += 1
            if self._walked > MAX_STEPS:
                raise Stopped("deep")
            if name in (b"", b"."):
                continue
            if name == b"..":
                self._up()
                continue
            node = self._down(name)
            if node is not None:
                return node
        return self._here()

    def _push(self, parts: Sequence[bytes]) -> None:
        if leaves(parts) and not self._held:
            raise Stopped("outside")
        self._pending.extend(reversed(parts))

    def _up(self) -> None:
        if not self._held:
            raise Stopped("outside")
        os.close(self._held.pop()[1])

    def _down(self, name: bytes) -> Node | None:
        """Open a name; return it when it is the end and no directory."""
        self._judge([*(above for above, _ in self._held), name], bool(self._pending))
        node = self._steps.open_below(self._held[-1][1] if self._held else self._root, name)
        if node.is_link:
            self._expand(node.target)
            return None
        if node.is_directory and node.handle is not None:
            self._held.append((name, node.handle))
            if len(self._held) > MAX_DEPTH:
                raise Stopped("deep")
            return None
        if not self._pending:
            self.names = [*(above for above, _ in self._held), name]
            return node
        if node.handle is not None:
            os.close(node.handle)
        raise Stopped("not a directory")

    def _expand(self, target: bytes) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise Stopped("links")
        if not target.startswith(b"/"):
            self._push(target.split(b"/"))
            return
        parts = parts_below(self._root_names(), target)
        if parts is None:
            raise Stopped("outside")
        self.close()
        self._push(parts)

    def _here(self) -> Node:
        """Return the directory in which the walk stands, as its caller's own."""
        self.names = [name for name, _ in self._held]
        handle = os.dup(self._held[-1][1] if self._held else self._root)
        try:
            status = os.fstat(handle)
        except BaseException:
            os.close(handle)
            raise
        return Node(handle, status.st_mode, status.st_size)


@contextmanager
def walking(walk: Walk, parts: Sequence[bytes]) -> Generator[Node]:
    """Hold what the path leads to open for the block."""
    try:
        node = walk.find(parts)
    finally:
        walk.close()
    try:
        yield node
    finally:
        if node.handle is not None:
            os.close(node.handle)


class WalkedTree:
    """A directory below which paths are walked name by name."""

    def __init__(self, root: Path, steps: Steps) -> None:
        """Open the root; it is closed when the tree is forgotten.

        Raises:
            OSError: it is missing, no directory, or not open to this process.
        """
        self._steps = steps
        self._root = steps.open_root(os.fspath(root))
        # No method closes it: another thread's walk would go on below whatever got its number.
        weakref.finalize(self, os.close, self._root)
        self._passed = [os.fsencode(root)] if root.is_absolute() else []

    @contextmanager
    def find(self, parts: Sequence[bytes], judge: Judge) -> Generator[Found]:
        """Hold what the path leads to for the block."""
        below = parts
        if parts[0] == b"" and len(parts) > 1:
            relative = parts_below(self._names(), b"/".join(parts))
            if relative is None:
                raise Stopped("outside")
            below = relative
        walk = Walk(self._steps, self._root, root_names=self._names, judge=judge)
        with walking(walk, below) as node:
            yield Found(node.mode, node.size, walk.names, lambda: self._reading(node.handle))

    def _names(self) -> list[bytes]:
        """Return the root's absolute paths: where it is now, and as it was passed."""
        now = place_of(self._root)
        return self._passed if now is None else [now, *self._passed]

    @contextmanager
    def _reading(self, handle: int | None) -> Generator[int | str]:
        if handle is None:  # of what is neither file nor directory
            raise Stopped("special")
        opened = self._steps.reopen(handle)
        try:
            yield opened
        finally:
            os.close(opened)
