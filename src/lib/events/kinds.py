"""The kinds of events that the library writes, and what their payloads hold.

A request, its result and its key: an effect is written down before it happens
(`…requested`) and again when its outcome is known (`…completed` or `…failed`), both under the same
`key`, which is unique in the run. Readers ignore kinds and payload fields that they do not know.
A field that holds its default is left out. "?" marks what may be missing. Stores refuse payloads
that readers could not read, see `lib.events.payloads`.

    run.started         algorithm, input [message], config? {}, budget? {}, root?,
                        parent? {run_id, key}, request? (digest of an idempotent start),
                        upto? (of a session's turn: the conversation before it is that of the
                        turns which its parent's log had completed up to this `seq`),
                        client_tools? [{name, description, input_schema}] (the client of the run
                        makes their calls),
                        traceparent?, tracestate? (of the application's span within which the
                        root run was started, as in W3C Trace Context)
    run.resumed         worker, epoch, error? {type} (that of the worker, which then gave it back)
    lease.lost          signal_id, worker, epoch (a worker that lost the run is still alive)
    run.completed       outcome, output?, error? {type, message}
    cancel.requested    signal_id, reason?, key? (of a session's turn: only that is cancelled)
    close.requested     signal_id
    llm.requested       key, upto, digest, model?, provider?, settings?, tools_digest?,
                        provider_state? (true: it may rely on state that the provider holds),
                        server? {address, port}, output? ("json": with a schema for the reply),
                        tools? [name], epoch?
    llm.completed       key, reply {parts, usage, stop, …}, attempts?, misfit?,
                        empty? (true: nothing but thinking and whitespace),
                        first_chunk_s? (of a reply that was streamed), failed_models? [{model?,
                        provider?, error}] (those called before the one that replied),
                        provider? (of that one), tries? [{model?, after_s? (from the beginning of
                        the call), took_s, waited_s? (for a rate limiter), hedge? (true: begun
                        beside a slow one), error? {type, status?}}]
                        (if there were several, or one was refused or had to wait: at most 32)
    llm.failed          key, reason, error {type, message, status?, request_id?}, attempts?,
                        usage?, model?, failed_models?, provider?, tries?
    tool.requested      key, call_id, name, args, effects, idempotency_key, invalid?, mcp?,
                        version? (of the tool's definition), epoch? | … args, unstarted (true),
                        epoch?
    tool.checked        key, call_id, answer, reason? (of an interrupted call: what the tool's check
                        answers, one of `CHECK_ANSWERS`)
    tool.completed      key, call_id, output, truncated?, retries?, fallbacks?, hedges?, waited_s?
    tool.failed         key, call_id, reason, code, message, retries?, fallbacks?, hedges?,
                        waited_s?
    tool.awaited        key, call_id, name, args (the client of the run is to make this call)
    tool.answered       signal_id, key, output, failed? (true): what came of it; its request and its
                        result, checked and fenced, follow
    approval.requested  key, call_id, name, args, reason?, repeats? (the key of an equal call of the
                        run whose outcome is unknown), version? (as in tool.requested)
    approval.decided    signal_id, key, approved, comment?
    call.settled        signal_id, key, happened, result? (JSON: what a reviewer found out about a
                        call whose outcome was unknown)
    child.requested     key, call_id, run_id, name, algorithm, input [message], budget?, epoch?
    child.completed     key, call_id, run_id, outcome, output?, reason?, error?,
                        spend {}, unstarted? (true)
    turn.requested      signal_id, input [message], client_tools? (as in run.started)
    turn.started        key (the signal_id), run_id, algorithm, upto, budget?, epoch?
    turn.completed      key (the signal_id), signal_id, run_id, outcome, output?, reason?, error?,
                        spend {}
    context.requested   key, upto, digest, covers, messages, model?, provider?, server?, agent?,
                        epoch? (a summary of the first so many messages, of this digest, is due)
    context.summary     covers, text, key?, messages?, usage?, model?, provider?, attempts?,
                        reused? (true: another run has made it)
    context.failed      key, reason, error {type, message}, usage?, model?, provider?, attempts?
    memory.requested    key, operation, store?, record_id?, query?, filter?, records?, epoch?,
                        unstarted? (true), …
    memory.completed    key, records? [{id, text, said_at?, key?, change? ("added", "again" or
                        "superseded"), superseded_by?, why?}], count?, left_out?, usage?, model?,
                        provider?, attempts?, failed_models?, tries?, …
    memory.failed       key, error, reason?, usage?, model?, provider?, attempts?, failed_models?,
                        tries?
    guard.verdict       key, guard, stage, verdict, content_hash, reason?, usage?, model?,
                        provider?, start?, end? (when the check began and ended)
    eval.score          signal_id, name, value, comment?, source?, meta?, span_id?
    swarm.handoff       source, target, key?, text? (a note of the one for the other)
    reflexion.feedback  text, trial?
    debate.turn         agent, round, text, outcome? (of a turn that is not COMPLETED)

`provider` is the vendor that bills, as OpenTelemetry's `gen_ai.provider.name`. `mcp`, on any event
of a tool call, is {method?, protocol_version?, session_id?, request_id?, transport?} of its MCP
server.
`agent`, on a request of a model, a tool or an agent and on the question to a person, is the member
of a team that makes it; without it, that is the run's own agent.
`epoch` is that of the lease under which its worker wrote the event: how often the run had been
claimed by then. Those of requests never go back; in logs of older releases requests have none.
A tool request that is `unstarted` never had an effect: its result stands in the same append.
A call of an agent that ends `unstarted` was blocked by a guard: there is no run of that id.
`operations`, on the result of a tool call, lists the operations of the tool, each {kind
(retriever, reranker or embedding), start, end?, under? (the number of the operation that contains
it), model?, source?, k?, count?, dimensions?, query?, documents? [{id, score?}], error?,
retries?, fallbacks?, hedges?, waited_s?}; no text of documents. `retries` counts further attempts,
`fallbacks` services that were given up for the next, `hedges` attempts beside a slow one, and
`waited_s` is how long a rate limiter has made the call wait, in seconds.
`reason` of a failure is one of `REASONS`; `outcome` of a run is one of `OUTCOMES`.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Outcome = Literal["COMPLETED", "FAILED", "CANCELLED", "BLOCKED", "LIMITED"]
Reason = Literal["error", "blocked", "denied", "cancelled", "unknown"]
CheckAnswer = Literal["happened", "did_not_happen", "cannot_tell"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
CHECK_ANSWERS: Final[tuple[CheckAnswer, ...]] = get_args(CheckAnswer)

RUN_STARTED: Final = "lib.run.started"
RUN_RESUMED: Final = "lib.run.resumed"
RUN_COMPLETED: Final = "lib.run.completed"
LEASE_LOST: Final = "lib.lease.lost"
CANCEL_REQUESTED: Final = "lib.cancel.requested"
CLOSE_REQUESTED: Final = "lib.close.requested"
LLM_REQUESTED: Final = "lib.llm.requested"
LLM_COMPLETED: Final = "lib.llm.completed"
LLM_FAILED: Final = "lib.llm.failed"
TOOL_REQUESTED: Final = "lib.tool.requested"
TOOL_CHECKED: Final = "lib.tool.checked"
TOOL_COMPLETED: Final = "lib.tool.completed"
TOOL_FAILED: Final = "lib.tool.failed"
TOOL_AWAITED: Final = "lib.tool.awaited"
TOOL_ANSWERED: Final = "lib.tool.answered"
APPROVAL_REQUESTED: Final = "lib.approval.requested"
APPROVAL_DECIDED: Final = "lib.approval.decided"
CALL_SETTLED: Final = "lib.call.settled"
CHILD_REQUESTED: Final = "lib.child.requested"
CHILD_COMPLETED: Final = "lib.child.completed"
TURN_REQUESTED: Final = "lib.turn.requested"
TURN_STARTED: Final = "lib.turn.started"
TURN_COMPLETED: Final = "lib.turn.completed"
CONTEXT_REQUESTED: Final = "lib.context.requested"
CONTEXT_SUMMARY: Final = "lib.context.summary"
CONTEXT_FAILED: Final = "lib.context.failed"
MEMORY_REQUESTED: Final = "lib.memory.requested"
MEMORY_COMPLETED: Final = "lib.memory.completed"
MEMORY_FAILED: Final = "lib.memory.failed"
GUARD_VERDICT: Final = "lib.guard.verdict"
EVAL_SCORE: Final = "lib.eval.score"
SWARM_HANDOFF: Final = "lib.swarm.handoff"
REFLEXION_FEEDBACK: Final = "lib.reflexion.feedback"
DEBATE_TURN: Final = "lib.debate.turn"

PREFIX: Final = "lib."

REQUESTS: Final = frozenset(
    {LLM_REQUESTED, TOOL_REQUESTED, CHILD_REQUESTED, TURN_STARTED, MEMORY_REQUESTED}
    | {CONTEXT_REQUESTED}
)
"""Kinds that open a key: an effect may follow."""

SPAWNS_RUN: Final = frozenset({CHILD_REQUESTED, TURN_STARTED})
"""Requests that start another run; its end, whatever it is, is their only result."""

RESULTS: Final = frozenset(
    {LLM_COMPLETED, LLM_FAILED, TOOL_COMPLETED, TOOL_FAILED, CHILD_COMPLETED, TURN_COMPLETED}
    | {MEMORY_COMPLETED, MEMORY_FAILED, CONTEXT_SUMMARY, CONTEXT_FAILED}
)
"""Kinds that close a key opened by a request of the same run."""

NOTES: Final = frozenset({SWARM_HANDOFF, REFLEXION_FEEDBACK, DEBATE_TURN})
"""Kinds that algorithms write: facts without an effect, decided like requests."""

SIGNALS: Final = frozenset(
    {CANCEL_REQUESTED, CLOSE_REQUESTED, APPROVAL_DECIDED, TURN_REQUESTED, EVAL_SCORE}
    | {CALL_SETTLED, LEASE_LOST, TOOL_ANSWERED}
)
"""Kinds that are appended without the lease of the run: they commute, and repeating one with the
same `signal_id` changes nothing."""


def is_signal(kind: str) -> bool:
    """Return True if events of this kind may be appended without `expected`.

    Kinds outside `lib.` belong to the application; for the library they are annotations.
    """
    return kind in SIGNALS or not kind.startswith(PREFIX)
