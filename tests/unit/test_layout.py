"""The shape of the package: what loads, what is suppressed, what is public."""

import ast
import importlib
import json
import pkgutil
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lib

SOURCE = Path(lib.__file__).parent
ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for part in ("src", "tests", "benchmarks", "packages/lib-server")
    for path in (ROOT / part).rglob("*.py")
)
SUPPRESSION = re.compile(r"# (noqa|type: ignore|pyright: ignore|pragma: no)\b(?P<more>.*)")
QUESTION = re.compile(r"(Whether|What|Who|Whose|Whoever|Whatever|How|Which|Where|When|That)\b")
DRIVERS = (
    *("psycopg", "psycopg_pool", "qdrant_client", "lancedb", "chromadb", "simsimd", "torch"),
    "genai_prices",
)
PARTICIPLES = {"asked", "borne", "given", "known", "owed", "paid", "said", "told"}
BANNED: re.Pattern[str] = runpy.run_path(str(ROOT / "scripts" / "figures"))["BANNED"]
WORD = re.compile(
    rf"(?<![A-Za-z0-9])(?:{'|'.join(sorted(PARTICIPLES))})(?![A-Za-z0-9])", re.IGNORECASE
)
OPENING = re.compile(rf"[\"'](?:\s|\\\n)*{QUESTION.pattern}")  # of a string, as docstrings are
STORED = "a stored key"
MUST_STAY = {
    "docs/reference/events.md": ({"misfit"}, STORED),
    "src/lib/algorithms/react.py": ({"misfit", "asked"}, "stored, or covered by stored digests"),
    "src/lib/engine/handlers/llm.py": ({"misfit"}, STORED),
    "src/lib/events/kinds.py": ({"misfit"}, STORED),
    "src/lib/events/payloads.py": ({"misfit"}, STORED),
    "src/lib/guards/judge.py": ({"whoever"}, "words of a prompt"),
    "src/lib/guards/signals.py": ({"told", "asked"}, "words of attacks"),
    "src/lib/memory/facts.py": ({"nobody"}, "words of users"),
    "src/lib/observe/export/outbox.py": ({"owed"}, STORED),
    "tests/fakes/random_logs.py": ({"misfit"}, STORED),
    "tests/properties/test_malformed_events.py": ({"misfit"}, STORED),
    "tests/unit/engine/test_model_calls.py": ({"asked"}, "words of a prompt"),
    "tests/unit/guards/test_injection.py": ({"told"}, "words of attacks"),
    "tests/unit/guards/test_injection_costs.py": ({"asked"}, "words of attacks"),
}
HEAVY = ("httpx2", "numpy", "pydantic", "rich", "click", "sqlite3", *DRIVERS)
PACKAGES = [
    "lib",
    *(f"lib.{module.name}" for module in pkgutil.iter_modules(lib.__path__) if module.ispkg),
]


@pytest.fixture
def loaded_by(unmeasured: dict[str, str]) -> Callable[[str], set[str]]:
    """Return what modules a statement loads."""

    def loaded(statement: str) -> set[str]:
        program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=unmeasured, capture_output=True, check=True)
        return set(json.loads(done.stdout))

    return loaded


def test_the_installed_package_is_meant_and_not_a_folder_that_happens_to_be_named_lib() -> None:
    assert lib.__file__ is not None
    assert (SOURCE / "py.typed").is_file()


def test_importing_lib_loads_no_driver_and_no_dependency(
    loaded_by: Callable[[str], set[str]],
) -> None:
    loaded = loaded_by("import lib")

    assert loaded.isdisjoint(HEAVY)
    assert {name for name in loaded if name.startswith("lib.")} == {"lib._util", "lib._util.lazy"}


@pytest.mark.parametrize(
    ("package", "without"),
    [
        ("lib.events", ("httpx2", "numpy", "rich", "click", "sqlite3")),
        ("lib.llm", ("httpx2", "numpy", "rich", "click", "sqlite3", "pydantic")),
        ("lib.engine", ("httpx2", "numpy", "rich", "click", "sqlite3")),
        ("lib.vector", ("httpx2", "numpy", "rich", "click", "sqlite3", *DRIVERS)),
        ("lib.observe", ("httpx2", "numpy", "rich", "click", "sqlite3", "opentelemetry")),
    ],
)
def test_a_package_loads_only_what_it_needs(
    loaded_by: Callable[[str], set[str]], package: str, without: tuple[str, ...]
) -> None:
    assert loaded_by(f"import {package}").isdisjoint(without)


def test_each_suppression_says_why() -> None:
    silent = [
        f"{module.relative_to(ROOT)}: {line.strip()}"
        for module in MODULES
        for line in module.read_text(encoding="utf-8").splitlines()
        if (found := SUPPRESSION.search(line)) and not re.search(r" - \w", found["more"])
    ]

    assert silent == []


def test_no_banned_word_is_left() -> None:
    found: dict[str, set[str]] = {}
    for folder in ("src", "packages", "tests", "docs", "docs_src", "changes"):
        for path in (ROOT / folder).rglob("*.*"):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in {".py", ".js", ".md"} or path == Path(__file__):
                continue
            if name.startswith("docs/adr/"):
                continue  # decisions are not rewritten
            words = {word.lower() for word in BANNED.findall(path.read_text(encoding="utf-8"))}
            if folder.startswith("docs"):
                words.discard("parcel")  # the shop of the examples sends parcels
            if words:
                found[name] = words

    assert found == {name: words for name, (words, _) in MUST_STAY.items()}


def test_names_are_nouns_and_verbs_and_no_participles() -> None:
    participles = [
        f"{module.relative_to(ROOT)}: {name}"
        for module, tree in parsed(WORD)
        for node in ast.walk(tree)
        if (name := name_made_by(node)).strip("_").lower() in PARTICIPLES
    ]

    assert participles == []


def name_made_by(node: ast.AST) -> str:
    """Return the name that a node of a module makes, "" if it makes none."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.arg():
            return node.arg
        case ast.Name(ctx=ast.Store()):
            return node.id
        case ast.Attribute(ctx=ast.Store()):
            return node.attr
        case _:
            return ""


def parsed(pattern: re.Pattern[str]) -> Iterator[tuple[Path, ast.Module]]:
    """Parse the modules in which a pattern occurs: to walk through all of them takes a minute."""
    for module in MODULES:
        text = module.read_text(encoding="utf-8")
        if pattern.search(text):
            yield module, ast.parse(text)


def test_docstrings_open_with_what_a_thing_is_or_does() -> None:
    riddles = [
        f"{module.relative_to(ROOT)}: {text.splitlines()[0]}"
        for module, tree in parsed(OPENING)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if QUESTION.match(text := ast.get_docstring(node) or "")
    ]

    assert riddles == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists(package: str) -> None:
    module = importlib.import_module(package)

    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []


def test_git_does_not_ignore_the_sources() -> None:
    root = SOURCE.parents[1]
    done = subprocess.run(
        ["git", "check-ignore", "src/lib/errors.py"], cwd=root, capture_output=True, check=False
    )

    assert done.returncode == 1 or not (root / ".git").exists()
