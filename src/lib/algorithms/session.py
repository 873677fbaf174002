"""The algorithm of sessions; it stands in the engine's core, since every engine has it."""

from __future__ import annotations

from lib.engine.core.session import SessionLoop, SessionState

__all__ = ["SessionLoop", "SessionState"]
