"""The cost of a call: stated by the server, computed from a price, or unknown."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import data_snapshot
from genai_prices.data_snapshot import DataSnapshot

from lib.errors import MissingDriver
from lib.llm import ChatClient, GenAIPrices, PriceBook, Reply, Text, Usage
from lib.llm.prices import as_cost, with_cost

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
THOUSAND = {"input_tokens": 1000, "output_tokens": 100}


@pytest.fixture(scope="module")
def book() -> GenAIPrices:
    return GenAIPrices()


class FixedPrice:
    """Returns one price for every call, and records the calls."""

    def __init__(self, price: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._price = price

    def price(
        self, provider: str | None, model: str, usage: Mapping[str, int | float], at: datetime
    ) -> Any:
        self.calls.append((provider, model, usage, at))
        return self._price


# -- what a cost is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "cost"),
    [
        (0, Decimal(0)),
        (1, Decimal(1)),
        (0.1, Decimal("0.1")),
        (5e-324, Decimal("5e-324")),
        (Decimal("0.000043"), Decimal("0.000043")),
    ],
)
def test_a_cost_is_the_number_that_was_written(value: object, cost: Decimal) -> None:
    assert as_cost(value) == cost


@pytest.mark.parametrize(
    "value",
    [
        *(None, "free", "0.1", True, False, [], -1, -0.5, float("nan"), float("inf"), 1e300),
        *(Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal(-1), Decimal("1e-401")),
    ],
)
def test_what_cannot_be_added_up_is_no_cost(value: object) -> None:
    assert as_cost(value) is None


# -- the price of a reply --------------------------------------------------------------------------


def test_a_reply_without_a_cost_gets_the_price_of_the_model_that_answered() -> None:
    book = FixedPrice(Decimal("0.25"))
    reply = Reply((Text("hi"),), usage=Usage(input_tokens=3, reasoning_tokens=1), model="m-0101")

    priced = with_cost(reply, book, provider="openai", model="m", at=AT)

    assert priced.usage == Usage(input_tokens=3, reasoning_tokens=1, cost=0.25)
    used = {"input_tokens": 3, "reasoning_tokens": 1}
    assert book.calls == [("openai", "m-0101", used, AT)]


def test_a_reply_without_a_model_gets_the_price_of_the_requested_one() -> None:
    book = FixedPrice(Decimal(1))

    with_cost(Reply(()), book, provider=None, model="m", at=AT)

    assert book.calls == [(None, "m", {}, AT)]


@pytest.mark.parametrize("stated", [0.0, 0.125])
def test_a_cost_that_the_provider_states_is_kept_even_zero(
    stated: float,
) -> None:
    book = FixedPrice(Decimal(1))
    reply = Reply((), usage=Usage(cost=stated))

    assert with_cost(reply, book, provider=None, model="m", at=AT) is reply
    assert book.calls == []


@pytest.mark.parametrize("price", [None, Decimal("NaN"), Decimal(-1)])
def test_a_price_that_is_none_leaves_the_cost_unknown_and_not_zero(price: Any) -> None:
    reply = Reply((), usage=Usage(input_tokens=3))

    assert with_cost(reply, FixedPrice(price), provider=None, model="m", at=AT) is reply


# -- the table -------------------------------------------------------------------------------------


def test_the_table_is_a_price_book(book: PriceBook) -> None:
    assert book.price("openai", "gpt-4o", THOUSAND, AT) == Decimal("0.0035")


def test_cached_input_is_part_of_the_input_and_has_its_own_rate(book: GenAIPrices) -> None:
    used = {"input_tokens": 1000, "cache_read_tokens": 400, "cache_write_tokens": 100}

    # 500 at $3, 400 at $0.30, 100 at $3.75 a million
    assert book.price("anthropic", "claude-sonnet-4-5", used, AT) == Decimal("0.001995")


def test_what_the_cache_keeps_for_an_hour_has_its_own_rate(book: GenAIPrices) -> None:
    used = {"input_tokens": 1000, "cache_write_tokens": 300, "cache_write_1h_tokens": 100}

    # 700 at $3, 200 at $3.75, 100 at $6 a million
    assert book.price("anthropic", "claude-sonnet-4-5", used, AT) == Decimal("0.00345")


@pytest.mark.parametrize("cached", ["cache_read_tokens", "cache_write_tokens"])
def test_cached_input_without_a_rate_is_unknown_and_never_at_the_full_rate(
    book: GenAIPrices, cached: str
) -> None:
    assert book.price("openai", "gpt-4", {**THOUSAND, cached: 0}, AT) is not None
    assert book.price("openai", "gpt-4", {**THOUSAND, cached: 1}, AT) is None


def test_a_model_that_is_listed_without_rates_is_unknown_and_not_free(book: GenAIPrices) -> None:
    assert book.price("google", "gemma-3", THOUSAND, AT) is None
    assert book.price("openai", "text-embedding-3-small", {"input_tokens": 1}, AT) is not None
    assert book.price("openai", "text-embedding-3-small", THOUSAND, AT) is None


def test_reasoning_is_part_of_the_output_unless_it_has_a_rate_of_its_own(
    book: GenAIPrices,
) -> None:
    thought = {**THOUSAND, "reasoning_tokens": 40}

    assert book.price("openai", "o3", thought, AT) == book.price("openai", "o3", THOUSAND, AT)
    # 1000 at $2, 60 at $8, 40 at $3 a million
    found = book.price("openrouter", "perplexity/sonar-deep-research", thought, AT)
    assert found == Decimal("0.0026")


@pytest.mark.parametrize(
    "used",
    [
        {},
        {"input_tokens": 0},
        {"input_tokens": 10, "cache_read_tokens": 11},
        {"input_tokens": -1},
        {"input_tokens": float("nan")},
    ],
)
def test_counts_that_say_nothing_or_contradict_each_other_have_no_price(
    book: GenAIPrices, used: dict[str, float]
) -> None:
    assert book.price("openai", "gpt-4o", used, AT) is None


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "model-of-next-year"),
        ("openai", ""),
        ("unknown", "gpt-4o"),
        ("my-openai-proxy", "gpt-4o"),
        (None, "gpt-4o"),
        (None, "deepseek-r1:7b"),
    ],
)
def test_a_model_whose_name_resembles_a_known_one_has_no_price(
    book: GenAIPrices, provider: str | None, model: str
) -> None:
    assert book.price(provider, model, THOUSAND, AT) is None


def test_a_default_provider_is_meant_where_the_log_names_none() -> None:
    book = GenAIPrices("openai")

    assert book.price(None, "gpt-4o", THOUSAND, AT) == Decimal("0.0035")
    assert book.price("unknown", "gpt-4o", THOUSAND, AT) is None


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("aws.bedrock", "anthropic.claude-3-haiku-20240307-v1:0"),
        ("azure.ai.openai", "gpt-4o"),
        ("gcp.gemini", "gemini-2.5-pro"),
        ("gcp.vertex_ai", "gemini-2.5-pro"),
        ("mistral_ai", "mistral-small-latest"),
        ("x_ai", "grok-3"),
    ],
)
def test_providers_go_by_the_names_that_opentelemetry_gives_them(
    book: GenAIPrices, provider: str, model: str
) -> None:
    assert book.price(provider, model, THOUSAND, AT) is not None


@pytest.mark.parametrize(
    "host",
    [
        *("api.openai.com", "me.openai.azure.com", "api.anthropic.com", "api.cohere.ai"),
        *("api.deepseek.com", "api.groq.com", "api.mistral.ai", "api.perplexity.ai", "api.x.ai"),
        *("generativelanguage.googleapis.com", "openrouter.ai"),
    ],
)
def test_every_provider_that_a_client_knows_by_its_address_has_prices(host: str) -> None:
    client = ChatClient("m", base_url=f"https://{host}/v1", api_key="key")

    assert client.provider is not None
    assert GenAIPrices(client.provider) is not None


def test_prices_are_those_of_the_time_of_the_call(book: GenAIPrices) -> None:
    long = {"input_tokens": 300_000}
    before, after = datetime(2026, 3, 12, 23, tzinfo=UTC), datetime(2026, 3, 13, 1, tzinfo=UTC)
    elsewhere = before.astimezone(timezone(timedelta(hours=5)))  # where it is the 13th

    # long inputs cost double until 13 March 2026
    assert book.price("anthropic", "claude-opus-4-6", long, before) == Decimal(3)
    assert book.price("anthropic", "claude-opus-4-6", long, elsewhere) == Decimal(3)
    assert book.price("anthropic", "claude-opus-4-6", long, after) == Decimal("1.5")


def test_before_the_first_price_in_force_there_is_none(
    book: GenAIPrices, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genai_prices import types

    (openai,) = [each for each in data_snapshot.get_snapshot().providers if each.id == "openai"]
    start = types.StartDateConstraint(start_date=AT.date())
    found = openai.find_model("gpt-4o")
    assert found is not None
    assert isinstance(found.prices, types.ModelPrice)
    later = types.ConditionalPrice(constraint=start, prices=found.prices)
    monkeypatch.setattr(found, "prices", [later])

    assert book.price("openai", "gpt-4o", THOUSAND, AT) == Decimal("0.0035")
    assert book.price("openai", "gpt-4o", THOUSAND, AT - timedelta(days=1)) is None


def test_what_else_the_process_has_loaded_changes_no_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_snapshot, "_custom_snapshot", DataSnapshot([], from_auto_update=True))

    assert GenAIPrices().price("openai", "gpt-4o", THOUSAND, AT) == Decimal("0.0035")


def test_an_unknown_default_provider_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="no prices of provider 'opnai': the table has"):
        GenAIPrices("opnai")


def test_without_its_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "genai_prices.data", None)

    with pytest.raises(MissingDriver, match=r"pip install 'genai-prices") as caught:
        GenAIPrices()

    assert (caught.value.driver, caught.value.extra) == ("genai-prices", "prices")
