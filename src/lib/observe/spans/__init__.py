"""From the log of a run to its spans. Pure: equal logs give equal spans, to the byte.

The rules:

1. A span begins with a request event and ends with the event of its outcome; until then it is
   open. What a single event records, such as a verdict, is a span without length. A closed span
   never changes again.
2. When a run ends, everything in it ends: waits for approvals, and turns without an answer. After
   the end, a score adds a span; no other event adds or changes anything.
3. The run's own span comes first, the others follow in the order in which they began: parents
   before children.
4. A child run has its spans in its own log, which says what started it, and with the parent's log
   at hand its root hangs there: under the call of a tool or of an agent, or under a turn, else
   under the parent run. The run of a turn has the session's run id as its conversation, in every
   span.
5. A run is a session if a turn is requested before its end, or if its algorithm is "session";
   else a workflow, if there is a handoff, a feedback or a turn of a debate in it, or if its
   algorithm is called "swarm", "reflexion" or "debate"; else an agent. So its kind and its name can
   change while it is open.
6. A score is a span under the one that it names, if this run had that one when the score came, else
   under the run's own. Its `signal_id` makes it: repeating it adds nothing, a second score is a
   second span.
7. "error" means that the operation did not succeed and was not called off. So
   FAILED, LIMITED and BLOCKED runs, and calls that failed, were blocked or have an unknown outcome,
   are errors, and so are turns without an answer. CANCELLED runs and calls that were cancelled or
   denied are none: a person decided so. Waiting for a person is no error either; it has a span of
   its own, which shows how long it took.
8. `error.type` is one of few words, never a text. Whatever can quote a prompt, an argument or a
   result is content: shown only if content is captured, and cut to the limit. Names that a
   developer chose are shown; names from a model or a server only if they look like names.
9. Tokens and cost stand on leaves only, since backends add up what they find; `lib.usage.*` on the
   run's span is the sum of the run's own leaves.
10. Unknown kinds and fields of events change nothing, and a field missing in a payload costs only
    its attribute.
"""

from __future__ import annotations

from lib.observe.spans.derive import interrupt, spans_from_events

__all__ = ["interrupt", "spans_from_events"]
