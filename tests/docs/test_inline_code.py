"""Calls within the sentences of a page: their arguments exist, and the models that they name."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lib
import lib_server
from lib.llm.models import check_model

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/*.md")]
    if "api" not in page.parts and page.name != "CHANGELOG.md"  # made from the code; of the past
]
BLOCK = re.compile(r"```.*?```", re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
CALL = re.compile(r"(?<![\w.])(\w+)\(")
KEYWORD = re.compile(r"(\w+)\s*=(?!=)")
NESTED = re.compile(r"\"[^\"]*\"|'[^']*'|\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)")
EXAMPLES = {"provider:model", "antropic:claude-sonnet-4-5"}  # any; one that is shown with its error
MODEL = re.compile(r"\b(?:Agent|open_client)\(\s*\"([^\"…]+)\"")


def public() -> dict[str, list[Any]]:
    """Return what every public package exports, by name."""
    found: dict[str, list[Any]] = {}
    for top in (lib, lib_server):
        packages = [each.name for each in pkgutil.iter_modules(top.__path__) if each.ispkg]
        for name in ["", *(f".{each}" for each in packages if not each.startswith("_"))]:
            package = importlib.import_module(top.__name__ + name)
            for each in getattr(package, "__all__", ()):
                found.setdefault(each, []).append(getattr(package, each))
    return found


def calls(page: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the calls that stand in a page's sentences: text, name, and keywords."""
    for span in SPAN.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        for call in CALL.finditer(span):
            arguments = span[call.end() :]
            while (flat := NESTED.sub("", arguments)) != arguments:
                arguments = flat
            yield span, call[1], KEYWORD.findall(arguments.partition(")")[0])


def takes(value: Any, keywords: list[str]) -> bool:
    parameters = inspect.signature(value).parameters
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values()) or (
        parameters.keys() >= set(keywords)
    )


def test_calls_in_sentences_have_arguments_that_exist() -> None:
    names = public()
    found = [(page, *call) for page in PAGES for call in calls(page) if call[1] in names]

    wrong = [
        f"{page.relative_to(ROOT)}: {span}"
        for page, span, name, keywords in found
        if not any(takes(each, keywords) for each in names[name])
    ]
    assert wrong == []
    assert len(found) > 100


def test_models_on_pages_have_names_that_can_be_opened() -> None:
    named = [name for page in PAGES for name in MODEL.findall(page.read_text(encoding="utf-8"))]

    assert set(named) > EXAMPLES
    for name in set(named) - EXAMPLES:
        check_model(name)
