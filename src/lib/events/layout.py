"""The version of what is stored, for every event store.

1   events, runs, marks. Stores of releases 0.1 and 0.2 are adopted as this version.
"""

from __future__ import annotations

from typing import Final

LAYOUT_VERSION: Final = 1
