"""The algorithms of agents: one per file, each a pure fold and a pure decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lib.algorithms.react import React, wrote_config
from lib.engine.core.session import SessionLoop

__all__ = ["React", "SessionLoop", "by_config"]


def by_config(config: Mapping[str, Any]) -> React | None:
    """Return the algorithm that folds runs with this recorded config, whatever its name was.

    Args:
        config: as recorded in `lib.run.started`; None is returned for that of no algorithm here.
    """
    return React() if wrote_config(config) else None
