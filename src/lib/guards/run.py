"""Runs the guards of a stage: in their order, one after the other, until one blocks.

In order, so that the cheap ones can stand before those that ask a model, and content that one of
them blocks is shown to no other. A guard that fails blocks: no verdict has allowed the content.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from lib._util.clock import Clock
from lib.guards.guard import Guard, GuardContent, Stage, Verdict
from lib.llm.client import usage_to_json

_log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S: Final = 30.0
MAX_REASON_CHARS: Final = 200
_MAX_FRAMES: Final = 5

Word = Literal["allowed", "blocked", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check that was made.

    Attributes:
        guard: the name of the guard.
        word: what came of it; "failed" blocks, too.
        content_hash: SHA-256 of the content as it would be kept, in hex.
        start: when it began, None if that was not noted.
        end: when it ended.
    """

    guard: str
    stage: Stage
    word: Word
    verdict: Verdict
    content_hash: str
    start: datetime | None = None
    end: datetime | None = None

    def to_json(self, key: str) -> dict[str, Any]:
        """Return the payload of its `lib.guard.verdict`; it holds no content.

        Args:
            key: of the request whose content was checked.
        """
        data: dict[str, Any] = {
            "key": key,
            "guard": self.guard,
            "stage": self.stage,
            "verdict": self.word,
            "content_hash": self.content_hash,
        }
        verdict = self.verdict
        if verdict.reason:
            data["reason"] = verdict.reason[:MAX_REASON_CHARS]
        if verdict.usage is not None and (usage := usage_to_json(verdict.usage)):
            data["usage"] = usage
        for name in ("model", "provider"):
            if value := getattr(verdict, name):
                data[name] = value
        if self.start is not None and self.end is not None:
            data |= {"start": self.start.isoformat(), "end": self.end.isoformat()}
        return data


class Checks(NamedTuple):
    """The checks of a stage, in order."""

    made: tuple[Check, ...] = ()

    @property
    def blocked(self) -> str | None:
        """The blocking guard and its reason, in words for the log and the model, or None."""
        if not self.made or self.made[-1].word == "allowed":
            return None
        last = self.made[-1]
        decision = f"{last.word} by" if last.word == "blocked" else "not allowed by"
        reason = last.verdict.reason[:MAX_REASON_CHARS]
        return f"{decision} the guard {last.guard!r}{f': {reason}' if reason else ''}"


async def check_all(
    guards: Sequence[Guard],
    content: GuardContent,
    *,
    kept: Callable[[str], str] = str,
    clock: Clock | None = None,
) -> Checks:
    """Ask the guards of the content's stage; see above.

    Args:
        guards: all of them.
        content: what is to be checked.
        kept: returns a text as the log would keep it, of which the hash is taken: redacted.
        clock: tells when each check began and ended; None leaves that out.
    """
    selected = [guard for guard in guards if content.stage in guard.stages]
    if not selected:
        return Checks()
    content_hash = _sha256(kept(content.text))
    made: list[Check] = []
    for guard in selected:
        start = None if clock is None else clock.now()
        word, verdict = await _ask(guard, content)
        made.append(
            Check(
                guard=guard.name,
                stage=content.stage,
                word=word,
                verdict=verdict,
                content_hash=content_hash,
                start=start,
                end=None if clock is None else clock.now(),
            )
        )
        if word != "allowed":
            break
    return Checks(tuple(made))


async def _ask(guard: Guard, content: GuardContent) -> tuple[Word, Verdict]:
    timeout_s = getattr(guard, "timeout_s", DEFAULT_TIMEOUT_S)
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            verdict = await guard.check(content)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _failed(guard, content, "it was cancelled from within", error)
    # Around a user's own code: whatever it raises, the content is not allowed. The message may
    # quote the content, so only the type is logged.
    except Exception as error:  # noqa: BLE001 - see above
        late = deadline.expired() and isinstance(error, TimeoutError)
        why = f"no verdict within {timeout_s:g} s" if late else type(error).__name__
        return _failed(guard, content, why, error)
    if not isinstance(verdict, Verdict):  # pyright: ignore[reportUnnecessaryIsInstance] - not all are typed
        return _failed(guard, content, "it returned no verdict")
    return ("allowed" if verdict.allowed is True else "blocked"), verdict


def _failed(
    guard: Guard, content: GuardContent, why: str, error: BaseException | None = None
) -> tuple[Word, Verdict]:
    """Allow nothing; the log of the process gets places in the code, and no word of the error."""
    _log.error(
        "guard %r failed at %s of run %r: %s%s",
        guard.name,
        content.stage,
        content.run_id,
        why,
        "".join(f" < {place}" for place in _places(error)),
    )
    return "failed", Verdict(allowed=False, reason=why)


def _places(error: BaseException | None) -> list[str]:
    """Return where an error was raised, innermost first."""
    walked = traceback.walk_tb(None if error is None else error.__traceback__)
    places = [f"{frame.f_code.co_filename}:{line}" for frame, line in walked]
    return places[: -_MAX_FRAMES - 1 : -1]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
