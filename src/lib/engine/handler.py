"""What fulfils requests: the place of every effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lib._util.clock import Clock
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
    offers: Sequence[ToolSpec]
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
        offers: Sequence[ToolSpec],
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
