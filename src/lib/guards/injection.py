"""A guard against texts that command the model: heuristics, and what they cost is stated.

It knows what published attacks have in common and adds up what it sees. An attack that is worded
afresh passes; a text about attacks may be blocked. It is one layer: what keeps an agent safe is
what its tools may do, and who must approve that. How often it is right on texts of our own is in
the documentation.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from lib.guards.guard import GuardContent, Stage, Verdict
from lib.guards.reading import readings
from lib.guards.signals import SIGNALS, is_mentioned
from lib.privacy.detect.plain import reads

ENCODED: Final = "encoded"
HIDDEN: Final = "hidden characters"
_EXTRA: Final[Mapping[str, float]] = MappingProxyType({ENCODED: 0.5, HIDDEN: 0.5})

_LARGE_CHARS: Final = 20_000
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,20000}={0,2}")
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){16,10000}(?![0-9A-Za-z])")
# Flags of England, Scotland and Wales are written with tags, too.
_TAGS: Final = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0020-\U000e007e]+")
# One invisible character may be a mark of direction or part of an emoji; between two Latin letters
# it is there to split a word.
_SPLIT: Final = re.compile("(?<=[A-Za-z])[\u00ad\u200b-\u200d\u2060-\u2064\ufeff]+(?=[A-Za-z])")
_MIN_SPLITS: Final = 3
_CONFUSABLE: Final = str.maketrans(
    # Source: Unicode Technical Standard #39, confusables: the Cyrillic and Greek letters that look
    # like Latin ones.
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u03bf\u03b1\u0391"
    "\u0412\u0395\u041d\u041a\u041c\u041e\u0420\u0421\u0422\u0425\u0410\u0406\u0415",
    "aeopcyxijsdhoaABEHKMOPCTXAIE",
)


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
        known = {signal.name for signal in SIGNALS} | set(_EXTRA)
        self._ignored = frozenset(ignore)
        if unknown := self._ignored - known:
            told = ", ".join(sorted(known))
            raise ValueError(f"no signal is called {', '.join(sorted(unknown))}: they are {told}")
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
            for name, weight in _signals(reading).items():
                found[name] = max(weight, found.get(name, 0.0))
        return {name: weight for name, weight in found.items() if name not in self._ignored}


def _signals(text: str) -> dict[str, float]:
    found = _seen(reads(text).translate(_CONFUSABLE))
    for hidden in _decoded(text):
        inside = _seen(reads(hidden).translate(_CONFUSABLE))
        if inside:
            found[ENCODED] = _EXTRA[ENCODED]
        for name, weight in inside.items():
            found[name] = max(weight, found.get(name, 0.0))
    if _is_hiding(text):
        found[HIDDEN] = _EXTRA[HIDDEN]
    return found


def _seen(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for signal in SIGNALS:
        weight = 0.0
        for place in signal.pattern.finditer(text):
            mention = signal.mentioned and is_mentioned(text, place.start())
            weight = max(weight, signal.mentioned if mention else signal.weight)
            if weight == signal.weight:
                break
        if weight:
            found[signal.name] = weight
    return found


def _decoded(text: str) -> Iterator[str]:
    """Yield what stands in the text in another form, as far as it is text."""
    for candidate in _BASE64.finditer(text):
        packed = candidate[0].rstrip("=").replace("-", "+").replace("_", "/")
        packed = packed[: len(packed) - (len(packed) % 4 == 1)]
        yield from _readable(base64.b64decode(packed + "=" * (-len(packed) % 4)))
    for candidate in _HEX.finditer(text):
        yield from _readable(binascii.unhexlify(candidate[0]))
    for candidate in _TAGS.finditer(text):
        yield "".join(chr(ord(char) - 0xE0000) for char in candidate[0])


def _readable(raw: bytes) -> Iterator[str]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return
    if all(char.isprintable() or char in "\n\r\t" for char in text):
        yield text


def _is_hiding(text: str) -> bool:
    if text.isascii():
        return False
    return len(_TAGS.findall(text)) > 0 or len(_SPLIT.findall(text)) >= _MIN_SPLITS
