"""The protocol of guards: the content that they check, and their verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args

from lib.llm import Part, Usage

Stage = Literal["input", "output", "tool_call", "tool_result"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardContent:
    """Content to check.

    Attributes:
        stage: where it stands: before a model call, after one, before a tool call, after one.
        text: all of it as text. input: what users and tools have said since the last reply, apart
            from system messages; in the first call of a run, all that it was given, even what it
            says that a model has replied. output: the reply's thinking and text, and the
            arguments of its calls as JSON. tool_call: the arguments as JSON. tool_result: what the
            model would read, of an agent what it has answered.
        parts: the parts of those messages or of that reply, attachments among them; none of calls.
            An attachment above 256 KiB is there by its digest only, in `blob`, unless a guard has
            requested its bytes.
        run_id: the run.
        tenant: who owns it.
        user: who started it.
        tool: the name of the tool, of a call and its result.
        arguments: of the call, likewise.
    """

    stage: Stage
    text: str
    run_id: str
    parts: tuple[Part, ...] = ()
    tenant: str | None = None
    user: str | None = None
    tool: str | None = None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision of a guard on content.

    Attributes:
        allowed: whether it may go on.
        reason: why not, in a few words that quote nothing of the content: they enter the log, and
            the model reads them of a blocked call.
        usage: what a model has used to decide it, counted in the run's spend.
        model: which model.
        provider: who is paid for it.
    """

    allowed: bool
    reason: str = ""
    usage: Usage | None = None
    model: str | None = None
    provider: str | None = None


class Guard(Protocol):
    """Checks content at some stages.

    It may say more of itself, in attributes that need not be there. `timeout_s: float`: how long
    one check may take, in seconds (30 without it); a check that raises or takes longer counts as
    blocked. `attachment_bytes: int`: how many bytes of attachments that a blob store holds are
    read for a check of input, in all (none without it); what is larger comes as its `blob`.
    After a crash the same content may be checked again.
    """

    @property
    def name(self) -> str:
        """Its name in logs and spans."""
        ...

    @property
    def stages(self) -> frozenset[Stage]:
        """The stages at which it checks."""
        ...

    async def check(self, content: GuardContent) -> Verdict:
        """Return whether the content may go on."""
        ...
