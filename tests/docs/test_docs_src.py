"""Every program that the documentation shows runs, and prints what the documentation says."""

import asyncio
import importlib.util
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Generator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from queue import Queue
from threading import Thread
from types import ModuleType

import pytest

import lib
from fakes.llm_server import API_KEY
from fakes.responses_server import ResponsesServer

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "docs_src").glob("*.py"))
BESIDE = ROOT / "docs_src" / "beside"
PEERS = ROOT / "benchmarks" / "beside"  # which scripts/beside-others runs
SHOWN = [*PROGRAMS, *sorted(BESIDE.glob("*.py")), *sorted(PEERS.rglob("*.py"))]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def script(name: str) -> ModuleType:
    """Return a script of the repository as a module."""
    loader = SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


update_docs = script("update-docs")
beside_others = script("beside-others")


@pytest.fixture(scope="module")
def openai() -> Generator[str]:
    """Serve the model of programs that name one of OpenAI's; return the address."""
    ready, done = Queue[tuple[str, asyncio.AbstractEventLoop]](), asyncio.Event()

    async def serve() -> None:
        async with ResponsesServer(lambda _: "A file to which entries are only ever added.") as up:
            ready.put((up.base_url, asyncio.get_running_loop()))
            await done.wait()

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    url, loop = ready.get()
    yield url
    loop.call_soon_threadsafe(done.set)
    thread.join()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_shown_program_prints_what_is_shown(
    program: Path, tmp_path: Path, unmeasured: dict[str, str], openai: str
) -> None:
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**unmeasured, "OPENAI_BASE_URL": openai, "OPENAI_API_KEY": API_KEY},
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == program.with_suffix(".out").read_text(encoding="utf-8")


async def test_our_programs_beside_others_print_what_the_record_holds() -> None:
    python = Path(sys.executable)
    record = json.loads((BESIDE / "record.json").read_text(encoding="utf-8"))

    async with beside_others.model() as (_, url, called):
        shown = await beside_others.outputs(python, BESIDE, url, called)

    assert shown == record["lib"]
    for peer in record["peers"].values():
        compared = [name for name in peer if name in shown and "kill" not in name]
        assert {name: peer[name] for name in compared} == {name: shown[name] for name in compared}


def test_pages_hold_what_the_code_and_the_programs_say() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in update_docs.pages()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]

    assert stale == [], "run scripts/update-docs --pages, and read the diff"


def test_no_program_on_a_page_escapes_the_tests() -> None:
    programs = [program.read_text(encoding="utf-8").rstrip() for program in SHOWN]
    escaped = [
        f"{page.relative_to(ROOT)}: {block[:60]}"
        for page in PAGES
        for block in PYTHON_BLOCK.findall(page.read_text(encoding="utf-8"))
        if block.rstrip() not in programs
    ]

    assert escaped == []


def test_no_page_needs_a_builder_to_show_a_program() -> None:
    assert [page for page in PAGES if "--8<--" in page.read_text(encoding="utf-8")] == []


def test_every_program_is_shown_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    names = [str(program.relative_to(ROOT)) for program in SHOWN]
    assert [name for name in names if name not in text] == []


def test_every_public_package_has_a_page_of_the_api() -> None:
    packages = {
        f"lib.{module.name}"
        for module in pkgutil.iter_modules(lib.__path__)
        if module.ispkg and not module.name.startswith("_")
    }

    others = {"lib.cli", "lib.content", "lib.http", "lib.testing"}
    assert packages - others <= update_docs.PACKAGES.keys()


def test_every_public_module_has_one_level_of_stability() -> None:
    page = (ROOT / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(lib[\w.]*)` \|", page, re.MULTILINE)
    modules = {f"lib.{each.name}" for each in pkgutil.iter_modules(lib.__path__)}
    public = {module for module in modules if not module.startswith("lib._")}

    assert sorted(listed) == sorted(public | update_docs.PACKAGES.keys())


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == lib.__version__
    assert f"## {lib.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
