"""The accuracy of `InjectionGuard` on the texts of the repository, or on a file of yours.

    make bench ARGS="injection"
    make bench ARGS="injection texts.csv"

A file is CSV or JSON lines; a text is in `text` or `prompt`, and its `label` is 1 of an attack,
else 0. Without a file: the texts in tests/data/guards, and of attacks the classes that they have.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lib.guards import GuardContent, InjectionGuard
from lib.testing.aio import run

DATA = Path(__file__).parents[1] / "tests" / "data" / "guards"
OWN = (
    *("attacks", "attacks_held_out", "attacks_fresh", "attacks_by_another"),
    *("benign", "benign_held_out", "benign_fresh", "benign_by_another"),
)
GENERAL = ("attacks_tuned", "attacks_kept_back", "benign_tuned", "benign_kept_back")


def own() -> Iterator[tuple[str, str, str]]:
    """Yield the set, the class and the text."""
    for name in OWN:
        for text in (DATA / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n%%\n"):
            yield name, "", text
    for name in GENERAL:
        for line in (DATA / f"general_{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield f"general_{name}", row["kind"], row["text"]


def foreign(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the texts of a file as own ones."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file) if path.suffix == ".csv" else map(json.loads, file)
        for row in rows:
            attack = str(row["label"]) == "1"
            yield "attacks" if attack else "ordinary texts", "", row.get("text") or row["prompt"]


def main() -> None:
    """Print what is blocked of each set and class, and the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    file = parser.parse_args().file
    guard = InjectionGuard()
    blocked: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    chars = 0
    began = time.process_time()
    for name, kind, text in foreign(file) if file else own():
        verdict = run(guard.check(GuardContent(stage="tool_result", text=text, run_id="r")))
        chars += len(text)
        for key in {(name, ""), (name, kind)}:
            total[key] += 1
            blocked[key] += not verdict.allowed
    seconds = time.process_time() - began
    for (name, kind), count in total.items():
        print(f"{name:28} {kind:14} {blocked[name, kind]:5} of {count}")
    print(f"{1000 * seconds / (chars / 1000):.1f} ms for 1,000 characters of short texts")


if __name__ == "__main__":
    main()
