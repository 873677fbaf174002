"""`FileAccess`: the files below one directory, and nothing else, for reading."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from lib.errors import ToolError, ToolErrorCode
from lib.tools.builtin.files.budget import SCAN_BYTES, Budget, BudgetSpent, Spent
from lib.tools.builtin.files.deny import DENY, NameRules, Refusal
from lib.tools.builtin.files.found import Found, Tree
from lib.tools.builtin.files.lines import LinePage, NotText, read_lines
from lib.tools.builtin.files.listing import MAX_ENTRIES, MAX_OFFSET, Entry, list_entries
from lib.tools.builtin.files.names import components, escaped, shown
from lib.tools.builtin.files.resolved import ResolvedTree
from lib.tools.builtin.files.steps import steps_of_this_platform
from lib.tools.builtin.files.walk import Fault, Stopped, WalkedTree

T = TypeVar("T")
_log = logging.getLogger(__name__)

_REFUSALS: Final[dict[Refusal, str]] = {
    "hidden": "is hidden, or leads to what is hidden: hidden files are not shared",
    "denied": "is, or leads to, a name that may hold keys or credentials: it is never shared",
}
_FAULTS: Final[dict[Fault, tuple[ToolErrorCode, str]]] = {
    "outside": ("blocked", "leads outside the root: ask for a path below it"),
    "links": ("blocked", "leads through too many links"),
    "deep": ("blocked", "leads through too many directories"),
    "alias": ("blocked", "uses a name that the system makes another of: ask for the real one"),
    "missing": ("not_found", "does not exist"),
    "not a directory": ("not_found", "goes through a file as if it were a directory"),
    "special": ("unsupported", "is no regular file: devices, pipes and sockets are not read"),
    "unreadable": ("unavailable", "exists, but the system does not let this process read it"),
    "busy": ("unavailable", "cannot be opened now: too many files are open; try again"),
}
_ERRNO_FAULTS: Final[dict[int | None, Fault]] = {
    errno.ENOENT: "missing",
    errno.ENAMETOOLONG: "missing",
    errno.ENOTDIR: "not a directory",
    errno.EISDIR: "not a directory",
    errno.ELOOP: "links",
    errno.EACCES: "unreadable",
    errno.EPERM: "unreadable",
    errno.ENXIO: "special",
    errno.EMFILE: "busy",
    errno.ENFILE: "busy",
}
_SPENT: Final[dict[Spent, tuple[ToolErrorCode, str]]] = {
    "bytes": ("too_large", f"holds too much before that place: {SCAN_BYTES >> 20} MiB are scanned"),
    "time": ("timeout", "could not be looked through in time: ask for an earlier place"),
    "cancelled": ("cancelled", "was not read: the call was cancelled"),
}


@dataclass(frozen=True)
class FileAccess:
    """Reads and lists what is below one directory, and nothing outside of it.

    The directory is opened once: it stays the same one when its path is renamed or replaced.
    Paths are walked name by name below it, so that no race with links or renames leads outside.
    Links are followed where they stay below the root, absolute ones included. Hard links cannot be
    distinguished from other files: a process that may create one below the root can share its file.

    Both methods block and belong into a thread; they may be called from several at once. Each
    either answers or raises `ToolError`, whose message names the requested path and the rule.

    Attributes:
        root: an existing directory.
        max_bytes: how much of a file one read returns at most.
        allow_hidden: whether names that start with "." are shared.
        deny: patterns of names that are never shared; see `DENY`. `()` denies none.

    Raises:
        FileNotFoundError: the root does not exist.
        NotADirectoryError: it is something else.
        TypeError: a setting is of another type: only `True` and `False` answer `allow_hidden`.
        ValueError: `max_bytes` is below 1, or a pattern could never match.
    """

    root: Path
    max_bytes: int = 200_000
    allow_hidden: bool = False
    deny: tuple[str, ...] = field(default=DENY, repr=False)
    _rules: NameRules = field(init=False, repr=False, compare=False)
    _tree: Tree = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings and open the root."""
        at_least_one("max_bytes", self.max_bytes)
        rules = NameRules(self.deny, allow_hidden=self.allow_hidden)
        for name, value in (
            ("root", Path(self.root)),
            ("deny", tuple(self.deny)),
            ("_rules", rules),
            ("_tree", self._open_tree(Path(self.root))),
        ):
            object.__setattr__(self, name, value)

    def _open_tree(self, root: Path) -> Tree:
        """Open the root as this platform can."""
        return tree_of(root)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.max_bytes, self.allow_hidden, self.deny)

    def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, column: int = 0
    ) -> dict[str, object]:
        r"""Return lines of a text file. Blocks.

        Whole lines are returned while they fit into `max_bytes`; a single line that does not is cut
        after a whole character, and read on from `next_column` of the same `offset`. Only "\n" ends
        a line, and it stays in the text, as "\r" does.

        Args:
            path: relative to the root, names separated by "/"; an absolute one below it will do.
            offset: the first line, from 0. One after the end gives no text.
            limit: how many lines at most; None for as many as fit.
            column: how many bytes of the first line to skip; no more than it has before its end.

        Returns:
            path: as requested. text: the lines. offset: as requested. lines: how many `text` has,
            a part of one included. next_offset: the line to go on with, or None. truncated:
            whether the file goes on after `text`. size: bytes of the file. encoding: "utf-8",
            "utf-16-le" or "utf-16-be". replaced: how many U+FFFD in the text stand for bytes that
            are not of that encoding. next_column, only where a line was cut: the `column` of its
            rest, which `next_offset` passes over.

        Raises:
            ToolError: "invalid_arguments" for what is no path or number, "blocked" for what is
                outside, hidden or denied, "not_found" for what is missing or a directory,
                "unsupported" for binary and special files, "too_large" or "timeout" when the line
                lies too far into the file, "unavailable" when the system refuses.
        """
        return self.read_within(path, offset=offset, limit=limit, column=column)

    def read_within(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: int | None = None,
        column: int = 0,
        max_bytes: int | None = None,
        budget: Budget | None = None,
    ) -> dict[str, object]:
        """Return what `read` does, from less of the file and with a budget of the caller's.

        Args:
            path: as for `read`.
            offset: as for `read`.
            limit: as for `read`.
            column: as for `read`.
            max_bytes: how much of the file at most; the access's own bound holds, too.
            budget: for finding where to begin; another thread may cancel it.

        Raises:
            ToolError: as for `read`.
        """
        parts = components(path)
        first = _number("offset", offset)
        skipped = _number("column", column)
        at_most = None if limit is None else _number("limit", limit)
        bound = self.max_bytes if max_bytes is None else min(max_bytes, self.max_bytes)
        spending = budget or Budget()

        def work() -> tuple[LinePage, int]:
            with self._found(path, parts) as found:
                if found.is_directory:
                    raise ToolError("not_found", f"{shown(path)} is a directory: list it instead")
                if not found.is_file:
                    raise Stopped("special")
                with found.reading() as handle:
                    page = read_lines(
                        cast("int", handle),
                        offset=first,
                        column=skipped,
                        limit=at_most,
                        max_bytes=bound,
                        budget=spending,
                    )
                return page, found.size

        page, size = _with_tool_errors(path, work)
        cut = {} if page.next_column is None else {"next_column": page.next_column}
        return {
            "path": path,
            "text": page.text,
            "offset": first,
            "lines": page.lines,
            "next_offset": page.next_offset,
            "truncated": page.next_offset is not None,
            "size": size,
            "encoding": page.encoding,
            "replaced": page.replaced,
            **cut,
        }

    def list(
        self, path: str = ".", *, offset: int = 0, limit: int | None = None
    ) -> dict[str, object]:
        r"""Return what is in a directory, in the order of the names' bytes. Blocks.

        Hidden and denied names are left out. Of a link only its name is shown. Characters
        that cannot be seen, and bytes that are not UTF-8, stand as escapes such as "\n" or "\xff";
        such a name cannot be requested.

        Args:
            path: as for `read`.
            offset: how many entries to leave out at the start.
            limit: how many at most; never more than 1,000.

        Returns:
            path: as requested. entries: dicts of name, type ("file", "directory", "link" or
            "other"), size (bytes of a file, else None), and escaped (True) where the name holds
            escapes, which `read` does not take. offset: as requested. next_offset: where to go on,
            or None. truncated: whether there are more.

        Raises:
            ToolError: as `read` does; "too_large" for a directory of about a million names.
        """
        return self.list_within(path, offset=offset, limit=limit)

    def list_within(
        self,
        path: str = ".",
        *,
        offset: int = 0,
        limit: int | None = None,
        budget: Budget | None = None,
    ) -> dict[str, object]:
        """Return what `list` does, with a budget of the caller's.

        Args:
            path: as for `list`.
            offset: as for `list`.
            limit: as for `list`.
            budget: for looking at names; another thread may cancel it.

        Raises:
            ToolError: as for `list`.
        """
        parts = components(path)
        first = min(_number("offset", offset), MAX_OFFSET)
        at_most = MAX_ENTRIES if limit is None else min(_number("limit", limit), MAX_ENTRIES)
        spending = budget or Budget()

        def work() -> tuple[Sequence[Entry], bool]:
            with self._found(path, parts, listing=True) as found:
                if not found.is_directory:
                    # The name was judged as that of a directory, and is one of a file.
                    _refuse(path, self._rules.refusal(_names(parts)))
                    _refuse(path, self._rules.refusal([_text(name) for name in found.names]))
                    raise ToolError("not_found", f"{shown(path)} is no directory: read it instead")
                keep = self._keeper(_names(parts), [_text(name) for name in found.names])
                with found.reading() as where:
                    return list_entries(
                        where, keep=keep, offset=first, limit=at_most, budget=spending
                    )

        entries, more = _with_tool_errors(path, work)
        return {
            "path": path,
            "entries": [_shown_entry(entry) for entry in entries],
            "offset": first,
            "next_offset": first + len(entries) if more else None,
            "truncated": more,
        }

    @contextmanager
    def _found(self, path: str, parts: Sequence[str], *, listing: bool = False) -> Generator[Found]:
        """Hold what the path leads to, after judging it and each name on the way."""
        _refuse(path, self._rules.refusal(_names(parts), directory=listing))

        def judge(names: Sequence[bytes], is_passed: bool) -> None:
            texts = [_text(name) for name in names]
            _refuse(path, self._rules.refusal_of_last(texts, directory=listing or is_passed))

        with self._tree.find([part.encode() for part in parts], judge) as found:
            yield found

    def _keeper(self, *directories: Sequence[str]) -> Callable[[bytes, bool], bool]:
        """Return what tells whether a name is shown in a directory, however that was reached."""
        distinct = {tuple(directory) for directory in directories}

        def keep(name: bytes, is_directory: bool) -> bool:
            text = _text(name)
            return not any(
                self._rules.refusal_of_last([*above, text], directory=is_directory)
                for above in distinct
            )

        return keep


def at_least_one(name: str, value: object) -> None:
    """Refuse what is no whole number from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} is at least 1, not {value}")


def _names(parts: Sequence[str]) -> Sequence[str]:
    """Return the requested names; those above the root are the owner's, not judged."""
    if parts[0] == "":
        return ()
    return [part for part in parts if part not in ("", ".", "..")]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _refuse(path: str, refusal: Refusal | None) -> None:
    if refusal is not None:
        raise ToolError("blocked", f"{shown(path)} {_REFUSALS[refusal]}")


def _number(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ToolError("invalid_arguments", f"{name} is a whole number")
    if value < 0:
        raise ToolError("invalid_arguments", f"{name} is 0 or more, not negative")
    return value


def _shown_entry(entry: Entry) -> dict[str, object]:
    name = _text(entry.name)
    shown_entry: dict[str, object] = {"name": escaped(name), "type": entry.type, "size": entry.size}
    return shown_entry if shown_entry["name"] == name else {**shown_entry, "escaped": True}


def _with_tool_errors(path: str, work: Callable[[], T]) -> T:
    """Return what the work does; its failures are said in our own words: the path and the rule."""
    try:
        return work()
    except Stopped as stopped:
        code, message = _FAULTS[stopped.fault]
    except BudgetSpent as spent:
        code, message = _SPENT[spent.reason]
    except NotText as binary:
        code, message = _binary(binary)
    except OSError as error:
        _log.debug("reading below a root failed: %r", error)
        code, message = _failure(error)
    # Not where it was caught: the system's own words hold absolute paths.
    raise ToolError(code, f"{shown(path)} {message}")


def _binary(found: NotText) -> tuple[ToolErrorCode, str]:
    return "unsupported", f"is a binary file ({found.kind}, {found.size} bytes): only text is read"


def _failure(error: OSError) -> tuple[ToolErrorCode, str]:
    fault = _ERRNO_FAULTS.get(error.errno)
    return _FAULTS[fault] if fault else ("failed", "could not be read: the system failed")


def tree_of(root: Path) -> Tree:
    """Return the tree below a directory, walked where directories can be held open.

    Raises:
        OSError: it is missing, no directory, or not open to this process.
    """
    steps = steps_of_this_platform()
    return ResolvedTree(root) if steps is None else WalkedTree(root, steps)
