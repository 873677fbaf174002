"""Spans from the life of a run: start, takeovers, turns, the end. Pure."""

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
recognized by the events that only they write."""

KIND_BY_EVENT: Final[Mapping[str, SpanKind]] = {
    k.TURN_REQUESTED: "session",
    k.SWARM_HANDOFF: "workflow",
    k.REFLEXION_FEEDBACK: "workflow",
    k.DEBATE_TURN: "workflow",
}
"""The kind of a run that an event in it reveals."""


def run_started(run: RunSpans, event: Event) -> None:
    """Set the attributes and the input of the run's own span from its start."""
    data = event.data
    if system := mapping(data.get("config")).get("system"):
        run.conversation.add({"role": "system", "content": system})
    for message in items(data.get("input")):
        run.conversation.add(message)
    if kind := _KINDS.get(text(data.get("algorithm")) or ""):
        run.become(kind)
    shown, omitted = run.content.newest(run.conversation)
    parent = mapping(data.get("parent"))
    attributes = {
        a.PARENT_RUN: parent.get("run_id"),
        a.OMITTED: omitted or None,
        a.AGENT_VERSION: identifier(mapping(data.get("config")).get("version")),
    }
    run.describe(attributes, shown)


def run_resumed(run: RunSpans, event: Event, key: str) -> None:
    """Note a takeover."""
    data = event.data
    if run.last_own_event_at is not None:
        run.moment(event, f"{key}/lost", LOST, {}, at=run.last_own_event_at)
    attributes = {a.WORKER: name(data.get("worker")), a.EPOCH: number(data.get("epoch"))}
    run.moment(event, key, RESUMED, attributes)
    run.resumed()


def cancel_requested(run: RunSpans, event: Event, key: str) -> None:
    """Note a request to cancel the run, or one turn of a session."""
    data = event.data
    reason, turn = run.content.show(text(data.get("reason"))), data.get("key")
    run.moment(event, key, "cancel.requested", {a.REASON: reason, a.KEY: word(turn)})
    if isinstance(turn, str) and turn not in run.begun:
        run.finish(event.at, "turn", turn, {a.RUN_OUTCOME: "CANCELLED"})


def run_completed(run: RunSpans, event: Event, _key: str) -> None:
    """Finish the run's own span and its open waits."""
    data = event.data
    outcome = word(data.get("outcome")) or UNKNOWN
    status: Status = OUTCOME_STATUS.get(outcome, "error")
    _end_waiting(run, event, called_off=outcome == "CANCELLED")
    attributes = {
        a.RUN_OUTCOME: outcome,
        # The reason of a cancelled run is free text, and so content.
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
    """Finish the open spans of a run that ends: waits, and turns without an answer.

    Calls have their results by then, unless the log breaks the rules of logs.
    """
    for family, key in run.still_open():
        if called_off or family in ("approval", "client"):
            run.finish(event.at, family, key, {})
        else:
            kind = _UNANSWERED if family == "turn" else UNKNOWN
            run.finish(event.at, family, key, {a.ERROR_TYPE: kind}, status="error")


def error_type(data: Mapping[str, Any], outcome: str) -> str:
    """Return the error type of a run that did not complete."""
    if outcome != "FAILED":
        return outcome.lower()
    return word(mapping(data.get("error")).get("type")) or word(data.get("reason")) or "failed"


def turn_requested(run: RunSpans, event: Event, key: str) -> None:
    """Begin a turn of a session; the run that answers it hangs under it."""
    shown = run.content.show(event.data.get("input"))
    run.set_first_input(shown)
    attributes = {a.KEY: word(key)}
    run.begin(event, "turn", key, name="turn", kind="internal", attributes=attributes, shown=shown)


def turn_started(run: RunSpans, _event: Event, key: str) -> None:
    """Note that the turn has a run of its own, whose end ends it."""
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
        run.set_last_output(shown)
    run.finish(event.at, "turn", key, attributes, status=status, message=message, shown=shown)
