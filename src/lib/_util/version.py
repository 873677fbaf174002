"""The version of the distribution; `lib.__version__` is this one."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.3.1"
