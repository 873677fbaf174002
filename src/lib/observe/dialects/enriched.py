"""A dialect whose spans know more: what a sink adds to each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lib.observe.dialect import AttributeValue, Dialect
from lib.observe.span import Span


@dataclass(frozen=True, slots=True)
class Enriched:
    """Adds attributes to every span before a dialect puts them into its own words.

    Attributes:
        dialect: translates.
        more: by our names, such as `lib.observe.attributes.TAGS`; what a span says itself wins.
    """

    dialect: Dialect
    more: Mapping[str, Any]

    @property
    def name(self) -> str:
        """That of the dialect."""
        return self.dialect.name

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        """Return what the dialect makes of the span and what is added."""
        whole = replace(span, attributes={**self.more, **span.attributes})
        return self.dialect.attributes(whole)
