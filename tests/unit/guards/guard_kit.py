"""Shared by tests of guards: an agent's answer, as guards are shown it."""

from lib.guards import GuardContent


def guard_content(text: str) -> GuardContent:
    return GuardContent(stage="output", text=text, run_id="r")
