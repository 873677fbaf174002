"""The policies for long conversations, and their JSON in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

from lib.engine.arguments import as_list, type_label
from lib.llm import LLMClient

MIN_CLIPPED: Final = 64  # the words about what is left out have room in it
_MIN_SUMMARY: Final = 200
_SUMMARY_PART: Final = 8  # of what is sent: the summary is one part of so many at most


@dataclass(frozen=True, slots=True)
class ClipToolOutputs:
    """Clips what tools have returned to its beginning and its end; the text says what is left out.

    It is done where another limit is passed, and, without one, when it would halve what is sent. A
    result that the model has not replied to yet is never clipped, unless `keep_last` is 0.

    Attributes:
        max_chars: of each result, 64 or more.
        keep_last: how many of the newest results stay whole; 0 clips each one as it comes.

    Raises:
        ValueError: a limit is out of range.
    """

    max_chars: int = 2_000
    _: KW_ONLY
    keep_last: int = 3

    def __post_init__(self) -> None:
        """Refuse limits that are out of range."""
        _check("max_chars", self.max_chars, MIN_CLIPPED)
        _check("keep_last", self.keep_last, 0)

    def to_json(self) -> dict[str, Any]:
        """Return it as a run remembers it."""
        return {
            "kind": "clip_tool_outputs",
            "max_chars": self.max_chars,
            "keep_last": self.keep_last,
        }


@dataclass(frozen=True, slots=True)
class KeepLast:
    """Leaves the oldest messages out.

    Where a limit is passed, the newest half of it is kept. Instructions are always sent, and so are
    a call with its result, and the last message of the user before what is kept.

    Attributes:
        max_messages: how many are sent at most, instructions not counted; None for any number.
        at_tokens: how many tokens one request has at most; None for any number.

    Raises:
        ValueError: there is no limit, or one is out of range.
    """

    max_messages: int | None = None
    _: KW_ONLY
    at_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits that are out of range, and none at all."""
        if self.max_messages is None and self.at_tokens is None:
            raise ValueError("expected a limit: give KeepLast(max_messages) or at_tokens=")
        _check("max_messages", self.max_messages, 2)
        _check("at_tokens", self.at_tokens, 1)

    def to_json(self) -> dict[str, Any]:
        """Return it as a run remembers it."""
        limits = {"max_messages": self.max_messages, "at_tokens": self.at_tokens}
        return {
            "kind": "keep_last",
            **{name: limit for name, limit in limits.items() if limit is not None},
        }


@dataclass(frozen=True, slots=True)
class Summarize:
    """Has a model sum up the oldest messages, which are then left out.

    The summary is an event of the log (`lib.context.summary`), with a hash of what it covers: it is
    made once, and later turns, other workers and other runs of the same text go on with it. The
    next one covers it, too. Where a summary fails, or is of no use, the oldest messages are left
    out as by `KeepLast`; the next one covers them.

    Attributes:
        at_tokens: where one request would have more, a summary is made first. Choose less than
            the context window of the model, by what a reply may take.
        keep_tokens: how many tokens the request then has at most; half of `at_tokens` by default.
        max_tokens: if a summary fails, nothing is left out up to here, and the next one is tried
            there; `at_tokens` by default.
        model: what writes summaries: "provider:model" or a client, as for `Agent`; None for the
            agent's own. It is the agent that calls another model: `React` alone calls its own.

    Raises:
        ValueError: a limit is out of range.
    """

    at_tokens: int
    _: KW_ONLY
    keep_tokens: int | None = None
    max_tokens: int | None = None
    model: str | LLMClient | None = None

    def __post_init__(self) -> None:
        """Refuse limits that are out of range."""
        _check("at_tokens", self.at_tokens, 1)
        _check("keep_tokens", self.keep_tokens, 0)
        _check("max_tokens", self.max_tokens, self.at_tokens)
        if self.keep_tokens is not None and self.keep_tokens >= self.at_tokens:
            raise ValueError(
                f"expected keep_tokens below at_tokens={self.at_tokens}, got {self.keep_tokens}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return it as a run remembers it."""
        keep, most = self.keep_tokens, self.max_tokens
        out: dict[str, Any] = {
            "kind": "summarize",
            "at_tokens": self.at_tokens,
            "keep_tokens": self.at_tokens // 2 if keep is None else keep,
            "max_tokens": self.at_tokens if most is None else most,
        }
        if self.model is not None:
            out["model"] = self.model if isinstance(self.model, str) else self.model.model
        return out


Policy: TypeAlias = ClipToolOutputs | KeepLast | Summarize


def _check(name: str, value: int | None, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
        raise ValueError(f"expected a whole number as {name}, got {type_label(value)}")  # noqa: TRY004 - all bad input is one error
    if value < least:
        raise ValueError(f"expected {name} of at least {least}, got {value}")


def as_policies(values: Iterable[Policy]) -> tuple[Policy, ...]:
    """Return the policies as a tuple.

    Raises:
        TypeError: one is of another type, or they are not in a list.
        ValueError: two are of one type.
    """
    policies = tuple(as_list(values, "context", "[Summarize(at_tokens=50_000)]"))
    for each in policies:
        if not isinstance(each, ClipToolOutputs | KeepLast | Summarize):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
            raise TypeError(
                "expected ClipToolOutputs(…), KeepLast(…) or Summarize(…) in context, got "
                f"{type_label(each)}"
            )
    if len({type(each) for each in policies}) < len(policies):
        raise ValueError("expected one of each type in context, got two of one: leave one out")
    return policies


class Rules(NamedTuple):
    """The policies of a run, as its start has recorded them; None stands for no limit.

    Attributes:
        max_chars: of a result of a tool that is clipped.
        keep_whole: how many of the newest results are not.
        max_messages: above so many, the oldest are left out.
        drop_tokens: above so many, the oldest are left out.
        sum_tokens: above so many, the oldest are summed up.
        keep_tokens: how many are left then.
        most_tokens: up to so many, a summary may fail.
        own_model: True if summaries are written by a model of their own.
    """

    max_chars: int | None = None
    keep_whole: int = 0
    max_messages: int | None = None
    drop_tokens: int | None = None
    sum_tokens: int | None = None
    keep_tokens: int = 0
    most_tokens: int = 0
    own_model: bool = False

    @property
    def limit(self) -> int | None:
        """The tokens of a request at most."""
        limits = [each for each in (self.sum_tokens, self.drop_tokens) if each is not None]
        return min(limits, default=None)

    @property
    def summary_chars(self) -> int:
        """The characters that a summary may have."""
        return max(_MIN_SUMMARY, (self.sum_tokens or 0) * 4 // _SUMMARY_PART)


def rules_of(recorded: object) -> Rules | None:
    """Return the rules in a recorded config, None for none; what cannot be read is left out."""
    rules = Rules()
    for each in cast("Sequence[object]", recorded) if isinstance(recorded, list) else ():
        if isinstance(each, dict):
            rules = _with(rules, cast("Mapping[str, Any]", each))
    return None if rules == Rules() else rules


def _with(rules: Rules, policy: Mapping[str, Any]) -> Rules:
    def number(name: str, least: int) -> int | None:
        value = policy.get(name)
        return value if type(value) is int and value >= least else None

    match policy.get("kind"):
        case "clip_tool_outputs":
            keep = number("keep_last", 0)
            return rules._replace(max_chars=number("max_chars", MIN_CLIPPED), keep_whole=keep or 0)
        case "keep_last":
            return rules._replace(
                max_messages=number("max_messages", 2), drop_tokens=number("at_tokens", 1)
            )
        case "summarize":
            at = number("at_tokens", 1)
            return rules._replace(
                sum_tokens=at,
                keep_tokens=number("keep_tokens", 0) or 0,
                most_tokens=number("max_tokens", 1) or at or 0,
                own_model="model" in policy,
            )
        case _:
            return rules
