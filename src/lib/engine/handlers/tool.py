"""Tool calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Final, TypeVar, cast

from lib._util.attempts import counted_facts, counting
from lib._util.json import copied
from lib._util.operations import Notebook
from lib.content.hygiene import clean, fenced, new_boundary
from lib.engine.core.algorithm import ToolRequest
from lib.engine.core.settle import OUTCOME_UNKNOWN, PendingEvent, tool_failed, tool_requested
from lib.engine.handlers.base import Admission, Call
from lib.engine.handlers.guards import RequestGuards, as_guards
from lib.engine.logs import log_run
from lib.errors import ToolError
from lib.events import Event
from lib.events import kinds as k
from lib.events.kinds import CheckAnswer, Reason
from lib.guards import Guard
from lib.llm import ToolSpec
from lib.tools import (
    CannotTell,
    CheckResult,
    DidNotHappen,
    Happened,
    OpenToolset,
    Tool,
    ToolContext,
    ToolRegistry,
)
from lib.tools.checks import ask_check
from lib.tools.output import as_text, clip

F = TypeVar("F", bound=Callable[..., Awaitable[Sequence[PendingEvent]]])

_RESULTS = frozenset({k.TOOL_COMPLETED, k.TOOL_FAILED})


def recording_operations(handle: F) -> F:
    """Wrap a handler's `handle` so that the result tells of the searches and retries inside it."""

    @wraps(handle)
    async def noted(handler: object, call: Call) -> Sequence[PendingEvent]:
        notebook = Notebook(call.clock)
        with notebook.open(), counting() as counts:
            pending_events = await handle(handler, call)
        operations = notebook.to_json()
        facts = {**counted_facts(counts), **({"operations": operations} if operations else {})}
        if not facts:
            return pending_events
        return [
            replace(pending, data={**pending.data, **facts})
            if pending.kind in _RESULTS
            else pending
            for pending in pending_events
        ]

    return cast("F", noted)


_log = logging.getLogger("lib.engine")

MAX_MESSAGE_CHARS = 2_000
REPEATS = (
    "the outcome of an equal call of this run is unknown: it may have had its effect; "
    "find out before you allow the repetition"
)
CHANGED = (
    "the definition of the tool has changed since this call was approved: "
    "read it again before you allow the call"
)
NOT_AS_RECORDED = "not called: the definition of the tool has changed since the call was decided"
_ANSWERS: Final[Mapping[type[CheckResult], CheckAnswer]] = {
    Happened: "happened",
    DidNotHappen: "did_not_happen",
    CannotTell: "cannot_tell",
}
MAYBE = "it may or may not have had its effect: verify before you repeat it"


class ToolHandler:
    """Fulfils tool requests from a registry; every failure is a result that the model can read."""

    kind = k.TOOL_REQUESTED
    request_type = ToolRequest

    def __init__(
        self,
        tools: ToolRegistry | Iterable[Tool],
        *,
        toolsets: Sequence[OpenToolset] = (),
        guards: Iterable[Guard] = (),
        boundary: Callable[[], str] = new_boundary,
    ) -> None:
        """Take the tools.

        Args:
            tools: what models may call.
            toolsets: more of it, found while runs go on. A tool of a name that is taken is left
                out, and logged. Their opener closes them.
            guards: called in this order; "tool_call" before a call has its effect, "tool_result" of
                what came of it, an output or a failure, before the model reads it. What they block
                is a failure of the call, and the run goes on.
            boundary: makes the unforeseeable words around untrusted output.

        Raises:
            TypeError: a tool or a guard is of another type, or is not in a list.
            ValueError: two tools have one name.
        """
        self._own = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self._toolsets = tuple(toolsets)
        self._tools = self._own
        self._client: dict[str, Tool] = {}
        self._left_out: set[str] = set()
        self._guards = as_guards(guards)
        self._boundary = boundary

    def add_client_tools(self, tools: Iterable[Mapping[str, Any]], taken: Collection[str]) -> None:
        """Offer tools whose calls the client of a run makes; this handler is for that run alone.

        Args:
            tools: as JSON.
            taken: names that other handlers offer.
        """
        self._client = {
            each["name"]: _client_tool(each) for each in tools if each["name"] not in taken
        }
        self._tools = self._with_clients(self._tools)

    def _with_clients(self, own: Iterable[Tool]) -> ToolRegistry:
        """Return the agent's tools, and behind them those of the client whose name is free."""
        found = {tool.name: tool for tool in own}
        return ToolRegistry({**found, **self._client, **found}.values())

    def _is_clients(self, tool: Tool) -> bool:
        return self._client.get(tool.name) is tool

    @property
    def has_toolsets(self) -> bool:
        """True if its tools can change while runs go on."""
        return bool(self._toolsets)

    async def refresh(self, taken: Collection[str]) -> None:
        """Find the tools of its toolsets again, where what is known of them is too old.

        Args:
            taken: names that other handlers offer.
        """
        await asyncio.gather(*(toolset.refresh() for toolset in self._toolsets))
        found = {tool.name: tool for tool in self._own}
        for tool in (tool for toolset in self._toolsets for tool in toolset.tools):
            if tool.name not in taken and found.setdefault(tool.name, tool) is tool:
                continue
            if tool.name not in self._left_out:
                self._left_out.add(tool.name)
                _log.warning("a second tool named %r is left out: give a prefix=", tool.name)
        self._tools = self._with_clients(found.values())

    @property
    def offers(self) -> Sequence[ToolSpec]:
        """The definitions that models get, one for each tool."""
        return [tool.spec for tool in self._tools]

    def admit(self, request: ToolRequest, admission: Admission) -> PendingEvent:
        """Return the intent with the tool's declared effect, or the question to a person."""
        tool = self._find(request)
        if tool and self._is_clients(tool) and not admission.answered and request.invalid is None:
            return PendingEvent(k.TOOL_AWAITED, tool_requested(request).data)
        if tool and not admission.approved and request.invalid is None:
            if admission.repeats and _asks_before_repeating(tool):
                return _question(request, tool, reason=REPEATS, repeats=admission.repeats)
            if _needs_approval(tool, request.arguments):
                return _question(request, tool)
        if tool and admission.approved and tool.version != admission.approved_version:
            return _question(request, tool, reason=CHANGED)
        more: dict[str, Any] = {
            "effects": tool.effects if tool else "none",
            "idempotency_key": f"{admission.run_id}:{request.key.removeprefix('tool/')}",
        }
        if tool and tool.version is not None:
            more["version"] = tool.version
        if request.invalid is not None:
            more["invalid"] = request.invalid
        return tool_requested(request, **more)

    @recording_operations
    async def handle(self, call: Call[ToolRequest]) -> Sequence[PendingEvent]:
        """Make the call and return its output, or why there is none.

        For an interrupted call that must not be repeated, the check of its tool is called first.
        """
        if call.interrupted and (tool := self._checkable(call.event)) is not None:
            return await self._check_and_settle(tool, call)
        data, offered = call.event.data, call.decided.offered
        guarding = RequestGuards(self._guards, call)
        try:
            tool = self._tools.get(data["name"], among=offered)
            if "version" in data and data["version"] != tool.version:
                raise ToolError("denied", NOT_AS_RECORDED)  # noqa: TRY301 - a result like the others
            if "invalid" in data:
                raise ToolError("invalid_arguments", "the arguments are no JSON object")  # noqa: TRY301 - a result like the others
            if why := await guarding.call(data):
                raise ToolError("blocked", f"not called: {why}")  # noqa: TRY301 - likewise
        except ToolError as error:
            return [*guarding.verdicts, _failed(data, error)]
        result = await self._guarded_result(tool, data, self._call(tool, call), guarding)
        return [*guarding.verdicts, result]

    async def _check_and_settle(
        self, tool: Tool, call: Call[ToolRequest]
    ) -> Sequence[PendingEvent]:
        """Call the check of an interrupted call; return what follows from its answer."""
        data = call.event.data
        guarding = RequestGuards(self._guards, call)
        answer = await _ask_check(tool, call)
        pending_events = [_tool_checked(data, answer)]
        if isinstance(answer, Happened):
            result = await self._guarded_result(tool, data, _text_of(answer), guarding)
            pending_events += [*guarding.verdicts, result]
        elif isinstance(answer, CannotTell):
            pending_events.append(tool_failed(data, "unknown", "unknown", OUTCOME_UNKNOWN))
        return pending_events

    async def _guarded_result(
        self, tool: Tool, data: Mapping[str, Any], text: Awaitable[str], guarding: RequestGuards
    ) -> PendingEvent:
        """Return the result of a call, once its output is there and the guards have seen it."""
        result, outside_text = await self._result(tool, data, text)
        if outside_text is not None and (why := await guarding.result(data, outside_text)):
            withheld = _withheld(tool, why, made=result.kind == k.TOOL_COMPLETED)
            return tool_failed(data, "blocked", "blocked", withheld)
        return result

    async def _result(
        self, tool: Tool, data: Mapping[str, Any], output: Awaitable[str]
    ) -> tuple[PendingEvent, str | None]:
        """Return the result of a call, and the text in it that comes from outside, if any."""
        try:
            text = await output
        except ToolError as error:
            failed = _failed(data, error)
            return failed, None if error.code == "timeout" else failed.data["message"]
        if tool.untrusted_output:
            text = clean(text)  # before it is cut: invisible characters take no room
        text, cut = clip(text, tool.max_output_chars)
        result: dict[str, Any] = {
            "key": data["key"],
            "call_id": data["call_id"],
            "output": self._fenced(tool, text),
        }
        if cut:
            result["truncated"] = cut
        return PendingEvent(k.TOOL_COMPLETED, result), text

    def recover(self, request: Event) -> PendingEvent | None:
        """Return None for what may be repeated or checked; else the outcome "unknown"."""
        if request.data.get("effects", "once") != "once" or self._checkable(request) is not None:
            return None
        return tool_failed(request.data, "unknown", "unknown", OUTCOME_UNKNOWN)

    async def _call(self, tool: Tool, call: Call[ToolRequest]) -> str:
        arguments = copied(call.event.data["args"])
        deadline = asyncio.timeout(tool.timeout_s)
        try:
            async with deadline:
                if self._is_clients(tool):
                    return self._answer(tool, call)
                return as_text(await tool.call(arguments, _tool_context(call)))
        except asyncio.CancelledError as error:
            if _being_cancelled():
                raise
            raise ToolError("failed", "the tool was cancelled by something of its own") from error
        # Around a tool call: whatever it raises is a result, even that it wants to exit.
        except (Exception, SystemExit) as error:
            if deadline.expired():
                what = "got no answer of tool %r within %g s"
                log_run(logging.WARNING, call.run_id, what, tool.name, tool.timeout_s)
                raise ToolError("timeout", _timed_out(tool)) from error
            if isinstance(error, ToolError):
                raise
            _log.exception("tool %r failed in run %r", tool.name, call.run_id)
            message, _ = clip(f"{type(error).__name__}: {error}", MAX_MESSAGE_CHARS)
            raise ToolError("failed", self._fenced(tool, message)) from error

    def _answer(self, tool: Tool, call: Call[ToolRequest]) -> str:
        """Return what the client of the run has answered.

        Raises:
            ToolError: it has failed there.
        """
        assert call.answer is not None  # noqa: S101 - without one, it is not requested
        if call.answer.get("failed"):
            message, _ = clip(clean(call.answer["output"]), MAX_MESSAGE_CHARS)
            raise ToolError("failed", self._fenced(tool, message))
        return call.answer["output"]

    def _checkable(self, request: Event) -> Tool | None:
        """Return the tool of this call if it has a check and must not be repeated."""
        if request.data.get("effects", "once") != "once":
            return None
        name = request.data.get("name")
        return next((tool for tool in self._tools if tool.name == name and tool.check), None)

    def _find(self, request: ToolRequest) -> Tool | None:
        try:
            return self._tools.get(request.name, among=request.offered)
        except ToolError:
            return None  # the call will say so

    def _fenced(self, tool: Tool, text: str) -> str:
        if not tool.untrusted_output:
            return text
        return fenced(text, source=tool.name, boundary=self._boundary())


def _client_tool(described: Mapping[str, Any]) -> Tool:
    """Return a tool whose calls the client of a run makes; its answers are not to be trusted."""

    async def call(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        raise NotImplementedError

    return Tool(
        name=described["name"],
        description=described.get("description", ""),
        input_schema=described["input_schema"],
        call=call,
        effects="none",
        untrusted_output=True,
    )


def _question(request: ToolRequest, tool: Tool, **more: Any) -> PendingEvent:
    """Return the question to a person: may the call be made?"""
    if tool.version is not None:
        more["version"] = tool.version
    return PendingEvent(k.APPROVAL_REQUESTED, tool_requested(request, **more).data)


def _tool_context(call: Call[ToolRequest]) -> ToolContext:
    data, trace = call.event.data, call.trace
    return ToolContext(
        run_id=call.run_id,
        call_id=data["call_id"],
        idempotency_key=data["idempotency_key"],
        tenant=call.tenant,
        user=call.user,
        traceparent=None if trace is None else trace.traceparent,
        tracestate=None if trace is None else trace.state or None,
        deps=call.deps,
    )


async def _ask_check(tool: Tool, call: Call[ToolRequest]) -> CheckResult:
    """Return the answer of the tool's check; a failed check is `CannotTell`."""
    assert tool.check is not None  # noqa: S101 - seen by `_checkable`
    deadline = asyncio.timeout(tool.timeout_s)
    try:
        async with deadline:
            arguments = copied(call.event.data["args"])
            return await ask_check(tool.check, arguments, _tool_context(call))
    except asyncio.CancelledError:
        if _being_cancelled():
            raise
        why = "it was cancelled by something of its own"
    # Around a tool's own code: a failed check is no answer.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
        why = f"{type(error).__name__}: {error}"
        if deadline.expired():
            why = f"no answer within {tool.timeout_s:g} s"
    _log.exception("the check of tool %r failed in run %r", tool.name, call.run_id)
    return CannotTell(clip(why, MAX_MESSAGE_CHARS)[0])


def _tool_checked(data: Mapping[str, Any], answer: CheckResult) -> PendingEvent:
    """Return what a check has answered as an event to be."""
    checked: dict[str, Any] = {"key": data["key"], "call_id": data["call_id"]}
    checked["answer"] = _ANSWERS[type(answer)]
    if isinstance(answer, CannotTell) and answer.reason:
        checked["reason"] = answer.reason
    return PendingEvent(k.TOOL_CHECKED, checked)


async def _text_of(answer: Happened) -> str:
    return as_text(answer.output)


def _failed(data: Mapping[str, Any], error: ToolError) -> PendingEvent:
    message, _ = clip(error.message, MAX_MESSAGE_CHARS)
    return tool_failed(data, _reason(error, data), error.code, message)


def _withheld(tool: Tool, why: str, *, made: bool) -> str:
    effect = "it has had its effect" if made else "it failed, and may have had its effect"
    message = "called" if tool.effects == "none" else f"called, and {effect}"
    return f"{message}; what came of it is withheld, {why}"


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _asks_before_repeating(tool: Tool) -> bool:
    return tool.effects != "none" and tool.repeat_after_unknown == "ask"


def _needs_approval(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    try:
        return tool.needs_approval(copied(dict(arguments)))
    # Around a tool's own code: when in doubt, a person decides.
    except Exception:  # noqa: BLE001 - see above
        _log.exception("the approval rule of tool %r failed", tool.name)
        return True


def _timed_out(tool: Tool) -> str:
    message = f"no answer within {tool.timeout_s:g} s"
    return message if tool.effects == "none" else f"{message}; {MAYBE}"


def _reason(error: ToolError, data: Mapping[str, Any]) -> Reason:
    if error.code in ("blocked", "denied"):
        return cast("Reason", error.code)
    unsure = error.code in ("timeout", "unknown") and data["effects"] != "none"
    return "unknown" if unsure else "error"
