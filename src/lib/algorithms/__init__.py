"""The algorithms of agents: one per file, each a pure fold and a pure decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lib.algorithms.debate import Debate
from lib.algorithms.react import React, wrote_config
from lib.algorithms.reflexion import Reflexion
from lib.algorithms.remembering import Remembering
from lib.algorithms.swarm import Swarm
from lib.algorithms.team import Team
from lib.engine.core.algorithm import Algorithm
from lib.engine.core.session import SessionLoop

__all__ = [
    "Debate",
    "React",
    "Reflexion",
    "Remembering",
    "SessionLoop",
    "Swarm",
    "Team",
    "by_config",
]


def by_config(config: Mapping[str, Any]) -> Algorithm[Any] | None:
    """Return the algorithm that folds runs with this recorded config, whatever its name was.

    Args:
        config: as recorded in `lib.run.started`; None is returned for that of no algorithm here.
    """
    if isinstance(config.get("memory"), Mapping):
        inner = by_config({name: value for name, value in config.items() if name != "memory"})
        return None if inner is None else Remembering(inner)
    if wrote_config(config):
        return React()
    for name, team in _TEAMS.items():
        if name in config:
            return team.of_log()
    return None


_TEAMS: Final[Mapping[str, type[Team]]] = {
    "judge": Reflexion,
    "rounds": Debate,
    "max_handoffs": Swarm,
}
"""The teams, by a name that is in the config of no other algorithm."""
