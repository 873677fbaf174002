"""The real Presidio with a real model, where both are installed.

pip install presidio-analyzer && python -m spacy download en_core_web_sm && pytest tests/live
"""

import importlib
import importlib.util
from typing import Any

import pytest

from lib.privacy.detect import PresidioDetector, find

MODEL = "en_core_web_sm"
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("presidio_analyzer", MODEL)),
        reason="presidio-analyzer or its model is not installed",
    ),
]


def test_names_are_found_by_the_real_analyzer() -> None:
    analyzer: Any = importlib.import_module("presidio_analyzer")
    nlp: Any = importlib.import_module("presidio_analyzer.nlp_engine")
    models = [{"lang_code": "en", "model_name": MODEL}]
    provider = nlp.NlpEngineProvider(
        nlp_configuration={"nlp_engine_name": "spacy", "models": models}
    )
    engine = analyzer.AnalyzerEngine(nlp_engine=provider.create_engine())
    text = "My name is Alice Johnson and I pay with 4111 1111 1111 1111."

    found = find(text, [PresidioDetector(engine, entities=["PERSON", "CREDIT_CARD"])])

    assert [(each.kind, text[each.start : each.end]) for each in found] == [
        ("person", "Alice Johnson"),
        ("card", "4111 1111 1111 1111"),
    ]
