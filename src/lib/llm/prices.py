"""The cost of model calls: price books, and the cost of a reply. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Final, Protocol

from lib.llm.client import Reply, usage_to_json

_TOO_MUCH: Final = Decimal(10) ** 18
_TOO_FINE: Final = -400


class PriceBook(Protocol):
    """Knows what model calls cost."""

    def price(
        self, provider: str | None, model: str, usage: Mapping[str, int | float], at: datetime
    ) -> Decimal | None:
        """Return the cost of one call in US dollars, None unless it is certain.

        It is pure, quick, and does not raise: a call that it has no price for is None, never 0.

        Args:
            provider: the provider that bills it, named as in OpenTelemetry's
                `gen_ai.provider.name` or as in the price book; None if the log names none.
            model: as the provider names it.
            usage: counts by their names in `lib.llm.Usage`; what is missing is 0.
            at: when the call was made; prices change.
        """
        ...


def as_cost(value: object) -> Decimal | None:
    """Return a cost that can be added to others; None for what is none: NaN, -1, "free", True."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    cost = value if isinstance(value, Decimal) else Decimal(str(value))
    exponent = cost.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < _TOO_FINE:
        return None
    return cost if 0 <= cost < _TOO_MUCH else None


def with_cost(
    reply: Reply, prices: PriceBook, *, provider: str | None, model: str, at: datetime
) -> Reply:
    """Return the reply with its cost: the one that its provider states, else the book's.

    Args:
        reply: the answer.
        prices: used only if the reply states no cost.
        provider: the provider that bills it, None if unknown.
        model: of the request, for a reply that does not name its model.
        at: when the reply came.
    """
    if reply.usage.cost is not None:
        return reply
    price = prices.price(provider, reply.model or model, usage_to_json(reply.usage), at)
    cost = as_cost(price)
    if cost is None:
        return reply
    return replace(reply, usage=replace(reply.usage, cost=float(cost)))
