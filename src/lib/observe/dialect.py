"""The protocol that translates spans to the attribute names of a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from lib.observe.span import Span

AttributeValue: TypeAlias = str | bool | int | float | Sequence[str | bool | int | float]
"""The values that OpenTelemetry allows for an attribute: a scalar, or a list of scalars."""


class Dialect(Protocol):
    """Turns spans into attributes that a backend understands."""

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        """Return the attributes of a span, sorted by name; equal spans give equal attributes.

        Text is valid Unicode, numbers are finite, and integers fit into 64 bits.
        """
        ...
