"""A process may die anywhere, twice: nothing is lost, nothing is paid twice, every log verifies.

On every store, in four scenarios; and on servers a connection may die beside any append, too. See
`matrix.py` for which cases there are, and `places.py` for what they prove of a store in memory.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from servers import postgres, redis

LONG = bool(os.environ.get("LIB_TEST_LONG"))
pytestmark = pytest.mark.timeout(7200 if LONG else 2400)  # hundreds of processes live and die here
TIMEOUT_S = 7000 if LONG else 2300
MATRIX = Path(__file__).with_name("matrix.py")
SERVERS = {"postgres": postgres.url, "redis": redis.url}

Cases = list[dict[str, Any]]


STORES = ("memory", "sqlite", *SERVERS)
TEAMS = ("reflexion", "debate", "swarm")
SHORT = ("remember", "summarize", *TEAMS)
"""Left out on servers by default."""


def in_scenarios(*scenarios: str) -> pytest.MarkDecorator:
    """Run a test in these scenarios, on each store that has them."""
    pairs = [
        (store, scenario)
        for store in STORES
        for scenario in scenarios
        if LONG or store not in SERVERS or scenario not in SHORT
    ]
    return pytest.mark.parametrize(("store", "scenario"), pairs)


each_scenario = in_scenarios("go", "delegate", "client", "session", *SHORT)


@pytest.fixture(scope="module")
def played(unmeasured: dict[str, str]) -> Callable[[str], Cases]:
    """Return a function that plays all cases on a store, once."""
    return cache(partial(_play, unmeasured))


def _play(unmeasured: dict[str, str], store: str) -> Cases:
    server = [SERVERS[store]()] if store in SERVERS else []
    done = subprocess.run(
        [sys.executable, str(MATRIX), store, *server],
        env=unmeasured,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def cases(played: Callable[[str], Cases], store: str, scenario: str) -> Cases:
    return [case for case in played(store) if case["scenario"] == scenario]


@each_scenario
def test_every_case_crashes_at_its_point_and_then_ends(cases: Cases) -> None:
    undisturbed = cases[0]
    once = [case["died"][0] for case in cases if len(case["died"]) == 1]

    assert [case for case in cases if "broken" in case] == []
    assert {case["outcome"] for case in cases} == {"COMPLETED"}
    assert Counter(undisturbed["seen"]) <= Counter(once)  # every point is a first crash
    # Calls of one batch end in any order, so a few second crashes wait for what does not come.
    assert (Counter(once) - Counter(undisturbed["seen"])).total() <= len(cases) // 10


@each_scenario
def test_a_run_passes_every_expected_crash_point(cases: Cases, scenario: str) -> None:
    appends, effects = {
        "go": (7, ["pay:1", "pay:2", "book:1", "look:1", "send:1"]),
        "delegate": (10, ["pay:1"]),
        "client": (8, ["pay:1"]),
        "session": (
            18,
            [f"{tool}:{n}" for tool in ("pay", "book", "look", "send") for n in (1, 2)],
        ),
        "remember": (7, ["pay:1", "learn:1"]),
        "summarize": (19, ["pay:1", "pay:2", "sum_up:1"]),
        "reflexion": (9, ["pay:1"]),
        "debate": (9, ["pay:1", "book:1"]),
        "swarm": (8, ["pay:1", "look:1"]),
    }[scenario]
    expected = {*(f"append:{n}" for n in range(1, appends + 1)), *effects}

    assert {point.rpartition(":")[0] for point in cases[0]["seen"]} == expected


@pytest.mark.parametrize("store", STORES)
def test_the_matrix_has_enough_cases(played: Callable[[str], Cases], store: str) -> None:
    all_cases = played(store)
    died_twice = Counter(case["scenario"] for case in all_cases if len(case["died"]) == 2)

    assert len(all_cases) > 120
    if LONG:  # the full product
        assert died_twice["go"] > 300
        assert died_twice["delegate"] > 100
    assert min(died_twice[scenario] for scenario in ("go", "delegate", "session")) > 10


@in_scenarios("go", "delegate", "session")
def test_server_connections_are_cut_at_every_append(cases: Cases, store: str) -> None:
    appends = [p.removesuffix(":after") for p in cases[0]["seen"] if re.match("append:.*after", p)]
    cut = [case for case in cases if case["cut"]]

    expected = [f"{append}:{how}" for append in appends for how in ("cut", "lost")]
    assert Counter(case["cut"] for case in cut) == Counter(expected if store in SERVERS else [])
    # The engine goes on by itself; a caller that gets an error repeats its call, once.
    assert {case["failures"] for case in cut} <= {0, 1}


@each_scenario
def test_a_once_tool_never_runs_twice(cases: Cases) -> None:
    for case in cases:
        payments = Counter(line for line in case["ledger"] if line.startswith("pay "))

        assert set(payments.values()) <= {1}, case


@each_scenario
def test_an_idempotent_tool_has_each_effect_under_one_key(cases: Cases, scenario: str) -> None:
    for case in cases:
        booked = {line for line in case["ledger"] if line.startswith("book ")}

        assert len(booked) == {"go": 1, "session": 2, "debate": 1}.get(scenario, 0), case


@each_scenario
def test_a_once_tool_with_a_check_has_its_effect_once_and_never_an_unknown_outcome(
    cases: Cases, scenario: str
) -> None:
    for case in cases:
        sent = Counter(line for line in case["ledger"] if line.startswith("send "))

        assert len(sent) == {"go": 1, "session": 2}.get(scenario, 0), case
        assert set(sent.values()) <= {1}, case
        assert case["output"].count("=send done") == len(sent), case


@each_scenario
def test_the_answer_equals_that_of_an_undisturbed_run_except_for_unknown_payments(
    cases: Cases, scenario: str
) -> None:
    undisturbed = cases[0]["output"]
    assert (
        undisturbed
        == {
            "go": "pay-1=pay done book-1=book done look-1=look done send-1=send done "
            "pay-2=pay done",
            "delegate": "pay-1=pay done",
            "client": "pay-1=pay done mark-1=marked",
            "session": "pay-1=pay done book-1=book done look-1=look done send-1=send done | "
            "pay-2=pay done book-2=book done look-2=look done send-2=send done",
            "remember": "pay-1=pay done",
            "summarize": "pay-1=pay done | pay-1=pay done",
            "reflexion": "improved pay-1=pay done",
            "debate": "pay-1=pay done book-1=book done",
            "swarm": "pay-1=pay done",
        }[scenario]
    )

    for case in cases[1:]:
        assert re.sub(r"(pay-\d)=unknown", r"\1=pay done", case["output"]) == undisturbed, case


@each_scenario
def test_a_payment_reported_to_the_model_is_in_the_ledger(cases: Cases, scenario: str) -> None:
    for case in cases:
        reported = len(re.findall(r"pay-\d=pay done", case["output"]))
        made = sum(line.startswith("pay ") for line in case["ledger"])

        assert reported <= made <= (2 if scenario in ("go", "session", "summarize") else 1), case


@in_scenarios("go")
def test_a_payment_is_unknown_only_if_the_process_died_between_its_intent_and_its_result(
    cases: Cases,
) -> None:
    for case in cases:
        if not case["died"] and not case["cut"].endswith("cut"):
            assert "unknown" not in case["output"], case


@in_scenarios("delegate")
def test_a_delegated_payment_happens_exactly_once(cases: Cases) -> None:
    for case in cases:
        assert len(case["ledger"]) <= 1, case


@in_scenarios("remember")
def test_what_a_user_has_said_is_remembered_once(cases: Cases) -> None:
    for case in cases:
        assert case["facts"] == [["The user lives in Lisbon.", 1]], case


@in_scenarios("summarize")
def test_a_summary_is_made_once(cases: Cases) -> None:
    """The model is called again only where a process died between its answer and the log."""
    between = re.compile("sum_up:.*:after|append:.*:before")
    for case in cases:
        lost = sum(bool(between.fullmatch(point)) for point in case["died"])

        assert case["summaries"] == 1, case
        assert 1 <= case["ledger"].count("sum_up") <= 1 + lost, case


@in_scenarios("session")
def test_the_second_turn_begins_when_the_first_has_ended(cases: Cases) -> None:
    for case in cases:
        assert case["turns"] == ["started 1", "completed 1", "started 2", "completed 2"], case


@each_scenario
def test_every_log_verifies_and_every_request_renders_as_recorded(
    cases: Cases, scenario: str
) -> None:
    assert [case for case in cases if case["faults"]] == []
    assert {case["runs"] for case in cases} == {
        {"delegate": 2, "session": 3, "summarize": 3}.get(scenario, 1)
    }
