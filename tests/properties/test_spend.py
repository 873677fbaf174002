"""Laws of spend over random logs: it adds up, in any order, and never shrinks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fakes.random_logs import logs, traces
from lib.engine import Wait
from lib.engine.core.state import fold
from lib.events import Event
from lib.llm import Message
from lib.observe import SpendFold, TotalSpend, spans_from_events, spend_by, spend_of
from lib.observe import attributes as a


class Prices:
    """A price that depends on every argument, and that some calls lack."""

    def price(
        self, provider: str | None, model: str, usage: Mapping[str, int | float], at: datetime
    ) -> Decimal | None:
        cents = Decimal(str(sum(usage.values()))) / 7 + at.second + len(model)
        return cents if at.second % 3 else None


class Idle:
    """An algorithm that has no state and decides nothing."""

    name = "idle"

    def config(self) -> dict[str, Any]:
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> None:
        return None

    def evolve(self, state: None, event: Event) -> None:
        return None

    def decide(self, state: None) -> Wait:
        return Wait()


def flat(runs: Iterable[Sequence[Event]]) -> list[Event]:
    return [event for log in runs for event in log]


def is_within(small: TotalSpend, large: TotalSpend) -> bool:
    calls = ("llm_calls", "tool_calls", "guard_calls")
    return all(getattr(small, name) <= getattr(large, name) for name in calls) and all(
        mine <= its
        for model, spend in small.models.items()
        for mine, its in zip(astuple(spend), astuple(large.models[model]), strict=True)
    )


@given(traces(max_steps=8), st.data(), st.sampled_from([None, Prices()]))
def test_any_split_of_the_runs_adds_up_in_any_order(
    drawn: list[list[Event]], data: st.DataObject, prices: Prices | None
):
    shuffled = data.draw(st.permutations(drawn))
    cut = data.draw(st.integers(0, len(shuffled)))

    parts = [spend_of(flat(part), prices=prices) for part in (shuffled[:cut], shuffled[cut:])]

    whole = spend_of(flat(drawn), prices=prices)
    assert parts[0] + parts[1] == parts[1] + parts[0] == whole
    by_run = spend_by(lambda event: event.run_id, flat(drawn), prices=prices)
    assert sum(by_run.values(), TotalSpend()) == whole


@given(traces(max_steps=8), st.data())
def test_pages_and_repeats_change_nothing(drawn: list[list[Event]], data: st.DataObject):
    events = flat(drawn)
    spend = SpendFold()

    place = 0
    while place < len(events):
        back = data.draw(st.integers(0, place))
        size = data.draw(st.integers(1, len(events)))
        spend.add(events[place - back : place + size])
        place += size

    assert spend.spend == spend_of(events)


@given(logs(max_steps=15), st.sampled_from([None, Prices()]))
def test_a_longer_log_has_never_spent_less(log: list[Event], prices: Prices | None):
    steps = [spend_of(log[:size], prices=prices) for size in range(len(log) + 1)]

    assert all(is_within(*pair) for pair in pairwise(steps))


@given(logs())
def test_prices_change_only_costs_and_all_counters_agree(log: list[Event]):
    spend, priced = spend_of(log), spend_of(log, prices=Prices()).total
    plain, engine = spend.total, fold(Idle(), log).spend
    shown = spans_from_events(log)[0].attributes

    assert (plain.calls, plain.tokens) == (priced.calls, priced.tokens)
    assert plain.known_cost <= priced.known_cost
    assert plain.unpriced >= priced.unpriced
    assert (spend.llm_calls, spend.tool_calls) == (engine.llm_calls, engine.tool_calls)
    assert plain.tokens >= engine.tokens  # guards, summaries and memories are on no budget
    totals = {name: shown.get(attribute, 0) for name, attribute in a.TOTALS.items()}
    calls = {"llm_calls": spend.llm_calls, "tool_calls": spend.tool_calls}
    used = {name: getattr(plain, name) for name in totals if name.endswith("_tokens")}
    assert totals == {**calls, **used, "cost": float(plain.known_cost)}
