"""How agents think: one algorithm per file, each a pure fold and a pure decision."""

from __future__ import annotations

from lib.algorithms.react import React
from lib.algorithms.session import SessionLoop

__all__ = ["React", "SessionLoop"]
