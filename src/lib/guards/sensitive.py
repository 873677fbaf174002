"""A guard against secrets and personal data where they do not belong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from lib.guards.guard import GuardContent, Stage, Verdict
from lib.privacy.detect import DEFAULT, Detector, find

_LARGE_CHARS: Final = 20_000
"""Above it, the search goes to a thread, so that other runs go on meanwhile."""


class SensitiveDataGuard:
    """Blocks content in which a detector finds something; what it was, it says by its kind only.

    It knows what patterns know: see `lib.privacy.detect`. To keep such data out of logs instead of
    ending runs, give the engine a redactor.
    """

    def __init__(
        self,
        detectors: Sequence[Detector] = DEFAULT,
        *,
        kinds: Iterable[str] | None = None,
        stages: Iterable[Stage] = ("output",),
        name: str = "sensitive-data",
    ) -> None:
        """Choose what is not allowed where.

        Args:
            detectors: what finds it.
            kinds: of findings that block, such as "secret" and "card"; None for all.
            stages: where to look.
            name: what it is called in logs.

        Raises:
            ValueError: no detector finds one of the kinds.
        """
        found = frozenset(kind for detector in detectors for kind in detector.kinds)
        self._kinds = found if kinds is None else frozenset(kinds)
        if unknown := self._kinds - found:
            raise ValueError(
                f"no detector finds {', '.join(sorted(unknown))}: they find "
                f"{', '.join(sorted(found))}"
            )
        self.name = name
        self.stages: frozenset[Stage] = frozenset(stages)
        self._detectors = tuple(detectors)

    async def check(self, content: GuardContent) -> Verdict:
        """Return whether nothing of these kinds stands in the text."""
        if len(content.text) > _LARGE_CHARS:
            found = await asyncio.to_thread(find, content.text, self._detectors)
        else:
            found = find(content.text, self._detectors)
        kinds = sorted({each.kind for each in found} & self._kinds)
        reason = f"it contains {', '.join(kinds)}" if kinds else ""
        return Verdict(allowed=not kinds, reason=reason)
