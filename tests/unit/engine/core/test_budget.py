import pytest

from lib.engine import Budget, Spend
from lib.engine.core.budget import exhausted


def test_a_budget_survives_json_and_ignores_unknown_fields() -> None:
    budget = Budget(tokens=0, cost=1.5)

    assert budget.to_json() == {"tokens": 0, "cost": 1.5}
    assert Budget.from_json({**budget.to_json(), "carbon": 3}) == budget


def test_negative_ceilings_are_refused() -> None:
    with pytest.raises(ValueError, match="budget tool_calls=-1 is negative"):
        Budget(tool_calls=-1)


@pytest.mark.parametrize("ceiling", [2**63, 1e300, float("inf"), float("nan")])
def test_ceilings_that_no_log_takes_are_refused(ceiling: float) -> None:
    with pytest.raises(ValueError, match=r"is no number below 2\*\*63"):
        Budget(seconds=ceiling)


@pytest.mark.parametrize(
    ("budget", "spend", "lacking"),
    [
        (Budget(), Spend(tokens=10**9), None),
        (Budget(llm_calls=2), Spend(llm_calls=1), None),
        (Budget(llm_calls=2), Spend(llm_calls=2), "llm_calls"),
        (Budget(tokens=10), Spend(tokens=9), None),
        (Budget(tokens=10), Spend(tokens=10), "tokens"),
        (Budget(cost=0.0), Spend(), "cost"),
        (Budget(seconds=1.0), Spend(seconds=0.5), None),
        (Budget(seconds=1.0), Spend(seconds=1.5), "seconds"),
        (Budget(tool_calls=0), Spend(), None),
    ],
)
def test_a_ceiling_of_none_is_unlimited_and_of_zero_allows_nothing(
    budget: Budget, spend: Spend, lacking: str | None
) -> None:
    assert exhausted(budget, spend, llm_calls=1, tool_calls=0) == lacking


def test_a_batch_of_calls_fits_the_budget_in_full_or_not_at_all() -> None:
    budget, spend = Budget(tool_calls=3), Spend(tool_calls=1)

    assert exhausted(budget, spend, llm_calls=0, tool_calls=2) is None
    assert exhausted(budget, spend, llm_calls=0, tool_calls=3) == "tool_calls"
