"""`/v1/agents`: the agents whose runs can be started."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp

from lib import Agent
from lib.engine import AgentSpec
from lib_server.bodies import AgentList, AgentView, Empty, ToolView
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer


def view(name: str, agent: AgentSpec[Any]) -> AgentView:
    """Return what callers see of an agent: neither its instructions nor its models."""
    if not isinstance(agent, Agent):
        return AgentView(name=name, tools=[], agents=[], output=None)
    described: Agent[Any] = agent
    return AgentView(
        name=name,
        tools=[ToolView(name=each.name, description=each.description) for each in described.tools],
        agents=[each.name for each in described.agents],
        output=None if described.output is None else described.output.model_json_schema(),
    )


async def _list(call: Call[Empty, None]) -> ASGIApp:
    agents = [view(name, agent) for name, agent in call.engine.agents.items()]
    return answer(AgentList(agents=agents))


async def _get(call: Call[Empty, None]) -> ASGIApp:
    name = call.path("agent")
    agent = call.engine.agents.get(name)
    if agent is None:
        raise Problem("agent_not_found", "no agent has this name")
    return answer(view(name, agent))


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/agents",
        handler=_list,
        summary="List the agents",
        tag="agents",
        right="read",
        answers={200: AgentList},
    ),
    Route(
        method="GET",
        path="/v1/agents/{agent}",
        handler=_get,
        summary="Describe an agent",
        tag="agents",
        right="read",
        answers={200: AgentView},
    ),
]
