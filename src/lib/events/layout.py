"""The version of what is stored, for every event store.

1   events, runs, marks. Stores of releases 0.1 and 0.2 are adopted as this version.
2   tombstones of erased runs; which runs refer to a blob; runs by their parent.
"""

from __future__ import annotations

from typing import Final

LAYOUT_VERSION: Final = 2
