"""Every program that the documentation shows runs, and prints what the documentation says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "docs_src").glob("*.py"))
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
SNIPPET = re.compile(r'--8<-- "([^"]+)"')
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_shown_program_prints_what_is_shown(
    program: Path, tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=unmeasured,
        capture_output=True,
        encoding="utf-8",
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == program.with_suffix(".out").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_program_on_a_page_escapes_the_tests(page: Path) -> None:
    for block in PYTHON_BLOCK.findall(page.read_text(encoding="utf-8")):
        shown = SNIPPET.fullmatch(block.strip())
        programs = [program.read_text(encoding="utf-8") for program in PROGRAMS]

        assert (shown and (ROOT / shown[1]).is_file()) or block in programs, block


def test_every_program_is_shown_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    for program in PROGRAMS:
        source = program.read_text(encoding="utf-8")
        assert f"docs_src/{program.name}" in text or source in text, program.name


def test_the_version_is_the_same_everywhere() -> None:
    import tomllib

    import lib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == lib.__version__
    assert f"## {lib.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
