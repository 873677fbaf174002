"""HTTP to other people's servers: one deadline, bounded answers, failures that tell no secrets.

Nothing here knows a provider; each caller says which errors its failures are.
"""

from __future__ import annotations
