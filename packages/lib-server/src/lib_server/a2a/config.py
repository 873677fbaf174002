"""`A2AConfig`: the agent that a server offers to other agents, and its card."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lib.engine import Result

PATH: Final = "/a2a"
CARD_PATH: Final = "/.well-known/agent-card.json"
VERSION: Final = "1.0"
TEXT: Final = "text/plain"
DATA: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Something that the agent can do, as its card describes it.

    Attributes:
        id: names it among the skills of the card.
        name: for people.
        description: what it does and when to use it, for other agents.
        tags: words by which it is found.
        examples: requests that it answers.
    """

    id: str
    name: str
    description: str
    tags: Sequence[str] = ()
    examples: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as the card has it."""
        skill: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "tags": list(self.tags),
        }
        return skill | ({"examples": list(self.examples)} if self.examples else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a task, as other agents get it.

    Attributes:
        parts: `{"text": …}`, `{"data": …}`, or `{"raw": base64}` and `{"url": …}` with `filename`
            and `mediaType`, as the protocol has them.
        as_message: answer a request that waits for the end with a message in place of a task.
    """

    parts: Sequence[Mapping[str, Any]]
    as_message: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class A2AConfig:
    """The agent that a server offers to other agents. Its card is public.

    Attributes:
        agent: the name of the agent; None for the only one.
        name: that of the card; None for the agent's.
        description: what it is for, written for other agents.
        version: of the agent.
        url: where the server is reached from outside, with the path where it is mounted, such as
            `https://example.com/agents`; None for the host of each request.
        skills: what it can do; empty for one skill of its name and description.
        extended_skills: further ones, in the card that callers with credentials get.
        input_modes: the media types that messages may have, such as "image/*".
        output_modes: those of its answers.
        organization: its provider, and the URL of a page about them.
        documentation_url: of a page about the agent.
        answer: makes the answer of a run that has completed; None for its text, or its output as
            data if the agent has an `output` type. It is called whenever the task is read.

    Raises:
        ValueError: a field has a value that means nothing.
    """

    agent: str | None = None
    name: str | None = None
    description: str = ""
    version: str = "1.0.0"
    url: str | None = None
    skills: Sequence[Skill] = ()
    extended_skills: Sequence[Skill] = ()
    input_modes: Sequence[str] = (TEXT, DATA)
    output_modes: Sequence[str] = (TEXT, DATA)
    organization: tuple[str, str] | None = None
    documentation_url: str | None = None
    answer: Callable[[Result[Any]], Answer] | None = None

    def __post_init__(self) -> None:
        """Refuse what no card can say."""
        if self.url is not None and not self.url.startswith(("https://", "http://")):
            raise ValueError(f"expected an http or https URL as url, got {self.url!r}")
        for name in ("input_modes", "output_modes"):
            modes = getattr(self, name)
            if isinstance(modes, str) or not modes:
                raise ValueError(f"expected a list of media types as {name}, got {modes!r}")
        ids = [skill.id for skill in (*self.skills, *self.extended_skills)]
        if len(set(ids)) < len(ids):
            raise ValueError("expected skills with distinct ids")

    def agent_among(self, names: Collection[str]) -> str:
        """Return the name of the agent among those of an engine.

        Raises:
            ValueError: it is not there, or there are several and none was chosen.
        """
        if self.agent is not None:
            if self.agent in names:
                return self.agent
            raise ValueError(f"the engine has no agent {self.agent!r}: it has {sorted(names)}")
        if len(names) == 1:
            return next(iter(names))
        raise ValueError(
            f"expected one agent for A2A, got {sorted(names)}: choose one, A2AConfig(agent=…)"
        )

    def takes(self, media_type: str) -> bool:
        """Return True if messages may have parts of this media type."""
        media_type = media_type.partition(";")[0].strip().lower()
        kind = media_type.partition("/")[0]
        return any(mode.lower() in (media_type, f"{kind}/*", "*/*") for mode in self.input_modes)

    def card(self, agent: str, url: str, *, secured: bool, extended: bool) -> dict[str, Any]:
        """Return the card.

        Args:
            agent: its name in the engine.
            url: where the server is reached, unless the configuration says it.
            secured: whether callers need credentials.
            extended: with the further skills.
        """
        name = self.name or agent
        description = self.description or f"The agent {name}."
        default = Skill(id="default", name=name, description=description, tags=("agent",))
        skills = [*(self.skills or (default,)), *(self.extended_skills if extended else ())]
        base = (self.url or url).rstrip("/") + PATH
        card: dict[str, Any] = {
            "name": name,
            "description": description,
            "version": self.version,
            "supportedInterfaces": [
                {"url": base, "protocolBinding": binding, "protocolVersion": VERSION}
                for binding in ("JSONRPC", "HTTP+JSON")
            ],
            "capabilities": {
                "streaming": True,
                "pushNotifications": False,
                "extendedAgentCard": bool(self.extended_skills),
            },
            "defaultInputModes": list(self.input_modes),
            "defaultOutputModes": list(self.output_modes),
            "skills": [skill.to_json() for skill in skills],
        }
        if self.organization is not None:
            organization, page = self.organization
            card["provider"] = {"organization": organization, "url": page}
        if self.documentation_url is not None:
            card["documentationUrl"] = self.documentation_url
        if secured:
            card["securitySchemes"] = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
            card["securityRequirements"] = [{"schemes": {"bearer": {"list": []}}}]
        return card
