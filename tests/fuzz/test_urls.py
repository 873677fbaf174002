import os
import sys
from pathlib import Path

import pytest

from lib.tools.builtin.fetch import url

sys.path.insert(0, str(Path(__file__).parent))

import urls

TEXTS = 300_000 if os.environ.get("LIB_TEST_LONG") else 6_000


def test_no_mutation_of_a_url_is_read_in_two_ways() -> None:
    outcomes = urls.main(seed=20_261_121, texts=TEXTS)

    assert sum(outcomes.values()) == TEXTS
    assert outcomes["read"] > TEXTS / 50
    assert outcomes["refused"] > TEXTS / 2


@pytest.mark.parametrize("careless", ["numbers", "blanks"])
def test_a_careless_grammar_is_found_out(monkeypatch: pytest.MonkeyPatch, careless: str) -> None:
    nothing = url.re.compile(r"(?!)")
    monkeypatch.setattr(url, {"numbers": "_NUMBER", "blanks": "_FORBIDDEN"}[careless], nothing)

    with pytest.raises((AssertionError, UnicodeError)):
        urls.main(seed=1, texts=20_000)
