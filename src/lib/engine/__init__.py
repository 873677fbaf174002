"""The engine: runs that survive their process, and effects that are never silently repeated."""

from __future__ import annotations

from lib.engine.api.engine import Engine
from lib.engine.api.run import Run
from lib.engine.api.session import Session, Turn
from lib.engine.api.stream import (
    ApprovalDecided,
    ApprovalRequested,
    GuardJudged,
    ModelFailed,
    ModelReplied,
    ReplyDelta,
    ReplyReset,
    RunEnded,
    StreamItem,
    ToolAwaited,
    ToolEnded,
    ToolStarted,
)
from lib.engine.api.waiting import UnknownCall, pending_approvals, unknown_calls
from lib.engine.api.worker import Worker
from lib.engine.core.algorithm import (
    Algorithm,
    Answer,
    Decision,
    Fact,
    Finish,
    LLMRequest,
    MemoryRequest,
    Note,
    Refuse,
    Request,
    ToolRequest,
    TurnRequest,
    Wait,
)
from lib.engine.core.budget import Budget, Spend
from lib.engine.core.result import PendingApproval, Result, WaitingCall, WaitingFor
from lib.engine.handlers.agent_tool import AgentParts, AgentSpec, AgentTool, ChildHandler, Start
from lib.engine.handlers.base import Admission, Call, ChildRuns, Handler, LiveDelta
from lib.engine.handlers.llm import LLMHandler
from lib.engine.handlers.memory import MemoryHandler
from lib.engine.handlers.tool import ToolHandler
from lib.engine.handlers.turn import TurnHandler
from lib.errors import (
    IdempotencyMismatch,
    MissingHandler,
    NoOutput,
    NotPending,
    RunAbandoned,
    SessionClosed,
    UnknownAlgorithm,
    UnknownTool,
)

__all__ = [
    "Admission",
    "AgentParts",
    "AgentSpec",
    "AgentTool",
    "Algorithm",
    "Answer",
    "ApprovalDecided",
    "ApprovalRequested",
    "Budget",
    "Call",
    "ChildHandler",
    "ChildRuns",
    "Decision",
    "Engine",
    "Fact",
    "Finish",
    "GuardJudged",
    "Handler",
    "IdempotencyMismatch",
    "LLMHandler",
    "LLMRequest",
    "LiveDelta",
    "MemoryHandler",
    "MemoryRequest",
    "MissingHandler",
    "ModelFailed",
    "ModelReplied",
    "NoOutput",
    "NotPending",
    "Note",
    "PendingApproval",
    "Refuse",
    "ReplyDelta",
    "ReplyReset",
    "Request",
    "Result",
    "Run",
    "RunAbandoned",
    "RunEnded",
    "Session",
    "SessionClosed",
    "Spend",
    "Start",
    "StreamItem",
    "ToolAwaited",
    "ToolEnded",
    "ToolHandler",
    "ToolRequest",
    "ToolStarted",
    "Turn",
    "TurnHandler",
    "TurnRequest",
    "UnknownAlgorithm",
    "UnknownCall",
    "UnknownTool",
    "Wait",
    "WaitingCall",
    "WaitingFor",
    "Worker",
    "pending_approvals",
    "unknown_calls",
]
