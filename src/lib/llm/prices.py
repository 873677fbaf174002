"""What model calls cost: who knows prices, and how a price gets into a reply. Pure."""

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
        """Return the cost of one call in US dollars, None if it is not known for certain.

        It is pure, quick, and does not raise: a call that it has no price for is None, never 0.

        Args:
            provider: who is paid, as OpenTelemetry's `gen_ai.provider.name` or the price book
                names it; None if the log does not say.
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
    """Return the reply with its cost: what its provider has stated, else what the book says.

    Args:
        reply: the answer.
        prices: asked only if the reply states no cost.
        provider: who is paid, None if nobody knows.
        model: what was asked for, for a reply that does not say which model answered.
        at: when the reply came.
    """
    if reply.usage.cost is not None:
        return reply
    told = prices.price(provider, reply.model or model, usage_to_json(reply.usage), at)
    cost = as_cost(told)
    if cost is None:
        return reply
    return replace(reply, usage=replace(reply.usage, cost=float(cost)))
