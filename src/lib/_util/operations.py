"""Operations inside a tool call, such as a search: recorded for its trace by the code below it.

The handler that drives the call opens a notebook. Each block within `operation` below it, in tasks
and threads too, is noted there with its times. Without a notebook nothing is noted.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from lib._util.attempts import counted_facts, counting
from lib._util.clock import Clock

OperationKind = Literal["retriever", "reranker", "embedding"]

MOST: Final = 32
"""The most operations of one call that are noted."""

MAX_QUERY_CHARS: Final = 1_000
MAX_DOCUMENTS: Final = 20


@dataclass(slots=True)
class _Noted:
    kind: OperationKind
    start: datetime
    under: int | None
    facts: dict[str, Any]
    end: datetime | None = None


@dataclass(slots=True)
class Notebook:
    """The operations of one call, in the order in which they began."""

    clock: Clock
    _noted: list[_Noted] = field(default_factory=list[_Noted])

    @contextmanager
    def open(self) -> Generator[None]:
        """Note the operations of the block."""
        token = _CURRENT.set((self, None))
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the operations as plain data; one that has not ended has no `end`."""
        return [
            {
                "kind": each.kind,
                "start": each.start.isoformat(),
                **({} if each.end is None else {"end": each.end.isoformat()}),
                **({} if each.under is None else {"under": each.under}),
                **{name: value for name, value in each.facts.items() if value is not None},
            }
            for each in self._noted
        ]

    def begin(self, kind: OperationKind, under: int | None, facts: dict[str, Any]) -> int | None:
        """Note the beginning of an operation; return its number, None if there is no room."""
        if len(self._noted) == MOST:
            return None
        self._noted.append(_Noted(kind, self.clock.now(), under, facts))
        return len(self._noted) - 1

    def end(self, number: int) -> None:
        """Note the end of an operation."""
        self._noted[number].end = self.clock.now()


_CURRENT: ContextVar[tuple[Notebook, int | None] | None] = ContextVar("operations", default=None)


@contextmanager
def operation(kind: OperationKind, **facts: Any) -> Generator[dict[str, Any]]:
    """Note the block as one operation, and yield its facts, to which the block may add more.

    Facts are plain data and small: a model's name, a number of documents, never their text.
    """
    current = _CURRENT.get()
    number = None if current is None else current[0].begin(kind, current[1], facts)
    if current is None or number is None:
        yield facts
        return
    token = _CURRENT.set((current[0], number))
    counts: dict[str, float] = {}
    try:
        with counting() as counts:
            yield facts
    except BaseException as error:
        facts["error"] = type(error).__name__
        raise
    finally:
        facts |= counted_facts(counts)
        current[0].end(number)
        _CURRENT.reset(token)


def model_of(client: object) -> str | None:
    """Return the name of an embedder's or a reranker's model, None if it has none."""
    model = getattr(client, "model", None)
    return model if isinstance(model, str) else None
