"""A guard against texts that command the model: a small heuristic, and what it costs is stated.

A dozen patterns know the orders that attacks have most often in common. Most attacks that avoid
them pass, and few ordinary texts are blocked. It is no wall: what keeps an agent safe is what its
tools may do, who must approve that, and a fence around strangers' text. How often it is right is in
the documentation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from lib.guards.guard import GuardContent, Stage, Verdict
from lib.guards.readings import fold, hidden, is_hiding, plainly, readings
from lib.guards.signals import NAMES, seen

ENCODED: Final = "encoded"
HIDDEN: Final = "hidden characters"
_EXTRA: Final[Mapping[str, float]] = MappingProxyType({ENCODED: 0.5, HIDDEN: 0.5})

_LARGE_CHARS: Final = 4_000  # takes some 8 ms: longer ones leave the event loop


class InjectionGuard:
    """Blocks texts whose signals add up to a threshold; see `lib.guards.signals`.

    The text is read as a model may read it: without invisible characters, in NFKC, look-alike
    letters as Latin ones, JSON as the texts that it holds, and once more with what stands in it as
    base64, as hex, or in tag characters.
    """

    def __init__(
        self,
        *,
        stages: Iterable[Stage] = ("input", "tool_result"),
        threshold: float = 1.0,
        ignore: Iterable[str] = (),
        name: str = "injection",
    ) -> None:
        """Choose how careful to be.

        Args:
            stages: where to look. Without "input", users may say what they like.
            threshold: the sum at which a text is blocked; a lower one blocks more, rightly and not.
            ignore: names of signals that do not count.
            name: what it is called in logs.

        Raises:
            ValueError: there is no such signal.
        """
        signals = NAMES | set(_EXTRA)
        self._ignored = frozenset(ignore)
        if unknown := self._ignored - signals:
            names = ", ".join(sorted(signals))
            raise ValueError(f"no signal is called {', '.join(sorted(unknown))}: they are {names}")
        self.name = name
        self.stages: frozenset[Stage] = frozenset(stages)
        self._threshold = threshold

    async def check(self, content: GuardContent) -> Verdict:
        """Return whether the signals stay below the threshold."""
        if len(content.text) > _LARGE_CHARS:
            found = await asyncio.to_thread(self.signals, content.text)
        else:
            found = self.signals(content.text)
        if sum(found.values()) < self._threshold - 1e-9:
            return Verdict(allowed=True)
        return Verdict(allowed=False, reason=f"signals of injection: {', '.join(sorted(found))}")

    def signals(self, text: str) -> dict[str, float]:
        """Return what was seen in a text, and what each adds."""
        found: dict[str, float] = {}
        for reading in readings(text):
            _widen(found, _signals(reading))
        return {name: weight for name, weight in found.items() if name not in self._ignored}


def _signals(text: str) -> dict[str, float]:
    found = _plainly(text)
    for other in hidden(text):
        inside = _plainly(other)
        if inside.keys() - found.keys():
            found[ENCODED] = _EXTRA[ENCODED]
        _widen(found, inside)
    if is_hiding(text):
        found[HIDDEN] = _EXTRA[HIDDEN]
    return found


def _plainly(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for reading in plainly(fold(text)):
        _widen(found, seen(reading))
    return found


def _widen(found: dict[str, float], more: Mapping[str, float]) -> None:
    for name, weight in more.items():
        found[name] = max(weight, found.get(name, 0.0))
