"""`lib store runs` tells what runs have spent, and when it does not know."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fakes.team import boss_of, task, team
from lib.cli import main
from lib.cli.runs import EVENTS_PER_PAGE, RUNS_PER_PAGE, cost_text, runs_with_spend
from lib.events import EventStore, MemoryEventStore, RunInfo, RunQuery, SQLiteEventStore
from lib.events import kinds as k
from lib.observe import ModelSpend, TotalSpend
from lib.testing.aio import run
from lib.testing.logs import make_log, store_log

Entry = tuple[float, str, dict[str, Any]]
START: Entry = (0, k.RUN_STARTED, {"algorithm": "react", "input": []})


def call_of(number: int, model: str, *, cost: float | None = None, **more: Any) -> list[Entry]:
    key = f"llm/{number}"
    usage = {"input_tokens": 1000, "output_tokens": 100} | ({} if cost is None else {"cost": cost})
    reply: dict[str, Any] = {"parts": [], "model": model, "usage": usage}
    return [
        (1, k.LLM_REQUESTED, {"key": key, "upto": 1, "digest": "d", **more}),
        (2.5, k.LLM_COMPLETED, {"key": key, "reply": reply}),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three runs: two of acme, whose costs are known and known in part; one of unknown cost."""
    logs = [
        make_log(START, *call_of(1, "gpt-4o", cost=0.1), run_id="known"),
        make_log(
            START,
            *call_of(1, "gpt-4o", cost=0.129),
            *call_of(2, "gpt-4o"),
            *call_of(3, "m\x1b[31m", provider="openai"),
            run_id="in-part",
        ),
        make_log(START, *call_of(1, "gpt-4o", provider="openai"), run_id="unknown", tenant=None),
    ]

    async def fill() -> None:
        store = SQLiteEventStore(tmp_path / "runs.db")
        await store.setup()
        for log in logs:
            await store_log(store, log)
        await store.close()

    run(fill())
    return tmp_path / "runs.db"


def run_spend(*arguments: object, **options: Any) -> Result:
    words = ["store", "runs", *map(str, arguments)]
    return CliRunner().invoke(main, words, catch_exceptions=False, **options)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def cells(result: Result, *names: str) -> list[list[Any]]:
    return [[line.get(name) for name in names] for line in lines(result)]


def test_people_see_what_is_known_what_is_at_least_and_what_is_not_known(path: Path) -> None:
    shown = run_spend(path).stdout.splitlines()

    assert shown[0].split() == [
        *("run", "status", "algorithm", "tenant", "created", "seconds", "events", "unknown"),
        *("tokens", "in", "out", "cost"),
    ]
    assert [line.split()[0] for line in shown[1:]] == ["unknown", "in-part", "known"]
    assert [line.split("2.5")[1].split()[2:] for line in shown[1:]] == [
        ["1,000", "100", "—"],
        ["3,000", "300", "≥", "$0.12"],
        ["1,000", "100", "$0.10"],
    ]


def test_a_terminal_without_these_signs_gets_others(path: Path) -> None:
    result = CliRunner(charset="ascii").invoke(main, ["store", "runs", str(path)])

    assert result.exit_code == 0
    assert [line.split()[-2:] for line in result.stdout.splitlines()[1:3]] == [
        ["100", "-"],
        [">=", "$0.12"],
    ]


def test_programs_get_the_cost_only_if_it_is_all_of_it(path: Path) -> None:
    names = ("run", "calls", "input_tokens", "output_tokens", "known_cost", "unpriced", "cost")

    assert cells(run_spend(path, "--json"), *names) == [
        ["unknown", 1, 1000, 100, 0.0, 1, None],
        ["in-part", 3, 3000, 300, 0.129, 2, None],
        ["known", 1, 1000, 100, 0.1, 0, 0.1],
    ]


def test_list_prices_fill_in_what_is_known_for_certain(path: Path) -> None:
    names = ("run", "known_cost", "unpriced")

    assert cells(run_spend(path, "--prices", "--json"), *names) == [
        ["unknown", 0.0035, 0],
        ["in-part", 0.129, 2],
        ["known", 0.1, 0],
    ]
    assert cells(run_spend(path, "--prices", "--provider", "openai", "--json"), *names) == [
        ["unknown", 0.0035, 0],
        ["in-part", 0.1325, 1],
        ["known", 0.1, 0],
    ]


def test_totals_by_tenant_count_every_run_and_its_calls(path: Path) -> None:
    names = ("tenant", "runs", "llm_calls", "tool_calls", "guard_calls", "input_tokens")

    result = run_spend(path, "--by", "tenant", "--json")

    assert cells(result, *names) == [["acme", 2, 4, 0, 0, 4000], [None, 1, 1, 0, 0, 1000]]
    assert cells(result, "known_cost", "unpriced") == [[0.229, 2], [0.0, 1]]


def test_totals_by_model_are_the_dearest_first(path: Path) -> None:
    result = run_spend(path, "--by", "model", "--json")

    assert cells(result, "model", "runs", "calls", "known_cost", "unpriced") == [
        ["gpt-4o", 3, 4, 0.229, 2],
        ["m\x1b[31m", 1, 1, 0.0, 1],
    ]
    shown = run_spend(path, "--by", "model").stdout
    assert "m [31m" in shown
    assert "\x1b" not in shown + result.stdout


def test_totals_are_of_the_selected_runs(path: Path) -> None:
    assert cells(run_spend(path, "--by", "model", "--limit", 1, "--json"), "runs") == [[1]]
    assert cells(run_spend(path, "--by", "tenant", "--tenant", "acme", "--json"), "runs") == [[2]]
    assert run_spend(path, "--by", "tenant", "--tenant", "another").stdout == ""


def test_a_person_at_a_terminal_sees_that_it_reads(path: Path) -> None:
    result = run_spend(path, "--by", "tenant", env={"FORCE_COLOR": "1", "TERM": "xterm"})

    assert result.exit_code == 0
    assert "reading" in result.stderr
    assert "reading" not in run_spend(path, "--by", "tenant").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--provider", "openai"], "give --prices, too"),
        (["--prices", "--provider", "opnai"], "no prices of provider 'opnai'"),
        (["--by", "user"], "'user' is not one of 'tenant', 'model'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(path: Path, arguments: list[str], message: str) -> None:
    result = run_spend(path, *arguments)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", "").split())


def test_prices_without_their_package_are_one_line_and_no_traceback(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "genai_prices.data", None)

    result = run_spend(path, "--prices")

    assert result.exit_code == 1
    assert "pip install 'genai-prices" in result.stderr


def test_reading_costs_writes_nothing(path: Path) -> None:
    before = path.read_bytes()

    run_spend(path, "--by", "model")

    assert path.read_bytes() == before


# -- how a cost is written -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "unpriced", "text"),
    [
        ("0", 0, "$0.00"),
        ("0.1", 0, "$0.10"),
        ("0.126", 0, "$0.13"),
        ("0.126", 1, "≥ $0.12"),
        ("1234.5", 0, "$1234.50"),
        ("0.000043", 0, "$0.000043"),
        ("0.00004399", 1, "≥ $0.000043"),
        ("0.001995", 0, "$0.0020"),
        ("0", 1, "≥ $0.00"),
        ("0", 3, "—"),
    ],
)
def test_a_small_cost_is_never_shown_as_nothing(cost: str, unpriced: int, text: str) -> None:
    assert cost_text(ModelSpend(calls=3, known_cost=Decimal(cost), unpriced=unpriced)) == text


def test_a_run_that_called_no_model_has_cost_nothing() -> None:
    assert cost_text(ModelSpend()) == "$0.00"


# -- large stores ----------------------------------------------------------------------------------


class Counting(MemoryEventStore):
    """Records the sizes of the pages that are read, and can lose runs meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[tuple[str, int | None, int]] = []

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Any]:
        found = await super().read(run_id, after=after, limit=limit)
        self.pages.append((run_id, limit, len(found)))
        return found


@asynccontextmanager
async def store_with(runs: int, calls: int = 0) -> AsyncGenerator[Counting]:
    store = Counting()
    await store.setup()
    entries = [entry for number in range(calls) for entry in call_of(number, "m", cost=0.5)]
    for number in range(runs):
        await store_log(store, make_log(START, *entries, run_id=f"run-{number}"))
    yield store


async def collect(store: EventStore, query: RunQuery) -> list[tuple[RunInfo, TotalSpend]]:
    return [found async for found in runs_with_spend(store, query)]


@pytest.mark.parametrize("calls", [EVENTS_PER_PAGE, EVENTS_PER_PAGE // 2, 3])
def test_a_long_log_is_read_in_pages_and_counted_once(calls: int) -> None:
    async def main() -> None:
        async with store_with(1, calls) as store:
            ((_, spend),) = await collect(store, RunQuery())

            assert spend.total.known_cost == Decimal("0.5") * calls
            assert {limit for _, limit, _ in store.pages} == {EVENTS_PER_PAGE}
            assert sum(size for _, _, size in store.pages) == 2 * calls + 1

    run(main())


@pytest.mark.parametrize("runs", [0, 1, RUNS_PER_PAGE, RUNS_PER_PAGE + 1])
@pytest.mark.parametrize("limit", [None, 1, RUNS_PER_PAGE, RUNS_PER_PAGE + 1])
def test_every_run_is_read_once_and_none_beyond_the_limit(runs: int, limit: int | None) -> None:
    async def main() -> None:
        async with store_with(runs) as store:
            found = await collect(store, RunQuery(limit=limit))

            wanted = [f"run-{number}" for number in range(runs)][:limit]
            assert [info.run_id for info, _ in found] == wanted
            assert [run_id for run_id, *_ in store.pages] == wanted

    run(main())


def test_runs_that_are_erased_meanwhile_do_not_end_the_list() -> None:
    async def main() -> None:
        async with store_with(RUNS_PER_PAGE + 2) as store:
            seen: list[str] = []
            async for info, _ in runs_with_spend(store, RunQuery()):
                seen.append(info.run_id)
                if len(seen) == 1:
                    for number in range(RUNS_PER_PAGE - 2, RUNS_PER_PAGE + 1):
                        await store.erase(f"run-{number}")

            assert seen[-2:] == [f"run-{RUNS_PER_PAGE - 3}", f"run-{RUNS_PER_PAGE + 1}"]
            assert len(seen) == len(set(seen)) == RUNS_PER_PAGE - 1

    run(main())


def test_when_a_whole_page_is_erased_no_other_run_is_left_out() -> None:
    async def main() -> None:
        async with store_with(RUNS_PER_PAGE + 1) as store:
            found = runs_with_spend(store, RunQuery())
            await anext(found)
            for number in range(RUNS_PER_PAGE):
                await store.erase(f"run-{number}")

            assert [info.run_id async for info, _ in found] == [f"run-{RUNS_PER_PAGE}"]

    run(main())


def test_a_child_counts_once_in_the_totals(tmp_path: Path) -> None:
    async def play() -> None:
        agents = team(boss_of(task(0, "a"), task(1, "b")), store=SQLiteEventStore(path))
        async with agents as engine:
            await (await engine.start("go", tenant="acme")).result()

    path = tmp_path / "runs.db"
    run(play())

    result = run_spend(path, "--by", "tenant", "--json")
    names = ("tenant", "runs", "llm_calls", "tool_calls", "input_tokens", "known_cost")
    assert cells(result, *names) == [["acme", 3, 4, 2, 40, 1.0]]
