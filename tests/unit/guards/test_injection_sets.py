"""How often the guard of injections is right about sets of attacks and of ordinary texts."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lib._util.json import canonical
from lib.guards import InjectionGuard
from lib.testing.aio import run

from .guard_kit import said

DATA = Path(__file__).parents[2] / "data" / "guards"
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "guard-what-agents-say.md"


def texts(name: str) -> list[str]:
    if (listed := DATA / f"{name}.jsonl").exists():
        return [row["text"] for row in map(json.loads, listed.read_text("utf-8").splitlines())]
    return (DATA / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n%%\n")


def blocked(name: str, written: Callable[[str], str] = str) -> list[bool]:
    guard = InjectionGuard()
    return [not run(guard.check(said(written(text)))).allowed for text in texts(name)]


SETS = {
    "general_attacks_tuned": "| attacks that the rules were tuned with | {} of {} blocked |",
    "general_benign_tuned": "| ordinary texts that they were tuned with | {} of {} blocked |",
    "general_attacks_kept_back": "| attacks kept back from tuning | {} of {} blocked |",
    "general_benign_kept_back": "| ordinary texts kept back from tuning | {} of {} blocked |",
    "attacks": "| older attacks that they were tuned with | {} of {} blocked |",
    "attacks_held_out": "| older attacks that first rules were widened for | {} of {} blocked |",
    "attacks_fresh": "| older attacks in words of their own, not tuned with | {} of {} blocked |",
    "benign": "| older ordinary texts, first set | {} of {} blocked |",
    "benign_held_out": "| older ordinary texts, second set | {} of {} blocked |",
    "benign_fresh": "| older ordinary texts, third set | {} of {} blocked |",
    "attacks_by_another": "| attacks by another author, not tuned with | {} of {} blocked |",
    "benign_by_another": "| near misses by another author, not tuned with | {} of {} blocked |",
}


@pytest.mark.parametrize(("name", "row"), SETS.items())
def test_how_often_it_is_right_is_what_the_documentation_says(name: str, row: str) -> None:
    assert row.format(sum(blocked(name)), len(texts(name))) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("general_attacks_tuned", 0.90, 1.0),
        ("general_attacks_kept_back", 0.80, 1.0),
        ("attacks_fresh", 0.35, 1.0),
        ("general_benign_tuned", 0.0, 0.02),
        ("general_benign_kept_back", 0.0, 0.05),
    ],
)
def test_the_rules_generalise_to_texts_that_they_were_not_written_for(
    name: str, least: float, most: float
) -> None:
    found = blocked(name)

    assert least <= sum(found) / len(found) <= most


def test_the_halves_are_what_the_hash_of_a_text_says() -> None:
    for kind in ("attacks", "benign"):
        for half, name in enumerate(("tuned", "kept_back")):
            for text in texts(f"general_{kind}_{name}"):
                assert hashlib.sha256(text.encode()).digest()[0] & 1 == half


AS_JSON: dict[str, Callable[[str], str]] = {
    "canonical": lambda text: canonical({"page": text, "status": 200}),
    "ascii": lambda text: json.dumps([{"prompt": text}]),
    "packed": lambda text: json.dumps({"body": json.dumps({"text": [text]})}),
    "a text": json.dumps,
    "in the middle": lambda text: "Here it is:\n" + json.dumps({"page": text}) + "\nThat was all.",
}


@pytest.mark.parametrize("form", AS_JSON)
@pytest.mark.parametrize("name", SETS)
def test_a_text_has_the_same_verdict_inside_json(name: str, form: str) -> None:
    pairs = zip(blocked(name, AS_JSON[form]), blocked(name), strict=True)
    differ = sum(inside != alone for inside, alone in pairs)

    # Between other text, the quotation marks of JSON and of an attack in pieces are one heap.
    assert differ <= (2 if form == "in the middle" else 0)
