"""Tests what runs have spent, from their logs alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from lib.events import Event
from lib.events import kinds as k
from lib.observe import ModelSpend, SpendFold, TotalSpend, spend_by, spend_of
from lib.testing.logs import at, make_log

START: tuple[float, str, dict[str, Any]] = (0.0, k.RUN_STARTED, {"algorithm": "react", "input": []})
USED = {"input_tokens": 100, "output_tokens": 20}


def call_payload(key: str = "llm/1", **more: Any) -> tuple[float, str, dict[str, Any]]:
    return (1.0, k.LLM_REQUESTED, {"key": key, "upto": 1, "digest": "d", **more})


def answered(key: str = "llm/1", **reply: Any) -> tuple[float, str, dict[str, Any]]:
    return (2.0, k.LLM_COMPLETED, {"key": key, "reply": {"parts": [], **reply}})


class Prices:
    """Ten cents for each call of the model `m`; notes the queries."""

    def __init__(self) -> None:
        self.queries: list[tuple[Any, ...]] = []

    def price(
        self, provider: str | None, model: str, usage: Mapping[str, int | float], at: datetime
    ) -> Decimal | None:
        self.queries.append((provider, model, dict(usage), at))
        return Decimal("0.1") if model == "m" else None


def test_nothing_costs_nothing() -> None:
    spend = spend_of([])

    assert spend == TotalSpend()
    assert (spend.total, spend.total.cost, spend.total.tokens) == (ModelSpend(), Decimal(0), 0)


def test_every_count_of_a_reply_is_kept_and_its_stated_cost_is_exact() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 60,
        "cache_write_tokens": 5,
        "reasoning_tokens": 8,
        "cost": 0.1,
    }
    log = make_log(START, call_payload(), answered(model="m", usage=usage))

    counts = {name: count for name, count in usage.items() if name != "cost"}
    used: Any = {"calls": 1, "known_cost": Decimal("0.1"), **counts}
    assert spend_of(log) == TotalSpend(llm_calls=1, models={"m": ModelSpend(**used)})
    assert spend_of(log).total.tokens == 120


def test_one_call_without_a_price_makes_the_sum_incomplete_and_not_smaller() -> None:
    log = make_log(
        START,
        call_payload("llm/1"),
        answered("llm/1", model="m", usage={**USED, "cost": 0.25}),
        call_payload("llm/2"),
        answered("llm/2", model="m", usage=USED),
    )

    total = spend_of(log).total

    assert (total.calls, total.known_cost, total.unpriced, total.cost) == (
        2,
        Decimal("0.25"),
        1,
        None,
    )


def test_a_stated_cost_comes_before_the_price_and_the_price_before_not_knowing() -> None:
    prices = Prices()
    log = make_log(
        START,
        call_payload("llm/1"),
        answered("llm/1", model="m", usage={**USED, "cost": 0}),
        call_payload("llm/2", provider="openai"),
        answered("llm/2", model="m", usage=USED),
        call_payload("llm/3"),
        answered("llm/3", model="other", usage=USED),
        call_payload("llm/4"),
        answered("llm/4", usage=USED),
    )

    spend = spend_of(log, prices=prices)

    assert prices.queries == [
        ("openai", "m", USED, at(2.0)),
        (None, "other", USED, at(2.0)),
    ]
    assert (spend.models["m"].cost, spend.models["other"].cost) == (Decimal("0.1"), None)
    assert (spend.models[None].unpriced, spend.total.known_cost) == (1, Decimal("0.1"))


def test_what_a_cache_keeps_for_an_hour_is_known_to_the_price() -> None:
    prices = Prices()
    written = {**USED, "cache_write_tokens": 90, "cache_write_1h_tokens": 70}

    spend_of(make_log(START, call_payload(), answered(model="m", usage=written)), prices=prices)

    assert prices.queries == [(None, "m", written, at(2.0))]


@pytest.mark.parametrize(
    ("requested", "replied", "model"),
    [
        ({"model": "requested"}, {"model": "answered"}, "answered"),
        ({"model": "requested"}, {"model": ""}, "requested"),
        ({"model": "requested"}, {}, "requested"),
        ({}, {}, None),
        ({"model": 7}, {"model": ["m"]}, None),
    ],
)
def test_a_call_belongs_to_the_model_that_answered_else_to_the_requested_one(
    requested: dict[str, Any], replied: dict[str, Any], model: str | None
) -> None:
    log = make_log(START, call_payload(**requested), answered(**replied))

    assert list(spend_of(log).models) == [model]


def test_guards_summaries_and_memories_count_the_tokens_of_the_model_they_called() -> None:
    verdict = {"guard": "pii", "stage": "input", "verdict": "allow", "content_hash": "ab"}
    log = make_log(
        START,
        (1, k.GUARD_VERDICT, verdict),
        (1, k.GUARD_VERDICT, {**verdict, "usage": {"input_tokens": 3, "cost": 0.5}}),
        (1, k.CONTEXT_SUMMARY, {"covers": "cd", "text": "…"}),
        (1, k.CONTEXT_SUMMARY, {"covers": "cd", "text": "…", "usage": USED, "model": "small"}),
        (1, k.MEMORY_REQUESTED, {"key": "memory/1", "operation": "search_memory"}),
        (1, k.MEMORY_COMPLETED, {"key": "memory/1", "records": []}),
        (1, k.MEMORY_REQUESTED, {"key": "memory/2", "operation": "search_memory"}),
        (1, k.MEMORY_COMPLETED, {"key": "memory/2", "usage": {"input_tokens": 4, "cost": 0.25}}),
    )

    assert spend_of(log) == TotalSpend(
        guard_calls=2,
        models={
            None: ModelSpend(calls=2, input_tokens=7, known_cost=Decimal("0.75")),
            "small": ModelSpend(calls=1, input_tokens=100, output_tokens=20, unpriced=1),
        },
    )


def test_a_child_counts_in_its_own_log_and_never_again_in_its_parents() -> None:
    spend: dict[str, Any] = {"tokens": 120, "cost": 0.25, "llm_calls": 1}
    child_run: dict[str, Any] = {"key": "child/1", "run_id": "child"}
    parent = make_log(
        START,
        (1, k.CHILD_REQUESTED, child_run),
        (9, k.CHILD_COMPLETED, {**child_run, "outcome": "COMPLETED", "spend": spend}),
        run_id="parent",
    )
    child = make_log(
        START, call_payload(), answered(model="m", usage={**USED, "cost": 0.25}), run_id="child"
    )

    assert spend_of(parent) == TotalSpend(tool_calls=1)
    assert spend_of([*parent, *child]) == spend_of(child) + spend_of(parent)


def test_tool_calls_count_when_they_were_made() -> None:
    call: dict[str, Any] = {"key": "tool/1/c", "call_id": "c", "name": "act", "args": {}}
    log = make_log(
        START,
        (1, k.TOOL_REQUESTED, {**call, "effects": "none"}),
        (1, k.TOOL_REQUESTED, {**call, "key": "tool/1/d", "unstarted": True}),
    )

    assert spend_of(log).tool_calls == 1


def test_a_failed_call_is_a_call_and_what_it_used_is_not_known_of() -> None:
    error = {"type": "LLMError", "message": "busy"}
    log = make_log(
        START,
        call_payload(),
        (2, k.LLM_FAILED, {"key": "llm/1", "reason": "error", "error": error}),
    )

    assert spend_of(log) == TotalSpend(llm_calls=1)


def test_a_call_that_a_takeover_has_made_again_counts_once() -> None:
    resumed = (1.5, k.RUN_RESUMED, {"worker": "other", "epoch": 2})
    reply = answered(model="m", usage=USED)
    log = make_log(START, call_payload(), resumed, reply, reply)

    spend = spend_of(log)

    assert (spend.llm_calls, spend.models["m"].calls, spend.total.tokens) == (1, 1, 120)


def test_what_a_bus_delivers_again_counts_once_wherever_the_pages_end() -> None:
    log = make_log(START, call_payload(), answered(model="m", usage=USED))
    other = [replace(event, run_id="other") for event in log]
    fold = SpendFold()

    fold.add([log[0], other[0], log[1]])
    fold.add([log[0], log[1]])
    assert fold.spend == TotalSpend(llm_calls=1)
    fold.add([log[1], log[2], other[1], log[2], other[2]])

    assert fold.spend == spend_of(log) + spend_of(other)


def test_what_a_fold_has_said_stays_as_it_was() -> None:
    log = make_log(START, call_payload(), answered(model="m", usage=USED))
    fold = SpendFold()

    before = fold.spend
    fold.add(log)

    assert before == TotalSpend()


def test_groups_are_spent_apart() -> None:
    def run_of(run_id: str, tenant: str | None) -> list[Event]:
        return make_log(
            START, call_payload(), answered(model="m", usage=USED), run_id=run_id, tenant=tenant
        )

    runs = {"a": run_of("a", "acme"), "b": run_of("b", "acme"), "c": run_of("c", None)}
    events = [event for log in zip(*runs.values(), strict=True) for event in log]

    by_tenant = spend_by(lambda event: event.tenant, events)
    by_run = spend_by(lambda event: event.run_id, events, prices=Prices())

    assert {tenant: spend.llm_calls for tenant, spend in by_tenant.items()} == {"acme": 2, None: 1}
    assert by_run == {run_id: spend_of(log, prices=Prices()) for run_id, log in runs.items()}


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        "12",
        {"input_tokens": -1, "output_tokens": True},
        {"input_tokens": 1.5, "cost": "free"},
        {"cost": -1, "output_tokens": "7"},
    ],
)
def test_a_usage_that_cannot_be_read_is_unknown_and_counts_nothing(usage: Any) -> None:
    log = make_log(START, call_payload(), answered(model="m", usage=usage))

    assert spend_of(log).models == {"m": ModelSpend(calls=1, unpriced=1)}


def test_costs_add_up_exactly_in_any_order() -> None:
    costs = [Decimal("1e17"), Decimal("5e-324"), Decimal("0.1"), Decimal("0.2")]
    spends = [TotalSpend(models={"m": ModelSpend(known_cost=cost)}) for cost in costs]

    total = sum(spends, TotalSpend())

    assert total == sum(reversed(spends), TotalSpend())
    assert str(total.total.known_cost) == f"1{'0' * 17}.3{'0' * 322}5"


def test_payloads_that_lack_something_cost_no_more_than_what_they_lack():
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "a", "input": []}),
        (1, k.LLM_REQUESTED, {}),
        (2, k.LLM_COMPLETED, {"reply": "odd"}),
        (3, k.LLM_REQUESTED, {"key": 7}),
        (4, k.LLM_FAILED, {"key": 7}),
    )

    spend = spend_of(log)

    assert (spend.llm_calls, spend.total.calls) == (2, 1)
