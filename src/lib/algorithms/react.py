"""The basic agent: call the model, make its tool calls, send it the results, call it again.

Source: Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models" (2022),
arXiv:2210.03629, in the form of native tool calling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from lib.context import Policy
from lib.context.policies import as_policies
from lib.context.transcript import summary_messages
from lib.context.view import (
    Due,
    View,
    begin_view,
    left_view,
    measured,
    prepare,
    read_on,
    with_summary,
    without_summary,
)
from lib.engine.arguments import as_settings
from lib.engine.core.algorithm import (
    Finish,
    LLMRequest,
    Request,
    SummaryRequest,
    ToolRequest,
    Wait,
)
from lib.engine.core.conversation import (
    Conversation,
    History,
    ProviderHandle,
    Tail,
    begin_conversation,
)
from lib.engine.core.settle import call_result
from lib.events import Event
from lib.events import kinds as k
from lib.llm import Message, Reply, ToolCall, ToolResult, message_from_json, reply_from_json
from lib.llm.replies import ASK_AGAIN

REPAIRS = 1
"""How often a model may repair a reply that does not fit the output schema."""

SUMMARIZER: Final = "/summarizer"
"""The end of the name under which an agent has a model of its own for summaries, as if that were a
member of its team; the name of the agent in that team stands before it."""

_EMPTY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "length": (
            "the model used up its output tokens before it wrote any text or tool call: raise the "
            "limit of output tokens in `settings`, or let it think less"
        ),
        "content_filter": (
            "the provider's content filter withheld the whole reply: change what is sent, or use "
            "another model"
        ),
    }
)
"""What to do about an empty reply, by why the model stopped."""


_NONE: Mapping[str, Any] = MappingProxyType({})


class LoopState(NamedTuple):
    """The state of one conversation.

    Attributes:
        config: what `React.config` returned when the run was started.
        messages: the conversation so far; results enter it when the whole batch is settled.
        model_calls: model calls made so far.
        calling_model: whether a model call is open.
        calls: the calls of the last reply that have not entered the conversation, by key.
        issued: the keys of those which have been made.
        results: the results of those which are settled.
        end: how the run ends, None while it goes on.
        repairs: how often the model had to repair its output.
        prior: the number of messages before the input of the run.
        refused: whether a guard has kept from the model what it was to be sent.
        provider_handle: what the provider keeps of the conversation, if the run is to use that.
        same: whether the open model call was for exactly this conversation: a turn before it may
            have been erased since, and what the provider keeps still has that.
        empty: whether the last reply was empty; then the conversation ends with `ASK_AGAIN`.
        agent: the member of a team that goes on; "" for the run's own agent.
        handoffs: how often the conversation was handed over.
        scope: what the keys of its requests begin with, where a run has several conversations.
        unread: True if that member has read none of the messages: its guards check all of them.
        view: what of the conversation is sent; None for all of it.
    """

    config: Mapping[str, Any]
    messages: History
    model_calls: int = 0
    calling_model: bool = False
    calls: Mapping[str, ToolCall] = _NONE
    issued: frozenset[str] = frozenset()
    results: Mapping[str, ToolResult] = _NONE
    end: Finish | None = None
    repairs: int = 0
    prior: int = 0
    refused: bool = False
    provider_handle: ProviderHandle | None = None
    same: bool = True
    empty: bool = False
    agent: str = ""
    handoffs: int = 0
    scope: str = ""
    unread: bool = False
    view: View | None = None


def _names(tools: Any) -> list[str]:
    names: list[Any] = list(tools) if hasattr(tools, "__iter__") else [tools]
    if isinstance(tools, str) or not all(isinstance(name, str) for name in names):
        raise TypeError("tools of an algorithm are a list of names, such as [refund.name]")
    return names


def _checked_steps(max_steps: object) -> int:
    if isinstance(max_steps, bool) or not isinstance(max_steps, int):
        raise TypeError(f"expected a whole number as max_steps, got {max_steps!r}")
    if max_steps < 1:
        raise ValueError(f"expected max_steps of 1 or more, got {max_steps}")
    return max_steps


class React:
    """An agent that reasons and acts in turns until it answers."""

    def __init__(
        self,
        name: str = "react",
        *,
        system: str = "",
        model: str | None = None,
        tools: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        output: type[Any] | Mapping[str, Any] | None = None,
        max_steps: int = 50,
        provider_state: bool = False,
        allow_empty: bool = False,
        context: Iterable[Policy] = (),
    ) -> None:
        """Describe the agent.

        A run remembers this description: resumed under a changed one, it goes on with its own.

        Args:
            name: what runs are started by; distinct in an engine.
            system: instructions put before the conversation.
            model: which model, None for the client's own.
            tools: names of the tools and agents on offer, None for all that the engine has but
                agents of this very algorithm. An engine that drives refuses one that it has not;
                a run that remembers one which is gone since goes on without it.
            settings: temperature and the like, passed to the client.
            output: a pydantic model or JSON schema that the answer must fit.
            max_steps: model calls after which the run ends as LIMITED.
            provider_state: rest calls on what the provider has kept of the conversation, where its
                client brings a handle on that; the log holds the whole of it all the same.
            allow_empty: an empty reply is an answer, for agents whose tools do all the work.
                Otherwise the model is called once more, and a second one ends the run as FAILED.
            context: what of a long conversation the model is sent, see `lib.context`; by default
                all of it.

        Raises:
            TypeError: `tools` is not a list of names, `context` none of policies, `settings` no
                mapping of JSON values, or `max_steps` no whole number.
            ValueError: `context` has two policies of one type, or `max_steps` is below 1.
        """
        self.name = name
        self._system = system
        self._model = model
        self._tools = None if tools is None else _names(tools)
        self._settings = as_settings(settings)
        self._output = None if output is None else _schema(output)
        self._max_steps = _checked_steps(max_steps)
        self._provider_state = provider_state
        self._allow_empty = allow_empty
        self._context = [policy.to_json() for policy in as_policies(context)]

    @property
    def tool_names(self) -> Sequence[str] | None:
        """The names of the tools and agents on offer, None for all there are."""
        return self._tools

    def config(self) -> dict[str, Any]:
        """Return what a run must remember of this instance, defaults left out."""
        config: dict[str, Any] = {"max_steps": self._max_steps}
        for name in _OPTIONAL:
            value = getattr(self, f"_{name}")
            if value:
                config[name] = value
        if self._tools is not None:
            config["tools"] = self._tools
        return config

    def initial(self, started: Event, history: Sequence[Message] = ()) -> LoopState:
        """Return the conversation that the run begins with."""
        config = known_config(started.data.get("config", {}))
        new_input = [message_from_json(message) for message in started.data.get("input", ())]
        messages, provider_handle = begin_conversation(config.get("system", ""), history, new_input)
        view = begin_view(config, messages, history)
        if view is not None:  # the handle is of what was sent, and is held against it then
            provider_handle = getattr(history, "provider_handle", None)
        return LoopState(
            config=config,
            messages=messages,
            prior=len(messages) - len(new_input),
            provider_handle=provider_handle if config.get("provider_state") else None,
            view=view,
        )

    def conversation(self, state: LoopState) -> Conversation:
        """Return what the next turn of a session goes on with.

        Every call in it has its result, whatever became of the run. What a guard kept from the
        model is not in it, nor is anything else of that run.
        """
        end = len(state.messages)
        if state.refused:
            end = state.prior
        elif state.calls or state.empty:
            end -= 1  # its calls have not all been answered, or no reply has followed it
        new = state.messages[state.prior : end]
        kept = [each for each in new if _has_content(each)]
        full = state.messages.first(end)
        if len(kept) < len(new):
            full = full.first(state.prior).extend(kept)
        first, view = int(bool(state.config.get("system"))), state.view
        if view is not None:
            view = left_view(view, full, state.prior - first)
        return Conversation(Tail(full, first), state.provider_handle, full=full, view=view)

    def evolve(self, state: LoopState, event: Event) -> LoopState:
        """Return the state after one more event."""
        fold = _FOLDS.get(event.kind)
        return state if fold is None else fold(state, event)

    def decide(self, state: LoopState) -> Sequence[Request] | Finish | Wait:
        """Return the calls that are due, the next model call, or the end."""
        if state.end is not None:
            return state.end
        due = [key for key in state.calls if key not in state.issued]
        if due:
            return [_tool_request(key, state) for key in due]
        if state.calls or state.calling_model:
            return Wait()
        if state.model_calls >= state.config.get("max_steps", 50):
            return Finish(outcome="LIMITED", reason="max_steps")
        return [_model_request(state)]


_OPTIONAL: Final = (
    "system",
    "model",
    "settings",
    "output",
    "provider_state",
    "allow_empty",
    "context",
)
_CONFIG_TYPES: Final[Mapping[str, type]] = {
    "max_steps": int,
    "system": str,
    "model": str,
    "settings": dict,
    "output": dict,
    "tools": list,
    "provider_state": bool,
    "allow_empty": bool,
    "context": list,
}


def known_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid fields of a config; another program may have written the log."""
    typed: dict[str, Any] = {
        name: config[name]
        for name, type_ in _CONFIG_TYPES.items()
        if isinstance(config.get(name), type_)
    }
    if not all(isinstance(name, str) for name in typed.get("tools", ())):
        del typed["tools"]
    return typed


def wrote_config(config: Mapping[str, Any]) -> bool:
    """Return True if a recorded config is one that `React.config` returns."""
    return "max_steps" in config and config.keys() <= _CONFIG_TYPES.keys()


def _has_content(message: Message) -> bool:
    """Return True if providers take the message: some refuse an empty one of the model."""
    return message.role != "assistant" or bool(message.text or message.tool_calls)


def _model_request(state: LoopState) -> LLMRequest:
    """Return the next model call, or the summary that is due before."""
    if state.view is None:
        return _llm_request(state)
    view = prepare(state.view, state.messages)
    if isinstance(view, Due):
        return _summary_request(state, view)
    return _llm_request(state._replace(view=view))


def _llm_request(state: LoopState) -> LLMRequest:
    config, provider_handle, view = state.config, state.provider_handle, state.view
    messages = state.messages if view is None else view.sent
    if view is not None and not _is_of(provider_handle, messages):
        provider_handle = None
    return LLMRequest(
        key=f"{state.scope}llm/{state.model_calls + 1}",
        messages=messages,
        model=config.get("model"),
        tools=config.get("tools"),
        settings=config.get("settings", {}),
        output=config.get("output"),
        state=provider_handle.state if provider_handle else None,
        covers=provider_handle.covers if provider_handle else 0,
        agent=state.agent or None,
        first_call=state.unread,
        checked=view.head if view else 0,
    )


def _is_of(handle: ProviderHandle | None, messages: History) -> bool:
    """Return True if a provider keeps the first of these messages."""
    return handle is not None and messages.first(handle.covers).digest == handle.digest


def _summary_request(state: LoopState, due: Due) -> SummaryRequest:
    messages, rules = summary_messages(due, state.messages), due.view.rules
    return SummaryRequest(
        key=_summary_key(state),
        messages=messages,
        model=None if rules.own_model else state.config.get("model"),
        tools=[],
        agent=f"{state.agent}{SUMMARIZER}" if rules.own_model else state.agent or None,
        first_call=state.unread,
        checked=len(messages),
        summarises=due.covers,
        count=due.place,
        max_chars=rules.summary_chars,
        beginnings=due.beginnings,
    )


def _summary_key(state: LoopState) -> str:
    return f"{state.scope}summary/{state.model_calls + 1}"


def _summarised(state: LoopState, event: Event) -> LoopState:
    if state.view is None or event.data.get("key") != _summary_key(state):
        return state
    return state._replace(view=with_summary(state.view, state.messages, event.data))


def _not_summarised(state: LoopState, event: Event) -> LoopState:
    """Go on without a summary, unless a guard allows no model to read what is to be summed up."""
    if state.view is None or event.data["key"] != _summary_key(state):
        return state
    if state.refused:
        return _failed(state, event)
    return state._replace(view=without_summary(state.view, state.messages))


def _tool_request(key: str, state: LoopState) -> ToolRequest:
    call = state.calls[key]
    return ToolRequest(
        key=key,
        call_id=call.id,
        name=call.name,
        arguments=call.arguments,
        invalid=call.invalid,
        offered=state.config.get("tools"),
        agent=state.agent or None,
    )


def _model_requested(state: LoopState, event: Event) -> LoopState:
    if state.view is not None:
        view = prepare(state.view, state.messages)
        # A log that another release has written may go on where a summary is due here.
        view = read_on(state.view, state.messages) if isinstance(view, Due) else view
        state = state._replace(view=view)
    same = not state.config.get("provider_state") or _is_same(_llm_request(state), event)
    return state._replace(model_calls=state.model_calls + 1, calling_model=True, same=same)


def _is_same(request: LLMRequest, event: Event) -> bool:
    return request.digest(event.data.get("tools_digest", "")) == event.data.get("digest")


def _replied(state: LoopState, event: Event) -> LoopState:
    reply = reply_from_json(event.data["reply"])
    if state.view is not None:
        state = state._replace(view=measured(state.view, reply.usage))
    if event.data.get("empty") and not state.config.get("allow_empty"):
        return _replied_nothing(state, reply)
    if reply.stop == "content_filter":  # its calls are not to be made, so they are left out
        reply = replace(reply, parts=Message.assistant(reply.text).parts, state=None)
    messages = state.messages.append(reply.message)
    provider_handle = None
    if reply.state is not None and state.same and state.config.get("provider_state"):
        kept = messages if state.view is None else state.view.sent.append(reply.message)
        provider_handle = ProviderHandle(reply.state, len(kept), kept.digest)
    state = state._replace(
        messages=messages,
        calling_model=False,
        provider_handle=provider_handle,
        empty=False,
        unread=False,
    )
    if reply.tool_calls:
        # Models repeat call ids from reply to reply; the number of the reply makes them unique.
        number = f"{state.scope}tool/{state.model_calls}"
        calls = {f"{number}/{call.id}": call for call in reply.tool_calls}
        return state._replace(calls=calls, issued=frozenset[str](), results={})
    if reply.stop in ("length", "content_filter"):
        return state._replace(end=_cut_short(reply))
    if mismatch := event.data.get("misfit"):
        return _output_mismatch(state, reply, mismatch)
    return state._replace(end=Finish(outcome="COMPLETED", output=reply.text))


def _replied_nothing(state: LoopState, reply: Reply) -> LoopState:
    """Call the model once more, unless it was stopped: it would be stopped again."""
    state = state._replace(calling_model=False, provider_handle=None)
    if reply.stop in _EMPTY:
        error = _empty_reply(reply, _EMPTY[reply.stop])
        return state._replace(end=replace(_cut_short(reply), error=error))
    if not state.empty:
        return state._replace(messages=state.messages.append(ASK_AGAIN), empty=True)
    message = (
        "expected text or a tool call, got an empty reply twice: look at what the model was sent, "
        "or use another model; where tools do all the work and no answer is needed, use "
        "React(allow_empty=True)"
    )
    error = _empty_reply(reply, message)
    return state._replace(end=Finish(outcome="FAILED", reason="empty", error=error))


def _empty_reply(reply: Reply, message: str) -> dict[str, Any]:
    return {"type": "EmptyReply", "message": message, "stop": reply.stop}


def _output_mismatch(state: LoopState, reply: Reply, mismatch: str) -> LoopState:
    """Send the model once what is wrong with its output, then give up."""
    if state.repairs < REPAIRS:
        again = Message.user(f"Your reply does not fit the asked output: {mismatch}\nReply again.")
        return state._replace(messages=state.messages.append(again), repairs=state.repairs + 1)
    error = {"type": "InvalidReply", "message": mismatch}
    end = Finish(outcome="FAILED", output=reply.text, reason="output", error=error)
    return state._replace(end=end)


def _failed(state: LoopState, event: Event) -> LoopState:
    blocked = event.data.get("reason") == "blocked"
    end = Finish(
        outcome="BLOCKED" if blocked else "FAILED",
        reason="guard" if blocked else "llm",
        error=event.data.get("error"),
    )
    return state._replace(calling_model=False, end=end)


def _judged(state: LoopState, event: Event) -> LoopState:
    refused = event.data.get("stage") == "input" and event.data.get("verdict") != "allowed"
    return state._replace(refused=True) if refused else state


def _called(state: LoopState, event: Event) -> LoopState:
    return _in_batch(state, state.issued | {event.data["key"]}, state.results)


def _in_batch(
    state: LoopState, issued: frozenset[str], results: Mapping[str, ToolResult]
) -> LoopState:
    """Return the state with what became of some calls."""
    # Spelled out, since it is done twice for every call and `_replace` takes twice as long.
    return LoopState(
        state.config,
        state.messages,
        state.model_calls,
        state.calling_model,
        state.calls,
        issued,
        results,
        state.end,
        state.repairs,
        state.prior,
        state.refused,
        state.provider_handle,
        state.same,
        state.empty,
        state.agent,
        state.handoffs,
        state.scope,
        state.unread,
        state.view,
    )


def continued(state: LoopState, text: str) -> LoopState:
    """Return an ended loop that goes on with a message of the user."""
    messages = state.messages
    if messages and not _has_content(messages[-1]):  # an empty reply that was allowed
        messages = messages.first(len(messages) - 1)
    messages = messages.append(Message.user(text))
    return state._replace(messages=messages, end=None, repairs=0, empty=False)


def _settled(state: LoopState, event: Event) -> LoopState:
    """Note a result; when it is the last of its batch, all enter the conversation in call order."""
    key = event.data["key"]
    if key not in state.calls:
        return state
    results = {**state.results, key: call_result(event)}
    if len(results) < len(state.calls):
        return _in_batch(state, state.issued, results)
    messages = state.messages.extend([Message.tool(results[due]) for due in state.calls])
    return state._replace(messages=messages, calls={}, results={}, issued=frozenset[str]())


def _cut_short(reply: Reply) -> Finish:
    if reply.stop == "content_filter":
        return Finish(outcome="BLOCKED", output=reply.text, reason="content_filter")
    return Finish(outcome="LIMITED", output=reply.text, reason="length")


def _schema(output: type[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(output, Mapping):
        return dict(output)
    return output.model_json_schema()


_FOLDS = {
    k.LLM_REQUESTED: _model_requested,
    k.LLM_COMPLETED: _replied,
    k.LLM_FAILED: _failed,
    k.TOOL_REQUESTED: _called,
    k.TOOL_COMPLETED: _settled,
    k.TOOL_FAILED: _settled,
    k.CHILD_REQUESTED: _called,
    k.CHILD_COMPLETED: _settled,
    k.GUARD_VERDICT: _judged,
    k.CONTEXT_SUMMARY: _summarised,
    k.CONTEXT_FAILED: _not_summarised,
}
