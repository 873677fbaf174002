"""The command `lib`: for a person at a terminal, and with `--json` for a program.

Exit status: 0 fine, 1 faults found or the work failed, 2 wrong usage.
"""

from __future__ import annotations

from lib.cli.main import main

__all__ = ["main"]
