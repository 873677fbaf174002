"""Tests the guard of injections on sets of attacks and of ordinary texts."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lib._util.json import canonical
from lib.guards import InjectionGuard

from .guard_kit import guard_content

DATA = Path(__file__).parents[2] / "data" / "guards"
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "guard-what-agents-say.md"


def texts(name: str) -> list[str]:
    if (listed := DATA / f"{name}.jsonl").exists():
        return [row["text"] for row in map(json.loads, listed.read_text("utf-8").splitlines())]
    return (DATA / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n%%\n")


async def blocked(name: str, written: Callable[[str], str] = str) -> list[bool]:
    guard = InjectionGuard()
    return [not (await guard.check(guard_content(written(text)))).allowed for text in texts(name)]


SETS = {
    "attacks_by_another": "| attacks by another author | {} of {} |",
    "benign_by_another": "| near misses by another author | {} of {} |",
    "general_attacks_tuned": "| attacks of 17 classes, first half | {} of {} |",
    "general_attacks_kept_back": "| attacks of 17 classes, second half | {} of {} |",
    "attacks": "| older attacks, first set | {} of {} |",
    "attacks_held_out": "| older attacks, second set | {} of {} |",
    "attacks_fresh": "| older attacks, third set | {} of {} |",
    "general_benign_tuned": "| ordinary texts and near misses, first half | {} of {} |",
    "general_benign_kept_back": "| ordinary texts and near misses, second half | {} of {} |",
    "benign": "| older ordinary texts, first set | {} of {} |",
    "benign_held_out": "| older ordinary texts, second set | {} of {} |",
    "benign_fresh": "| older ordinary texts, third set | {} of {} |",
}


@pytest.mark.parametrize(("name", "row"), SETS.items())
async def test_how_often_it_is_right_is_what_the_documentation_says(name: str, row: str) -> None:
    assert row.format(sum(await blocked(name)), len(texts(name))) in PAGE.read_text(
        encoding="utf-8"
    )


async def test_false_alarms_are_rare_even_among_near_misses() -> None:
    alarms = {name: sum(await blocked(name)) for name in SETS if "benign" in name}

    assert alarms.pop("benign_by_another") <= 2
    assert sum(alarms.values()) <= 4


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
async def test_a_text_has_the_same_verdict_inside_json(name: str, form: str) -> None:
    pairs = zip(await blocked(name, AS_JSON[form]), await blocked(name), strict=True)
    differ = sum(inside != alone for inside, alone in pairs)

    # Between other text, the quotation marks of JSON and of an attack in pieces are one heap.
    assert differ <= (2 if form == "in the middle" else 0)
