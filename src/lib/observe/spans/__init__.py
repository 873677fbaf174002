"""From the log of a run to its spans. Pure: equal logs give equal spans, to the byte.

The rules:

1. A span begins with the event that asks for something and ends with the one that tells how it
   came out; while that is missing it is open. What is told by one event only, such as a verdict,
   has no length. A closed span never changes again.
2. When a run ends, everything in it does: whoever waited for a person waits no more, and a turn
   that has no answer gets none. After the end, a score adds a span; nothing else adds or changes
   anything.
3. The run's own span comes first, the others follow in the order in which they began: parents
   before children.
4. A child run has its spans in its own log, which says what started it, and with the parent's log
   at hand its root hangs exactly there: under the call of a tool or of an agent, which is one to
   the model that makes it, or under a turn, else under the parent run. The run
   of a turn carries the session's run id as its conversation, in every span.
5. A run is a session if it is given a turn before its end, or if its algorithm is called "session";
   else a workflow, if there is a handoff, a feedback or a turn of a debate in it, or if its
   algorithm is called "swarm", "reflexion" or "debate"; else an agent. So its kind and its name can
   change while it is open.
6. A score is a span under the one that it names, if this run had that one when the score came, else
   under the run's own. Its `signal_id` makes it: repeating it adds nothing, a second score is a
   second span.
7. "error" means that the thing asked for did not happen and that nobody had called it off. So
   FAILED, LIMITED and BLOCKED runs, and calls that failed, were blocked or have an unknown outcome,
   are errors, and so are turns without an answer. CANCELLED runs and calls that were cancelled or
   denied are none: a person decided so. Waiting for a person is no error either; it has a span of
   its own, which shows how long it took.
8. `error.type` is one of few words, never a text. Whatever can quote a prompt, an argument or a
   result is content: shown only if content is captured, and cut to the limit. Names that a
   developer gave are shown; those which a model or a server has made up, if they can be names.
9. Tokens and cost stand on leaves only, since backends add up what they find; `lib.usage.*` on the
   run's span is the sum of the run's own leaves.
10. Kinds and fields that this release does not know change nothing, and a payload that lacks
    something costs no more than the attribute.
"""

from __future__ import annotations

from lib.observe.spans.derive import interrupt, spans_from_events

__all__ = ["interrupt", "spans_from_events"]
