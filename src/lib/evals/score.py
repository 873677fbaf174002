"""A score: one judgement of a run, or of one span of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, StrictBool

from lib.events import Event, NewEvent
from lib.events import kinds as k

ScoreSource = Literal["code", "llm", "human"]

_PASSING: Final = 0.5


class Score(BaseModel):
    """One judgement: a number, a verdict, or a label.

    Attributes:
        name: what was judged, such as "helpfulness"; not blank.
        value: a finite number, True or False, or a label.
        comment: why; content, which leaves the process only where content is captured.
        source: code, a model or a person.
        at: when, with a time zone; None for the moment at which it is recorded.
        meta: more facts, as JSON; content, too.
    """

    # Not deferred: the first model that is built reads files, to find the plugins of pydantic.
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"\S")]
    value: StrictBool | FiniteFloat | str
    comment: str | None = None
    source: ScoreSource = "code"
    at: AwareDatetime | None = None
    meta: Mapping[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def numeric(self) -> float | None:
        """The value as a number, 0 or 1 for a verdict; None for a label."""
        return None if isinstance(self.value, str) else float(self.value)

    @property
    def passed(self) -> bool | None:
        """True or False for a verdict, or for a number from 0.5 on; None for a label."""
        if isinstance(self.value, bool):
            return self.value
        return None if isinstance(self.value, str) else self.value >= _PASSING


def as_score(
    score: Score | str | None = None, value: float | str | None = None, **fields: Any
) -> Score:
    """Return the score that the arguments of a call describe.

    Args:
        score: a score without other arguments, or the name of one.
        value: see `Score`.
        fields: those of `Score`; None leaves one out.

    Raises:
        TypeError: a score and its fields are mixed, or no name or value is there.
        ValueError: it is no score, such as NaN or a blank name.
    """
    options = {name: each for name, each in {"value": value, **fields}.items() if each is not None}
    if isinstance(score, Score):
        if options:
            raise TypeError(f"expected a Score alone, got {', '.join(options)} beside it")
        return score
    if score is not None:
        if "name" in options:
            raise TypeError("expected one name of a score, got two")
        options["name"] = score
    if "name" not in options or "value" not in options:
        raise TypeError("a score has a name and a value: write score(name=…, value=…) or Score(…)")
    return Score.model_validate(options)


def score_event(
    score: Score, *, signal_id: str, now: datetime, span_id: str | None = None
) -> NewEvent:
    """Return the `lib.eval.score` event of a score, for `EventStore.append(..., expected=None)`.

    Args:
        score: the judgement.
        signal_id: of this judgement; repeating it changes nothing.
        now: its time, if it has none of its own.
        span_id: the span that was judged; None for the run as a whole.
    """
    fields = score.model_dump(mode="json", exclude={"at"}, exclude_defaults=True)
    data = {"signal_id": signal_id, **fields}
    if span_id is not None:
        data["span_id"] = span_id
    return NewEvent(kind=k.EVAL_SCORE, data=data, at=score.at or now)


def score_of(event: Event) -> Score | None:
    """Return the score in an event, with the event's time; None if it cannot be read."""
    fields = {name: event.data[name] for name in Score.model_fields if name in event.data}
    try:
        return Score.model_validate({**fields, "at": event.at})
    except ValueError:
        return None
