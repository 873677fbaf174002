"""Costs in the log: what a provider states, else the price at the time of the reply."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Budget, Engine, LLMHandler, Result
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.llm import LLMClient, PriceBook, Reply, ScriptedClient, Text, ToolCall, Usage
from lib.observe import spend_of
from lib.testing.clock import ManualClock

USED = Usage(input_tokens=100, output_tokens=20)


class Prices:
    """A price that doubles with each query."""

    def __init__(self) -> None:
        self.queries: list[tuple[Any, ...]] = []

    def price(
        self, provider: str | None, model: str, usage: Mapping[str, int | float], at: datetime
    ) -> Decimal | None:
        self.queries.append((provider, model, dict(usage), at))
        return None if model == "unknown" else Decimal("0.1") * 2 ** (len(self.queries) - 1)


class PaidClient(ScriptedClient):
    """A client that names its provider."""

    provider = "openai"


async def run_with(
    client: LLMClient,
    prices: PriceBook | None,
    *,
    agent: React | None = None,
    budget: Budget | None = None,
) -> tuple[Result, list[Event]]:
    async def main() -> tuple[Result, list[Event]]:
        clock, store = ManualClock(), MemoryEventStore()
        clock.advance(3600)
        handler = LLMHandler(client, prices=prices)
        options: dict[str, Any] = {"algorithms": [agent or React()], "clock": clock}
        async with Engine(store, [handler], **options) as engine:
            started = await engine.start("hi", budget=budget)
            return await started.result(), await store.read(started.id)

    return await main()


def usages(log: list[Event]) -> list[Any]:
    return [event.data["reply"].get("usage") for event in log if event.kind == k.LLM_COMPLETED]


async def test_a_reply_is_recorded_with_its_price_at_that_time() -> None:
    prices = Prices()
    client = PaidClient([Reply((Text("hi"),), usage=USED, model="m-0101")])

    result, log = await run_with(client, prices)

    tokens = {"input_tokens": 100, "output_tokens": 20}
    assert prices.queries == [("openai", "m-0101", tokens, log[0].at)]
    assert log[0].at == ManualClock().now() + timedelta(hours=1)
    assert usages(log) == [{**tokens, "cost": 0.1}]
    assert (result.spend.cost, spend_of(log).total.cost) == (0.1, Decimal("0.1"))


async def test_the_log_keeps_the_price_that_it_was_recorded_with() -> None:
    prices = Prices()
    _, log = await run_with(ScriptedClient(["hi"]), prices)

    first, again = spend_of(log, prices=prices), spend_of(log, prices=prices)

    assert (first, len(prices.queries)) == (again, 1)


async def test_a_cost_that_the_provider_states_is_left_as_it_is() -> None:
    prices = Prices()
    usage = Usage(input_tokens=1, cost=0.75)

    result, _ = await run_with(ScriptedClient([Reply((Text("hi"),), usage=usage)]), prices)

    assert (result.spend.cost, prices.queries) == (0.75, [])


@pytest.mark.parametrize("prices", [None, Prices()])
async def test_an_unknown_price_is_not_recorded_as_zero(prices: PriceBook | None) -> None:
    client = ScriptedClient([Reply((Text("hi"),), usage=USED, model="unknown")])

    result, log = await run_with(client, prices)

    assert usages(log) == [{"input_tokens": 100, "output_tokens": 20}]
    assert (result.spend.cost, spend_of(log).total.unpriced) == (None, 1)


@pytest.mark.parametrize(("requested", "model"), [(None, "own"), ("other", "other")])
async def test_without_a_model_in_the_reply_the_requested_one_is_priced(
    requested: str | None, model: str
) -> None:
    class Nameless(ScriptedClient):
        async def complete(self, *arguments: Any, **options: Any) -> Reply:
            reply = await super().complete(*arguments, **options)
            return Reply(reply.parts, usage=reply.usage)

    prices = Prices()
    await run_with(Nameless(["hi"], model="own"), prices, agent=React(model=requested))

    assert [(provider, priced) for provider, priced, *_ in prices.queries] == [(None, model)]


async def test_a_budget_of_costs_holds_with_prices() -> None:
    ask = Reply((ToolCall("c", "missing"),), usage=USED, stop="tool_calls")
    client = ScriptedClient([ask, ask, "never requested"])

    result, _ = await run_with(client, Prices(), budget=Budget(cost=0.3))

    assert (result.outcome, result.reason, len(client.calls)) == ("LIMITED", "cost", 2)
    assert result.spend.cost == pytest.approx(0.3)


async def test_a_cost_ceiling_without_prices_warns_once_per_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = ScriptedClient(["one", Reply((Text("two"),), model="m"), "three"])
    store, handler = MemoryEventStore(), LLMHandler(client)

    async with Engine(store, [handler], algorithms=[React()]) as engine:
        started: list[str] = []
        for budget in (Budget(tokens=9), Budget(cost=0.01), Budget(cost=0.01)):
            run_ = await engine.start("hi", budget=budget)
            assert (await run_.result()).outcome == "COMPLETED"
            started.append(run_.id)
        _, warned, _ = started

    (warning,) = [line for line in caplog.messages if "cost" in line]
    assert repr(warned) in warning
    assert "counts as nothing: give the LLMHandler prices=" in warning


async def test_a_cost_ceiling_with_known_costs_does_not_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies = [Reply((Text("hi"),), usage=USED, model="m-0101")]

    await run_with(PaidClient(replies), Prices(), budget=Budget(cost=1))

    assert caplog.messages == []
