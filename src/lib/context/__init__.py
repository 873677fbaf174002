"""The part of a long conversation that a model is sent: logs and sessions keep all of it.

`Agent(model, context=[ClipToolOutputs(), Summarize(at_tokens=50_000)])`. What is sent is a pure
function of the log, so that a resumed run, or the next turn on another worker, sends the same
bytes. It only grows until a limit is passed, and is then cut down far below it at once: a provider
finds in its cache all that it was sent before, but for one call after each cut.
"""

from __future__ import annotations

from lib.context.policies import ClipToolOutputs, KeepLast, Policy, Summarize

__all__ = ["ClipToolOutputs", "KeepLast", "Policy", "Summarize"]
