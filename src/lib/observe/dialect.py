"""What a span is called on the wire: every backend has words of its own for the same things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from lib.observe.span import Span

AttributeValue: TypeAlias = str | bool | int | float | Sequence[str | bool | int | float]
"""What OpenTelemetry lets an attribute hold: a scalar, or a list of them."""


class Dialect(Protocol):
    """Turns spans into attributes that a backend understands."""

    @property
    def name(self) -> str:
        """What it is called, for people."""
        ...

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        """Return the attributes of a span, sorted by name; equal spans give equal attributes.

        Text is valid Unicode, numbers are finite, and integers fit into 64 bits.
        """
        ...
