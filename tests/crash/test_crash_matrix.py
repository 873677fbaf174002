"""A process may die anywhere, twice: nothing is lost, nothing is paid twice, every log verifies."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)  # hundreds of processes live and die here
TIMEOUT_S = 290
MATRIX = Path(__file__).with_name("matrix.py")


@pytest.fixture(scope="module")
def cases(unmeasured: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(MATRIX), "go"],
        env=unmeasured,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_case_dies_where_it_should_and_ends(cases: list[dict[str, Any]]) -> None:
    died_twice = [case for case in cases if len(case["died"]) == 2]

    assert [case for case in cases if "broken" in case] == []
    assert {case["outcome"] for case in cases} == {"COMPLETED"}
    assert len(died_twice) > 100
    assert {point.rpartition(":")[0] for case in cases for point in case["died"]} >= {
        *(f"append:{number}" for number in range(1, 7)),
        "pay:1",
        "pay:2",
        "book:1",
        "look:1",
    }


def test_a_once_tool_never_runs_twice(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        paid = Counter(line for line in case["ledger"] if line.startswith("pay "))

        assert set(paid.values()) <= {1}, case


def test_an_idempotent_tool_has_each_effect_under_one_key(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        booked = {line for line in case["ledger"] if line.startswith("book ")}

        assert len(booked) == 1, case


def test_the_answer_is_that_of_the_undisturbed_run_but_for_unknown_payments(
    cases: list[dict[str, Any]],
) -> None:
    undisturbed = cases[0]["output"]
    assert undisturbed == "pay-1=pay done book-1=book done look-1=look done pay-2=pay done"

    for case in cases[1:]:
        assert re.sub(r"(pay-\d)=unknown", r"\1=pay done", case["output"]) == undisturbed, case


def test_a_payment_that_the_model_was_told_of_stands_in_the_ledger(
    cases: list[dict[str, Any]],
) -> None:
    for case in cases:
        told = len(re.findall(r"pay-\d=pay done", case["output"]))
        paid = sum(line.startswith("pay ") for line in case["ledger"])

        assert told <= paid <= 2, case


def test_every_log_verifies_and_every_request_renders_as_recorded(
    cases: list[dict[str, Any]],
) -> None:
    assert [case for case in cases if case["faults"]] == []
