"""Where a hidden element ends, whatever stands in it."""

from __future__ import annotations

from lib.content.html.elements import ENDED_BY, FORMATTING, VOID


class Hidden:
    """The elements that are open from the outermost hidden one on; true while there is one."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: list[str] = []
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def enter(self, name: str) -> None:
        """Begin at this element."""
        self._open = [name]
        self._counts = {name: 1}

    def opens(self, name: str, tag: str) -> bool:
        """Take a start tag; say whether it is hidden, too, and not the end of what is."""
        root = self._open[0]
        if len(self._open) == 1 and name in ENDED_BY.get(root, ()):
            self._leave()
            return False
        itself_ended = root in {"svg", "math"} and tag.endswith("/>")
        if name not in VOID and not itself_ended:
            self._open.append(name)
            self._counts[name] = self._counts.get(name, 0) + 1
        return True

    def closes(self, name: str, *, around: bool) -> bool:
        """Take an end tag; say whether it ends nothing outside.

        Args:
            name: of the element.
            around: whether such an element is open around the hidden one.
        """
        if self._counts.get(name):
            ended = ""
            while ended != name:
                ended = self._open.pop()
                self._counts[ended] -= 1
            return True
        if around and self._open[0] not in FORMATTING:
            self._leave()
            return False
        return True

    def _leave(self) -> None:
        self._open, self._counts = [], {}
