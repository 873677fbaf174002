"""Tests for users: of their agents, and of their own stores, sinks, tools and algorithms.

The contract suites are the ones that the library's own implementations pass. They need the extra
`testing`; nothing else in `lib` imports this package. Under pytest a failed assertion of a suite
shows its values, as one in a test file does.
"""

import sys
from pkgutil import iter_modules

if sys.modules.get("pytest") is not None:
    sys.modules["pytest"].register_assert_rewrite(
        *{f"{__name__}.{module.name}" for module in iter_modules(__path__)} - sys.modules.keys()
    )
