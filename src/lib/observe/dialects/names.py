"""Names that dialects know beside those of `lib.observe.attributes`."""

from __future__ import annotations

from typing import Final

SESSION: Final = "session.id"
USER: Final = "user.id"

RUN_ID: Final = "lib.run_id"
KIND: Final = "lib.span.kind"
TENANT: Final = "lib.tenant"
INPUT: Final = "lib.input"
OUTPUT: Final = "lib.output"

TRACE_NAME: Final = "lib.trace.name"
"""The name of the whole trace, on a span that is not its root."""

TAGS: Final = "lib.trace.tags"
"""A list of texts, for people to filter traces by."""

ENVIRONMENT: Final = "deployment.environment.name"
"""Such as "production"; of the resource in OpenTelemetry, of every span elsewhere."""

TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
"""The tools that a model may call: a list of objects with name, description and parameters."""

FIRST_CHUNK_S: Final = "gen_ai.response.time_to_first_chunk"
"""How long a model took to begin its answer, in seconds."""

SCORE_META: Final = "lib.evaluation.meta"
