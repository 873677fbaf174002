import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import extraction

ROUNDS = 200_000 if os.environ.get("LIB_TEST_LONG") else 4_000


def test_random_documents_become_clean_text_and_hidden_text_stays_hidden() -> None:
    extraction.main(seed=20_261_121, rounds=ROUNDS)
