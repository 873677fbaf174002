"""`GenAIPrices`: the price table of the package genai-prices, and what it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Final

from lib.errors import MissingDriver

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, PriceCalculation

_RATES: Final = {
    "input_tokens": "input_mtok",
    "output_tokens": "output_mtok",
    "cache_read_tokens": "cache_read_mtok",
    "cache_write_tokens": "cache_write_mtok",
    "cache_write_1h_tokens": "cache_write_1h_mtok",
}
"""Each count, and the rate without which it has no price. The table itself would charge what has
no rate of its own at the rate of what it is part of, and the rest not at all."""

_REASONING: Final = "output_reasoning_tokens"

_PROVIDERS: Final = {
    "aws.bedrock": "aws",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "mistral_ai": "mistral",
    "moonshot_ai": "moonshotai",
    "x_ai": "x-ai",
}
"""OpenTelemetry's names of providers that have others in the table."""


class GenAIPrices:
    """A `PriceBook` of list prices, as they were when the installed genai-prices was released.

    It never uses the network, not even where other code in the process keeps genai-prices up to
    date. It knows prices that have changed, depend on the hour, or on the length of the input. It
    does not know discounts, batches and service tiers.
    """

    def __init__(self, provider: str | None = None) -> None:
        """Load the table, which takes a fifth of a second.

        Args:
            provider: the provider of calls whose log names none, such as "openai";
                None leaves them without a price. The name of a model does not tell: a model of
                that name may run on a machine of your own.

        Raises:
            MissingDriver: genai-prices is not installed.
            ValueError: the table has no such provider.
        """
        self._table = _bundled()
        self._ids = frozenset(each.id for each in self._table.providers)
        self._default = provider
        if provider is not None and self._table_id(provider) is None:
            names = ", ".join(sorted(self._ids))
            raise ValueError(f"no prices of provider {provider!r}: the table has {names}")

    def price(
        self, provider: str | None, model: str, usage: Mapping[str, int | float], at: datetime
    ) -> Decimal | None:
        """Return the cost in US dollars, None if the table lacks any part of it.

        See `PriceBook.price`.
        """
        paid_id = self._table_id(provider or self._default)
        counts = {name: count for name in _RATES if (count := usage.get(name))}
        if paid_id is None or not counts:
            return None
        billed = {**counts, _REASONING: usage.get("reasoning_tokens", 0)}
        try:
            found = self._table.calc(billed, model, paid_id, None, at)
        except (LookupError, ValueError):  # an unknown model; counts that contradict each other
            return None
        return found.total_price if _is_whole(found, counts, at) else None

    def _table_id(self, provider: str | None) -> str | None:
        # The table's own search takes any name that contains a provider's, such as "openai-proxy".
        name = _PROVIDERS.get(provider or "", provider or "")
        return name if name in self._ids else None


def _bundled() -> DataSnapshot:
    """Return the table that comes with the package, whatever else the process has loaded."""
    try:
        data = import_module("genai_prices.data")  # 1.6 MB, which pyright reads for three minutes
        from genai_prices.data_snapshot import DataSnapshot  # noqa: PLC0415 - loaded when needed
    except ImportError as error:
        raise MissingDriver("GenAIPrices", driver="genai-prices", extra="prices") from error
    return DataSnapshot(providers=data.providers, from_auto_update=False)


def _is_whole(found: PriceCalculation, counts: Mapping[str, int | float], at: datetime) -> bool:
    """Return True if every count has a rate at that time."""
    rates = found.model_price
    priced = all(getattr(rates, _RATES[name]) is not None for name in counts)
    return priced and _is_in_force(found.model, at)


def _is_in_force(model: ModelInfo, at: datetime) -> bool:
    """Return True if one of the prices is valid then: if none is, the table takes the first."""
    if not isinstance(model.prices, list):
        return True
    return any(each.constraint is None or each.constraint.active(at) for each in model.prices)
