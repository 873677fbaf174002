"""Agents of others, called over the Agent2Agent protocol 1.0. Experimental."""

from lib.a2a.agent import A2AAgent

__all__ = ["A2AAgent"]
