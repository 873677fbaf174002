"""Spans that are changed when their turn comes, since to change many at once holds others up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from lib.observe.span import Span


class Lazily(Sequence[Span]):
    """Spans, each of them changed whenever somebody looks at it."""

    def __init__(self, spans: Sequence[Span], change: Callable[[Span], Span]) -> None:
        """Take the spans, and what makes of each the one that is seen."""
        self._spans, self._change = spans, change

    @overload
    def __getitem__(self, place: int) -> Span: ...

    @overload
    def __getitem__(self, place: slice) -> Lazily: ...

    def __getitem__(self, place: int | slice) -> Span | Lazily:
        """Return one span, or some that are still to be changed."""
        if isinstance(place, slice):
            return Lazily(self._spans[place], self._change)
        return self._change(self._spans[place])

    def __iter__(self) -> Iterator[Span]:
        """Change one after the other."""
        return map(self._change, self._spans)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._spans)
