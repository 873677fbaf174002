"""The names of span attributes: those of OpenTelemetry's GenAI conventions, and our own.

They are constants of our own because the conventions are in development and the published
package of constants lags behind them. What has no name there has one that begins with `lib.`.

Source: OpenTelemetry semantic conventions for generative AI, repository
open-telemetry/semantic-conventions-genai, model/gen-ai, as of November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
"""The version of the conventions that the names below are of."""

ERROR_TYPE: Final = "error.type"
HTTP_STATUS: Final = "http.response.status_code"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_ID: Final = "gen_ai.agent.id"
AGENT_VERSION: Final = "gen_ai.agent.version"
OUTPUT_TYPE: Final = "gen_ai.output.type"
STREAM: Final = "gen_ai.request.stream"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"

DATA_SOURCE: Final = "gen_ai.data_source.id"
TOP_K: Final = "gen_ai.retrieval.top_k"
DIMENSIONS: Final = "gen_ai.embeddings.dimension.count"
DOCUMENT_COUNT: Final = "lib.documents.count"
"""How many documents a search has found, a reranker has read, or an embedder has embedded."""

MEMORY_STORE: Final = "gen_ai.memory.store.id"
MEMORY_RECORD: Final = "gen_ai.memory.record.id"
MEMORY_COUNT: Final = "gen_ai.memory.record.count"

EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_WHY: Final = "gen_ai.evaluation.explanation"
EVALUATION_SOURCE: Final = "lib.evaluation.source"
EVALUATION_META: Final = "lib.evaluation.meta"

TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
"""The tools that a model may call: objects with name, description and parameters, which the
tools of the exporting engine have, or with the name only; content."""

FIRST_CHUNK_S: Final = "gen_ai.response.time_to_first_chunk"
"""How long a model took to begin its answer, in seconds."""

INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
COST: Final = "lib.cost.usd"

USAGE: Final[Mapping[str, tuple[str, ...]]] = {
    "input_tokens": (INPUT_TOKENS,),
    "output_tokens": (OUTPUT_TOKENS,),
    "cache_read_tokens": ("gen_ai.usage.cache_read.input_tokens",),
    # The second is its name until spring 2026, the only one that today's backends read.
    "cache_write_tokens": (
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
    ),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens",),
    "cost": (COST,),
}
"""A usage as the log holds it. Only leaves carry it: backends add up what they find."""

TOTALS: Final[Mapping[str, str]] = {
    "input_tokens": "lib.usage.input_tokens",
    "output_tokens": "lib.usage.output_tokens",
    "cache_read_tokens": "lib.usage.cache_read_tokens",
    "cache_write_tokens": "lib.usage.cache_write_tokens",
    "reasoning_tokens": "lib.usage.reasoning_tokens",
    "cost": "lib.usage.cost_usd",
    "llm_calls": "lib.usage.llm_calls",
    "tool_calls": "lib.usage.tool_calls",
}
"""The usage of one run without its children, on the span of the run."""

SETTINGS: Final[Mapping[str, str]] = {
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
    "n": "gen_ai.request.choice.count",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "temperature": "gen_ai.request.temperature",
    "top_k": "gen_ai.request.top_k",
    "top_p": "gen_ai.request.top_p",
}
"""Settings of a model call; those that are not numbers may hold content and are left out."""

REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"

MCP: Final[Mapping[str, str]] = {
    "method": "mcp.method.name",
    "protocol_version": "mcp.protocol.version",
    "request_id": "jsonrpc.request.id",
    "session_id": "mcp.session.id",
    "transport": "network.transport",
}
"""Fields of a tool call that went to an MCP server."""

KEY: Final = "lib.key"
ATTEMPTS: Final = "lib.attempts"
FAILED_MODELS: Final = "lib.failed_models"
FALLBACKS: Final = "lib.fallbacks"
HEDGES: Final = "lib.hedges"
RETRIES: Final = "lib.retries"
WAITED_S: Final = "lib.waited_s"
REFUSED: Final = "lib.refused"
ATTEMPT: Final = "lib.attempt"
HEDGE: Final = "lib.hedge"
TOOK_S: Final = "lib.took_s"
COUNTS: Final[Mapping[str, str]] = {
    "retries": RETRIES,
    "fallbacks": FALLBACKS,
    "hedges": HEDGES,
    "waited_s": WAITED_S,
}
"""Fields of a tool call's result, or of an operation in it, that count its attempts."""
RESUMES: Final = "lib.resumes"
OMITTED: Final = "lib.input.omitted"
REASON: Final = "lib.reason"

RUN_OUTCOME: Final = "lib.run.outcome"
RUN_OPEN: Final = "lib.run.open"
PARENT_RUN: Final = "lib.run.parent_id"
EPOCH: Final = "lib.run.epoch"
WORKER: Final = "lib.run.worker"

TOOL_EFFECTS: Final = "lib.tool.effects"
TOOL_TRUNCATED: Final = "lib.tool.truncated"
TOOL_UNSTARTED: Final = "lib.tool.unstarted"
TOOL_CHECK: Final = "lib.tool.check"

APPROVED: Final = "lib.approval.approved"
APPROVED_BY: Final = "lib.approval.by"
APPROVAL_REPEATS: Final = "lib.approval.repeats"

GUARD_NAME: Final = "lib.guard.name"
GUARD_STAGE: Final = "lib.guard.stage"
GUARD_VERDICT: Final = "lib.guard.verdict"
GUARD_CONTENT: Final = "lib.guard.content_hash"

HANDOFF_SOURCE: Final = "lib.handoff.source"
HANDOFF_TARGET: Final = "lib.handoff.target"
DEBATE_AGENT: Final = "lib.debate.agent"
DEBATE_ROUND: Final = "lib.debate.round"
SUMMARY_COVERS: Final = "lib.context.covers"

SESSION: Final = "session.id"
TRACE_NAME: Final = "lib.trace.name"
"""The name of the whole trace, on a span that is not its root."""

TAGS: Final = "lib.trace.tags"
"""A list of texts, for people to find traces by."""

ENVIRONMENT: Final = "deployment.environment.name"
"""Such as "production": of the resource in OpenTelemetry, of every span elsewhere."""

RUN_ID: Final = "lib.run_id"
SPAN_KIND: Final = "lib.span.kind"
TENANT: Final = "lib.tenant"
USER: Final = "user.id"
INPUT: Final = "lib.input"
OUTPUT: Final = "lib.output"
"""Names of fields of a span for dialects without a better name."""
