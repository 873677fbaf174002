"""The process may die anywhere while one agent has another one act, twice: the same laws hold."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)  # hundreds of processes live and die here
TIMEOUT_S = 290
MATRIX = Path(__file__).with_name("matrix.py")


@pytest.fixture(scope="module")
def cases(unmeasured: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(MATRIX), "delegate"],
        env=unmeasured,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_case_dies_where_it_should_and_both_agents_end(cases: list[dict[str, Any]]) -> None:
    died_twice = [case for case in cases if len(case["died"]) == 2]

    assert [case for case in cases if "broken" in case] == []
    assert {case["outcome"] for case in cases} == {"COMPLETED"}
    assert len(died_twice) > 100
    assert {point.rpartition(":")[0] for case in cases for point in case["died"]} >= {
        *(f"append:{number}" for number in range(1, 10)),
        "pay:1",
    }


def test_what_the_other_agent_does_once_is_done_once(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        assert len(case["ledger"]) <= 1, case


def test_the_answer_is_that_of_the_undisturbed_run_but_for_an_unknown_payment(
    cases: list[dict[str, Any]],
) -> None:
    assert cases[0]["output"] == "pay-1=pay done"

    for case in cases[1:]:
        assert re.fullmatch("pay-1=(pay done|unknown)", case["output"]), case
        if case["output"] == "pay-1=pay done":
            assert len(case["ledger"]) == 1, case


def test_the_logs_of_both_verify_and_agree(cases: list[dict[str, Any]]) -> None:
    assert [case for case in cases if case["faults"]] == []
    assert {case["runs"] for case in cases} == {2}
