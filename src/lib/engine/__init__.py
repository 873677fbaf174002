"""The engine: runs that survive their process, and effects that are never silently repeated."""

from __future__ import annotations

from lib.engine.agents import AgentParts, AgentSpec, Start
from lib.engine.approvals import PendingApproval, WaitingCall, pending_approvals
from lib.engine.core.algorithm import (
    Algorithm,
    Finish,
    LLMRequest,
    Request,
    ToolRequest,
    TurnRequest,
    Wait,
)
from lib.engine.core.budget import Budget, Spend
from lib.engine.engine import Engine
from lib.engine.handler import Admission, Context, DerivedRuns, Handler, Live
from lib.engine.handlers.child import AgentTool, ChildHandler
from lib.engine.handlers.llm import LLMHandler
from lib.engine.handlers.tool import ToolHandler
from lib.engine.handlers.turn import TurnHandler
from lib.engine.result import Result
from lib.engine.run import Run
from lib.engine.session import Session
from lib.engine.stream import (
    ApprovalDecided,
    ApprovalRequested,
    GuardJudged,
    ModelFailed,
    ModelReplied,
    ReplyDelta,
    RunEnded,
    StreamItem,
    ToolEnded,
    ToolStarted,
)
from lib.engine.turn import Turn
from lib.engine.unknown import UnknownCall, unknown_calls
from lib.engine.waiting import WaitingFor
from lib.engine.worker import Worker
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
    "ApprovalDecided",
    "ApprovalRequested",
    "Budget",
    "ChildHandler",
    "Context",
    "DerivedRuns",
    "Engine",
    "Finish",
    "GuardJudged",
    "Handler",
    "IdempotencyMismatch",
    "LLMHandler",
    "LLMRequest",
    "Live",
    "MissingHandler",
    "ModelFailed",
    "ModelReplied",
    "NoOutput",
    "NotPending",
    "PendingApproval",
    "ReplyDelta",
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
