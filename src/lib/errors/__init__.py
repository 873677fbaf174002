"""Every public error, and the facts that each one carries.

    LibError
    ├── MissingDriver (also ImportError)
    ├── InvalidEvent (also ValueError)
    ├── StoreError
    │   ├── Conflict
    │   ├── RunNotFound
    │   │   └── RunErased
    │   ├── RunOpen
    │   ├── SchemaTooNew
    │   ├── MigrationNeeded
    │   ├── StoreReadOnly
    │   ├── StoreCorrupt
    │   └── StoreClosed
    ├── BlobError
    │   ├── BlobMissing
    │   └── ContentTooLarge
    ├── EngineError
    │   ├── UnknownAlgorithm
    │   ├── UnknownTool
    │   ├── MissingHandler
    │   ├── IdempotencyMismatch
    │   ├── NoOutput
    │   ├── NotPending
    │   ├── RedactionFailed
    │   ├── RunAbandoned
    │   └── SessionClosed
    ├── RemoteError
    │   ├── LLMError
    │   │   ├── UnsupportedModality
    │   │   ├── InvalidReply
    │   │   └── ScriptError
    │   └── StoreUnavailable (also VectorError)
    ├── ToolError
    │   └── FetchBlocked
    ├── VectorError
    │   ├── DimensionMismatch (also ValueError)
    │   ├── MetricMismatch (also ValueError)
    │   ├── InvalidVector (also ValueError)
    │   ├── InvalidFilter (also ValueError)
    │   ├── InvalidMeta (also ValueError)
    │   ├── UnsupportedFilter
    │   ├── HybridUnavailable
    │   ├── NotFitted
    │   ├── ConsistencyTimeout
    │   └── TenantViolation (also StoreError)
    └── ExportError

Messages are lower case and say what happened, the rule, and the way out. None holds a vector, a
document, a prompt or a secret.
"""

from __future__ import annotations

from lib.errors.agents import (
    FetchBlocked,
    InvalidReply,
    LLMError,
    ScriptError,
    ToolError,
    ToolErrorCode,
    UnsupportedModality,
)
from lib.errors.base import (
    LibError,
    MissingDriver,
    RemoteError,
)
from lib.errors.engine import (
    EngineError,
    IdempotencyMismatch,
    MissingHandler,
    NoOutput,
    NotPending,
    RedactionFailed,
    RunAbandoned,
    SessionClosed,
    UnknownAlgorithm,
    UnknownTool,
)
from lib.errors.events import (
    BlobError,
    BlobMissing,
    Conflict,
    ContentTooLarge,
    InvalidEvent,
    MigrationNeeded,
    RunErased,
    RunNotFound,
    RunOpen,
    SchemaTooNew,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.errors.observe import (
    ExportError,
)
from lib.errors.vector import (
    ConsistencyTimeout,
    DimensionMismatch,
    HybridUnavailable,
    InvalidFilter,
    InvalidMeta,
    InvalidVector,
    MetricMismatch,
    NotFitted,
    StoreUnavailable,
    TenantViolation,
    UnsupportedFilter,
    VectorError,
)

__all__ = [
    "BlobError",
    "BlobMissing",
    "Conflict",
    "ConsistencyTimeout",
    "ContentTooLarge",
    "DimensionMismatch",
    "EngineError",
    "ExportError",
    "FetchBlocked",
    "HybridUnavailable",
    "IdempotencyMismatch",
    "InvalidEvent",
    "InvalidFilter",
    "InvalidMeta",
    "InvalidReply",
    "InvalidVector",
    "LLMError",
    "LibError",
    "MetricMismatch",
    "MigrationNeeded",
    "MissingDriver",
    "MissingHandler",
    "NoOutput",
    "NotFitted",
    "NotPending",
    "RedactionFailed",
    "RemoteError",
    "RunAbandoned",
    "RunErased",
    "RunNotFound",
    "RunOpen",
    "SchemaTooNew",
    "ScriptError",
    "SessionClosed",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreReadOnly",
    "StoreUnavailable",
    "TenantViolation",
    "ToolError",
    "ToolErrorCode",
    "UnknownAlgorithm",
    "UnknownTool",
    "UnsupportedFilter",
    "UnsupportedModality",
    "VectorError",
]
