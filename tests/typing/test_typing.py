"""The public names have the types that users rely on; see `agents.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted(each for each in HERE.glob("*.py") if each.name != Path(__file__).name)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_mypy_knows_what_pyright_knows(
    program: Path, tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    strict = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *strict, str(program)],
        env={
            **unmeasured,
            "MYPYPATH": str(HERE.parents[1] / "src"),
            "PYTHONWARNDEFAULTENCODING": "",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
