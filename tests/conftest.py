"""What every test runs under: blocking calls on the event loop are errors."""

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("lib.testing")

settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", parent=settings.get_profile("ci"), max_examples=2_000)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    with blockbuster_ctx("lib"):
        yield
