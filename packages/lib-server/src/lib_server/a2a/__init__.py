"""The Agent2Agent protocol, version 1.0: `Server(engine, a2a=A2AConfig())`. Experimental."""

from lib_server.a2a.config import A2AConfig, Answer, Skill

__all__ = ["A2AConfig", "Answer", "Skill"]
