"""What the life of a run means for its spans: start, takeovers, turns, the end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lib.events import Event
from lib.events import kinds as k
from lib.observe import attributes as a
from lib.observe.span import LOST, RESUMED, SpanKind, Status
from lib.observe.spans.run import RunSpans
from lib.observe.spans.values import identifier, items, mapping, name, number, text, word

_UNANSWERED: Final = "unanswered"
UNKNOWN: Final = "unknown"
OUTCOME_STATUS: Final[Mapping[str, Status]] = {"COMPLETED": "ok", "CANCELLED": "ok"}
_KINDS: Final[Mapping[str, SpanKind]] = {
    "session": "session",
    "debate": "workflow",
    "reflexion": "workflow",
    "swarm": "workflow",
}
"""Algorithms of this library whose runs are not those of one agent. Under another name, they are
told by the events that only they write."""

BECOME: Final[Mapping[str, SpanKind]] = {
    k.TURN_REQUESTED: "session",
    k.SWARM_HANDOFF: "workflow",
    k.REFLEXION_FEEDBACK: "workflow",
    k.DEBATE_TURN: "workflow",
}
"""What a run turns out to be by an event in it."""


def run_started(run: RunSpans, event: Event) -> None:
    """Say of the run's own span what is known from the start."""
    data = event.data
    if system := mapping(data.get("config")).get("system"):
        run.conversation.add({"role": "system", "content": system})
    for message in items(data.get("input")):
        run.conversation.add(message)
    if kind := _KINDS.get(text(data.get("algorithm")) or ""):
        run.become(kind)
    shown, omitted = run.content.newest(run.conversation)
    parent = mapping(data.get("parent"))
    known = {
        a.PARENT_RUN: parent.get("run_id"),
        a.OMITTED: omitted or None,
        a.AGENT_VERSION: identifier(mapping(data.get("config")).get("version")),
    }
    run.know(known, shown)


def run_resumed(run: RunSpans, event: Event, key: str) -> None:
    """Note a takeover."""
    data = event.data
    if run.heard_at is not None:
        run.moment(event, f"{key}/lost", LOST, {}, at=run.heard_at)
    told = {a.WORKER: name(data.get("worker")), a.EPOCH: number(data.get("epoch"))}
    run.moment(event, key, RESUMED, told)
    run.resumed()


def cancel_requested(run: RunSpans, event: Event, key: str) -> None:
    """Note that somebody has asked to stop: the run, or one turn of a session."""
    data = event.data
    reason, turn = run.content.show(text(data.get("reason"))), data.get("key")
    run.moment(event, key, "cancel.requested", {a.REASON: reason, a.KEY: word(turn)})
    if isinstance(turn, str) and turn not in run.begun:
        run.finish(event.at, "turn", turn, {a.RUN_OUTCOME: "CANCELLED"})


def run_completed(run: RunSpans, event: Event, _key: str) -> None:
    """Finish the run's own span, and whatever waits for what will not come any more."""
    data = event.data
    outcome = word(data.get("outcome")) or UNKNOWN
    status: Status = OUTCOME_STATUS.get(outcome, "error")
    _end_waiting(run, event, called_off=outcome == "CANCELLED")
    attributes = {
        a.RUN_OUTCOME: outcome,
        # What a cancelled run has for a reason is what somebody has typed.
        a.REASON: run.content.show(text(data.get("reason")))
        if outcome == "CANCELLED"
        else word(data.get("reason")),
        a.ERROR_TYPE: None if status == "ok" else error_type(data, outcome),
    }
    message = text(mapping(data.get("error")).get("message"))
    run.end(
        event.at,
        attributes,
        status=status,
        message=run.content.show(message),
        shown=run.content.show(data.get("output")),
    )


def _end_waiting(run: RunSpans, event: Event, *, called_off: bool) -> None:
    """Finish what is open when a run ends.

    Nobody waits for a person any more, and a turn stays without an answer. Calls have had their
    results by then, unless the log breaks the rules of logs.
    """
    for family, key in run.still_open():
        if called_off or family == "approval":
            run.finish(event.at, family, key, {})
        else:
            kind = _UNANSWERED if family == "turn" else UNKNOWN
            run.finish(event.at, family, key, {a.ERROR_TYPE: kind}, status="error")


def error_type(data: Mapping[str, Any], outcome: str) -> str:
    """Return the word for why a run did not complete."""
    if outcome != "FAILED":
        return outcome.lower()
    return word(mapping(data.get("error")).get("type")) or word(data.get("reason")) or "failed"


def turn_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin a turn of a session; the run that answers it hangs under it."""
    shown = run.content.show(event.data.get("input"))
    run.heard(shown)
    attributes = {a.KEY: word(key)}
    run.begin(event, "turn", key, name="turn", kind="internal", attributes=attributes, shown=shown)


def turn_started(run: RunSpans, _event: Event, key: str) -> None:
    """Note that the turn has a run of its own by now, which tells of its end."""
    run.begun.add(key)


def turn_completed(run: RunSpans, event: Event, key: str) -> None:
    """Finish a turn as its run has ended."""
    data = event.data
    outcome = word(data.get("outcome")) or UNKNOWN
    status: Status = OUTCOME_STATUS.get(outcome, "error")
    attributes = {
        a.RUN_OUTCOME: outcome,
        a.ERROR_TYPE: None if status == "ok" else error_type(data, outcome),
    }
    message = run.content.show(text(mapping(data.get("error")).get("message")))
    shown = run.content.show(data.get("output"))
    if shown is not None:
        run.answered(shown)
    run.finish(event.at, "turn", key, attributes, status=status, message=message, shown=shown)
