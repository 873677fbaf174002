"""Questions to the client of a call, and the sealed state that its next request brings back.

A call that needs an answer ends with its questions, and the client sends the request again with
the answers: the function runs again from its beginning. Clients of 2025-11-25 and before get them
while the call goes on, where their transport can.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from lib._util.clock import Clock
from lib._util.json import canonical
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
            and _fits(answer, request)
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


def _needed(request: types.InputRequest) -> types.ClientCapabilities:
    match request:
        case types.ElicitRequest():
            return types.ClientCapabilities(elicitation=types.ElicitationCapability())
        case types.CreateMessageRequest():
            return types.ClientCapabilities(sampling=types.SamplingCapability())
        case types.ListRootsRequest():
            return types.ClientCapabilities(roots=types.RootsCapability())


def _fits(answer: types.InputResponse, request: types.InputRequest) -> bool:
    if type(answer) not in ANSWERS[type(request)]:
        return False
    match answer, request:
        case types.ElicitResult(action="accept", content=content), types.ElicitRequest(
            params=types.ElicitRequestFormParams(requested_schema=schema)
        ):
            return next(violations(content or {}, schema), None) is None
        case _:
            return True


class StateSeal:
    """Seals what a request must bring back, for this process, one caller, one request and a time.

    A sealed state counts once. It is signed, and readable to the client, from which it comes.
    """

    def __init__(self, *, clock: Clock, ttl_s: float = 600.0) -> None:
        """Make a key.

        Args:
            clock: for the end of a state.
            ttl_s: seconds for which a state counts.
        """
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._ttl_s = ttl_s
        self._used: dict[str, float] = {}

    def seal(self, inputs: Inputs, required: InputRequired, request: str) -> str:
        """Return the state after these questions.

        Args:
            inputs: what the client has answered so far.
            required: the questions of now.
            request: names the request and its caller.
        """
        answers = _STORED.dump_python(dict(inputs.answers), mode="json", by_alias=True)
        payload = canonical(
            {
                "answers": answers,
                "sent": sorted({*inputs.sent, *required.requests}),
                "ends": self._clock.monotonic() + self._ttl_s,
                "id": secrets.token_hex(16),
                "request": request,
            }
        ).encode()
        return f"{_encode(payload)}.{_encode(self._signed(payload))}"

    def open(self, state: str, request: str) -> tuple[Answers, frozenset[str]]:
        """Return the answers so far, and the keys of the questions that were sent.

        Raises:
            MCPError: the state is not this server's for this request, has ended, or was used.
        """
        content, _, signature = state.partition(".")
        try:
            payload, signed = _decode(content), _decode(signature)
        except (ValueError, binascii.Error):
            raise _refused() from None
        if not hmac.compare_digest(signed, self._signed(payload)):
            raise _refused()
        found: dict[str, Any] = json.loads(payload)
        now = self._clock.monotonic()
        if found["request"] != request or found["ends"] < now or found["id"] in self._used:
            raise _refused()
        self._forget(now)
        self._used[found["id"]] = found["ends"]
        try:
            answers = _STORED.validate_python(found["answers"], by_name=False)
        except ValidationError:
            raise _refused() from None
        return answers, frozenset(found["sent"])

    def _forget(self, now: float) -> None:
        for used, ends in [*self._used.items()]:
            if ends >= now:
                break
            del self._used[used]

    def _signed(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def _decode(value: str) -> bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)


def _refused() -> MCPError:
    return MCPError(
        types.INVALID_PARAMS, "the request state does not fit this request: begin without it"
    )
