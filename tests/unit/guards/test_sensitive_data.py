"""The guard of secrets and personal data."""

import pytest

from lib.guards import SensitiveDataGuard, Verdict

from .guard_kit import guard_content


async def test_what_was_found_is_said_by_its_kind_only() -> None:
    guard = SensitiveDataGuard()
    verdict = await guard.check(guard_content("jo@example.org pays with 4111 1111 1111 1111"))

    assert verdict == Verdict(allowed=False, reason="it contains card, email")
    assert (await guard.check(guard_content("nothing to see"))) == Verdict(allowed=True)
    assert guard.stages == {"output"}


async def test_only_the_chosen_kinds_block_and_large_texts_are_searched_in_a_thread() -> None:
    guard = SensitiveDataGuard(kinds=["card"], stages=["input"], name="cards")

    assert (await guard.check(guard_content("jo@example.org"))).allowed
    assert not (await guard.check(guard_content(" " * 30_000 + "4111 1111 1111 1111"))).allowed
    assert (guard.name, guard.stages) == ("cards", {"input"})


def test_a_kind_that_nothing_finds_is_refused() -> None:
    with pytest.raises(ValueError, match="no detector finds passport: they find card, email"):
        SensitiveDataGuard(kinds=["passport"])
