"""A user's own store: the one of the documentation passes the suite, outside of this repository."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs_src"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
FAULTY = """
import pytest
from lib.testing.vector_store import StoreKind, VectorStoreContract
from own_vector_store import DictVectorStore, Dicts

class Forgetful(Dicts):
    async def count(self, namespace, filter):
        return 0

class ForgetfulStore(DictVectorStore):
    async def open_backend(self):
        return Forgetful(self.metric)

class TestForgetful(VectorStoreContract):
    @pytest.fixture
    def kind(self):
        return StoreKind(open=lambda _, dimension, metric: ForgetfulStore(dimension, metric))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder of a user's own, with the files of the documentation."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for name in ("own_vector_store.py", "own_vector_store_test.py"):
        shutil.copy(DOCS / name, tmp_path)
    return tmp_path


def done(
    command: list[str], project: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )


def test_the_store_of_the_documentation_passes_the_suite(
    project: Path, unmeasured: dict[str, str]
) -> None:
    ended = done([*PYTEST, "own_vector_store_test.py"], project, unmeasured)

    assert ended.returncode == 0, ended.stdout[-4000:]
    assert "skipped" not in ended.stdout


def test_a_failed_assertion_of_the_suite_shows_its_values(
    project: Path, unmeasured: dict[str, str]
) -> None:
    (project / "test_forgetful.py").write_text(FAULTY, encoding="utf-8")

    ended = done([*PYTEST, "-k", "replaces_a_record"], project, unmeasured)

    assert ended.returncode == 1
    assert "assert 0 == 1" in ended.stdout


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
@pytest.mark.parametrize("module", ["vector_store", "event_store", "sink", "reranker", "dialect"])
def test_a_suite_without_what_it_needs_names_the_extra(
    missing: str, module: str, project: Path, unmeasured: dict[str, str]
) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import lib.testing.{module}"

    ended = done([sys.executable, "-c", program], project, unmeasured)

    assert f"MissingDriver: lib.testing needs {missing}: pip install" in ended.stderr
