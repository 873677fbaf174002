"""From the log of a run to its spans. Pure: equal logs give equal spans, to the byte.

The rules:

1. A span begins with the event that asks for something and ends with the one that tells how it
   came out; while that is missing it is open. A closed span never changes again, and no span of a
   run that has ended does.
2. The run's own span comes first, the others follow in the order in which they began: parents
   before children.
3. A child run has no span in its parent's log. Its own log says what started it, and with the
   parent's log at hand its root hangs exactly there.
4. "error" means that the thing asked for did not happen and that nobody had called it off. So
   FAILED, LIMITED and BLOCKED runs, and calls that failed, were blocked or have an unknown outcome,
   are errors. CANCELLED runs and calls that were cancelled or denied are none: a person decided so.
   Waiting for a person is no error either; it has a span of its own, which shows how long it took.
5. `error.type` is one of few words, never a text. Whatever can quote a prompt, an argument or a
   result is content: shown only if content is captured, and cut to the limit.
6. Tokens and cost stand on leaves only, since backends add up what they find; `lib.usage.*` on the
   run's span is the sum of the run's own leaves.
"""

from __future__ import annotations

from lib.observe.spans.derive import interrupt, spans_from_events

__all__ = ["interrupt", "spans_from_events"]
