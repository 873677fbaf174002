"""Every dialect keeps the contract; a new one is one more line of the table."""

import pytest

from lib.observe import GENAI, LANGFUSE, LANGSMITH, OPENINFERENCE, Dialect
from lib.observe.dialects import Enriched
from lib.testing.dialect import DialectContract

DIALECTS: dict[str, Dialect] = {
    "genai": GENAI,
    "langfuse": LANGFUSE,
    "langsmith": LANGSMITH,
    "openinference": OPENINFERENCE,
    "enriched": Enriched(GENAI, {"lib.trace.tags": ["eu"]}),
}


@pytest.fixture(params=DIALECTS.values(), ids=list(DIALECTS))
def each_dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


class TestDialects(DialectContract):
    @pytest.fixture
    def dialect(self, each_dialect: Dialect) -> Dialect:
        return each_dialect
