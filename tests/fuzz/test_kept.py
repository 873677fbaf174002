"""Tests inputs that guided fuzzing found: they reach each part of the code."""

import base64
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import extraction
import path_walk
import urls

KEPT = Path(__file__).parents[1] / "data" / "fuzz"


def kept(target: str) -> list[bytes]:
    found = json.loads((KEPT / f"{target}.json").read_text(encoding="utf-8"))
    assert len(found) > 50
    return [base64.b64decode(one) for one in found]


def test_urls_that_were_worth_keeping_are_read_in_one_way() -> None:
    for data in kept("urls"):
        urls.one(data)


def test_documents_that_were_worth_keeping_become_clean_text() -> None:
    for data in kept("extraction"):
        extraction.one(data)


def test_paths_that_were_worth_keeping_lead_nowhere_else(tmp_path: Path) -> None:
    worlds = path_walk.planted(tmp_path)
    for data in kept("path_walk"):
        path_walk.one(data, worlds)
