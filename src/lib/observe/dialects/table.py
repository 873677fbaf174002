"""A dialect as a table: our names on the left, a backend's on the right.

What a table cannot express, such as how a conversation is written, is in functions beside it:
each returns attributes to add. `clean` comes last, so no function needs to care for odd values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lib.observe import attributes as a
from lib.observe.dialect import AttributeValue, Dialect
from lib.observe.dialects.values import clean
from lib.observe.span import Span, SpanKind

Names = Mapping[str, tuple[str, ...]]
"""Their names for each of ours; no names at all where it is not to be sent."""

Facts = Callable[[Span], Mapping[str, Any]]
"""Returns attributes of a span; None values are left out."""

COMMON: Final[Names] = {
    a.SESSION: (a.SESSION, a.CONVERSATION_ID),
    a.RUN_ID: (a.RUN_ID,),
    a.SPAN_KIND: (a.SPAN_KIND,),
    a.TENANT: (a.TENANT,),
    a.USER: (a.USER,),
}
"""The attributes of every span, in every dialect."""

_SUMS: Final[frozenset[SpanKind]] = frozenset({"agent", "session", "workflow"})
"""Kinds whose usage is that of the spans below them: a backend would count it twice."""

_MOST_NAMES: Final = 4096

_BEYOND: Final = 2**63
"""No usage is that large, or not a number; sums of such could overflow."""

_USAGE: Final = frozenset(name for names in a.USAGE.values() for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDialect:
    """Looks names up in a table.

    Attributes:
        name: of the dialect, for people.
        kind: the attribute for the kind of a span; one that the span has already wins.
        kinds: their word for each kind, None where there is none.
        names: of attributes; those that are missing here keep their name.
        facts: functions that return more attributes; a later one overrides an earlier one.
        rest: put before `lib.` names that are missing in `names`.
        omitted_prefix: attributes with this prefix that are missing in `names` are not sent.
    """

    name: str
    kind: str
    kinds: Mapping[SpanKind, str | None]
    names: Names
    facts: Sequence[Facts] = ()
    rest: str = ""
    omitted_prefix: str = ""
    _called: dict[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]], init=False, repr=False, compare=False
    )

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        """Return the attributes of a span, sorted by name."""
        values: dict[str, Any] = {self.kind: self.kinds[span.kind]}
        for name, value in _own_attributes(span).items():
            names = self._called.get(name)
            for theirs in self._look_up(name) if names is None else names:
                values[theirs] = value
        for facts in self.facts:
            values |= facts(span)
        return clean(values)

    def _look_up(self, name: str) -> tuple[str, ...]:
        """Return their names of one of ours, and remember them."""
        names = self.names.get(name) or self._unnamed(name)
        if len(self._called) < _MOST_NAMES:
            self._called[name] = names
        return names

    def _unnamed(self, name: str) -> tuple[str, ...]:
        if name in self.names or (self.omitted_prefix and name.startswith(self.omitted_prefix)):
            return ()
        return (f"{self.rest}{name}" if name.startswith("lib.") else name,)


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
        """The name of the dialect."""
        return self.dialect.name

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        """Return what the dialect makes of the span and what is added."""
        whole = replace(span, attributes={**self.more, **span.attributes})
        return self.dialect.attributes(whole)


def usage_of(span: Span) -> Mapping[str, int | float]:
    """Return what a leaf has used, named as in `a.USAGE`; nothing for spans that hold others."""
    if span.kind in _SUMS:
        return {}
    found = {ours: span.attributes.get(names[0]) for ours, names in a.USAGE.items()}
    return {
        ours: number
        for ours, number in found.items()
        if isinstance(number, int | float) and abs(number) < _BEYOND
    }


def settings_of(span: Span) -> Mapping[str, Any]:
    """Return the settings of a model call, by the last word of their names."""
    return {
        name.rpartition(".")[2]: span.attributes[name]
        for name in sorted(set(a.SETTINGS.values()))
        if span.attributes.get(name) is not None
    }


def trace_name_of(span: Span) -> Any:
    """Return the name of the whole trace, as far as the span knows it."""
    is_root = span.parent_id is None and span.kind != "evaluator"  # a score is judged from outside
    return span.attributes.get(a.TRACE_NAME) or (span.name if is_root else None)


def _own_attributes(span: Span) -> Mapping[str, Any]:
    """Return the attributes of a span, by our names."""
    values: dict[str, Any] = {
        a.RUN_ID: span.run_id or None,
        a.SPAN_KIND: span.kind,
        a.TENANT: span.tenant,
        a.USER: span.user,
        **span.attributes,
    }
    if span.kind in _SUMS:
        values = {name: value for name, value in values.items() if name not in _USAGE}
    conversation = values.pop(a.CONVERSATION_ID, None)
    if not values.get(a.SESSION):
        values[a.SESSION] = conversation
    return values
