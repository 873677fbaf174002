"""How agents think: one algorithm per file, each a pure fold and a pure decision."""

from __future__ import annotations

from lib.algorithms.react import React

__all__ = ["React"]
