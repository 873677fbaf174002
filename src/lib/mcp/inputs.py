"""Questions to the client of a call, and its answers.

A call that needs an answer ends with its questions, and the client sends the request again with
the answers: the function runs again from its beginning. Clients of 2025-11-25 and before get them
while the call goes on, where their transport can.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from lib.llm.schema import violations
from lib.mcp.sdk import MCPError, types

Answers = Mapping[str, types.InputResponse]

_STORED: Final = TypeAdapter[dict[str, types.InputResponse]](types.InputResponses)
ANSWERS: Final[Mapping[type[Any], tuple[type[Any], ...]]] = {
    types.ElicitRequest: (types.ElicitResult,),
    types.CreateMessageRequest: (types.CreateMessageResult, types.CreateMessageResultWithTools),
    types.ListRootsRequest: (types.ListRootsResult,),
}


class InputRequired(Exception):
    """A call cannot go on without answers of its client; `ask` raises it.

    Attributes:
        requests: the questions, by key.
        sealed: True if only an answer to a question that was sent counts.
    """

    def __init__(self, requests: Mapping[str, types.InputRequest], *, sealed: bool) -> None:
        self.requests: dict[str, types.InputRequest] = dict(requests)
        self.sealed: bool = sealed
        super().__init__(f"the client must answer {', '.join(requests)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The answers that a call has from its client, and which questions the client can answer.

    Attributes:
        capabilities: of the client.
        answers: by the key of the question.
        sent: the keys of the questions that this server has sent for this request.
    """

    capabilities: types.ClientCapabilities
    answers: Answers = field(default_factory=dict[str, types.InputResponse])
    sent: frozenset[str] = frozenset()

    def can_ask(self, request: types.InputRequest) -> bool:
        """Return True if the client has declared that it answers such a question."""
        needed = _needed(request).model_fields_set
        return all(getattr(self.capabilities, name) is not None for name in needed)

    def ask(
        self, requests: Mapping[str, types.InputRequest], *, sealed: bool = False
    ) -> dict[str, types.InputResponse]:
        """Return the answers to these questions.

        Args:
            requests: the questions, by key; the same each time the function runs.
            sealed: see `InputRequired`.

        Raises:
            InputRequired: an answer is missing, or is none to its question.
            MCPError: the client answers no such questions.
        """
        found = {
            key: answer
            for key, request in requests.items()
            if (answer := self.answers.get(key)) is not None
            and (not sealed or key in self.sent)
            and fits(answer, request)
        }
        missing = {key: each for key, each in requests.items() if key not in found}
        for request in missing.values():
            if not self.can_ask(request):
                needed = types.MissingRequiredClientCapabilityErrorData(
                    required_capabilities=_needed(request)
                )
                raise MCPError(
                    types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                    f"the client does not answer {request.method}",
                    needed.model_dump(by_alias=True, exclude_none=True),
                )
        if missing:
            raise InputRequired(missing, sealed=sealed)
        return found


INPUTS: Final[ContextVar[Inputs]] = ContextVar("lib.mcp.inputs")
"""The inputs of the call that is carried out."""


def ask(**requests: types.InputRequest) -> dict[str, types.InputResponse]:
    """Return the client's answers to these questions, in a tool, a resource or a prompt.

    While an answer is missing it raises, and the function runs again once the answer is there: ask
    before anything has an effect, and let the exception pass.

    Raises:
        InputRequired: see above.
        MCPError: the client answers no such questions.
        LookupError: it is called outside of a call of an MCP client.
    """
    return INPUTS.get().ask(requests)


def can_ask(request: types.InputRequest) -> bool:
    """Return True if the client of this call has declared that it answers such a question."""
    return INPUTS.get().can_ask(request)


def form(message: str, fields: type[BaseModel] | Mapping[str, Any]) -> types.ElicitRequest:
    """Return a question to the person behind the client.

    Args:
        message: what it is about.
        fields: a model, or a JSON schema of an object, whose properties are no objects.
    """
    schema = dict(fields) if isinstance(fields, Mapping) else fields.model_json_schema()
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def read_answers(answers: Mapping[str, Any]) -> dict[str, types.InputResponse]:
    """Return answers of the wire.

    Raises:
        ValidationError: one is none to any question.
    """
    return _STORED.validate_python(dict(answers), by_name=False)


def dump_answers(answers: Answers) -> dict[str, Any]:
    """Return answers as plain JSON, which `read_answers` reads."""
    dumped: dict[str, Any] = _STORED.dump_python(
        dict(answers), mode="json", by_alias=True, exclude_none=True
    )
    return dumped


def _needed(request: types.InputRequest) -> types.ClientCapabilities:
    match request:
        case types.ElicitRequest():
            return types.ClientCapabilities(elicitation=types.ElicitationCapability())
        case types.CreateMessageRequest():
            return types.ClientCapabilities(sampling=types.SamplingCapability())
        case types.ListRootsRequest():
            return types.ClientCapabilities(roots=types.RootsCapability())


def fits(answer: types.InputResponse, request: types.InputRequest) -> bool:
    """Return True if this is an answer to the question, and one that its form takes."""
    if type(answer) not in ANSWERS[type(request)]:
        return False
    match answer, request:
        case types.ElicitResult(action="accept", content=content), types.ElicitRequest(
            params=types.ElicitRequestFormParams(requested_schema=schema)
        ):
            return next(violations(content or {}, schema), None) is None
        case _:
            return True
