"""What fulfils requests: the place of every effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lib._util.clock import Clock
from lib._util.json import canonical, digest
from lib.engine.core.algorithm import Request
from lib.engine.core.settle import Draft
from lib.events import BlobStore, Event
from lib.llm import Delta, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A piece of a reply while it is being written; never an event.

    Attributes:
        key: the request that it belongs to.
        attempt: from 1; a higher one starts the reply anew.
        delta: what has been added.
    """

    key: str
    attempt: int
    delta: Delta


class Offers:
    """The tools that all handlers of an engine offer to models, in a fixed order."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        """Keep the specifications."""
        self._specs = tuple(specs)
        self._digests: dict[tuple[str, ...] | None, str] = {}

    def chosen(self, names: Sequence[str] | None) -> Sequence[ToolSpec]:
        """Return those of these names; None means all."""
        if names is None:
            return self._specs
        return [spec for spec in self._specs if spec.name in names]

    def digest(self, names: Sequence[str] | None) -> str:
        """Return a digest of what a model is told of those, "" if there are none."""
        key = None if names is None else tuple(names)
        if key not in self._digests:
            told = [canonical([s.name, s.description, s.input_schema]) for s in self.chosen(names)]
            self._digests[key] = digest(*told) if told else ""
        return self._digests[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a handler knows of the run that asks.

    Attributes:
        decided: the request as the algorithm decided it, the same as the event's.
        offers: what all handlers of the engine offer to models.
        blobs: where large content is kept, if anywhere.
        live: takes pieces of a reply; None when nobody listens.
    """

    run_id: str
    tenant: str | None
    user: str | None
    decided: Request
    offers: Offers
    blobs: BlobStore | None
    clock: Clock
    live: Callable[[Live], None] | None = None


class Handler(Protocol):
    """Carries out one kind of request."""

    @property
    def kind(self) -> str:
        """The kind of the request events that it fulfils."""
        ...

    @property
    def request_type(self) -> type[Request]:
        """The type of the decided requests that it admits."""
        ...

    @property
    def offers(self) -> Sequence[ToolSpec]:
        """What models may call through it."""
        ...

    def admit(
        self,
        request: Request,
        *,
        run_id: str,
        upto: int,
        offers: Offers,
        approved: bool,
    ) -> Draft:
        """Return the intent to record before the effect, or the question to a person.

        Args:
            request: what the algorithm asked for.
            run_id: the run.
            upto: the `seq` of the last event that the request rests on.
            offers: what all handlers offer.
            approved: whether a person has approved it.
        """
        ...

    async def handle(self, request: Event, context: Context) -> Sequence[Draft]:
        """Have the effect and return what happened; the last draft is the result.

        It does not raise for what the outside world does wrong: that is a result, too.
        """
        ...

    def recover(self, request: Event) -> Draft | None:
        """Return the result of a request whose process died, or None to carry it out again."""
        ...
