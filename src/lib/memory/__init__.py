"""Long-term memory: facts about users in a vector store, with their dates and sources.

`Agent(model, memory=Memory("memory.db"))` recalls what is known of a run's user before its model is
called, and remembers what that user has said afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports

if TYPE_CHECKING:
    from lib.memory.changes import Candidate, Remembered
    from lib.memory.extract import (
        ENGLISH_RULES,
        Extraction,
        Extractor,
        ModelExtractor,
        Rule,
        RuleExtractor,
        UserMessages,
    )
    from lib.memory.facts import Fact
    from lib.memory.memory import Memory
    from lib.memory.tools import MemoryTools

__all__ = [
    "ENGLISH_RULES",
    "Candidate",
    "Extraction",
    "Extractor",
    "Fact",
    "Memory",
    "MemoryTools",
    "ModelExtractor",
    "Remembered",
    "Rule",
    "RuleExtractor",
    "UserMessages",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "ENGLISH_RULES": "lib.memory.extract",
            "Candidate": "lib.memory.changes",
            "Extraction": "lib.memory.extract",
            "Extractor": "lib.memory.extract",
            "Fact": "lib.memory.facts",
            "Memory": "lib.memory.memory",
            "MemoryTools": "lib.memory.tools",
            "ModelExtractor": "lib.memory.extract",
            "Remembered": "lib.memory.changes",
            "Rule": "lib.memory.extract",
            "RuleExtractor": "lib.memory.extract",
            "UserMessages": "lib.memory.extract",
        },
    )
