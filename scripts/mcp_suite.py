"""The conformance suite of the Model Context Protocol, from npm, in .peers/mcp (not committed)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".peers" / "mcp"
_PACKAGES = ["node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12"]
_SUITE = PLACE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
_NODE = PLACE / "node_modules/node/bin/node"
_SCENARIO = re.compile(r"^  - (\S+) \[(.*)\]$", re.MULTILINE)


def install() -> None:
    """Install the suite and the Node.js that it needs, unless they are there."""
    if not (_SUITE.exists() and _NODE.exists()):
        PLACE.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", *_PACKAGES]
        subprocess.run(install, cwd=PLACE, check=True)


def output(*arguments: str) -> str:
    """Return what the suite prints."""
    path = os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [_NODE, _SUITE, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=PLACE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def scenarios(side: str) -> list[tuple[str, list[str]]]:
    """Return the scenarios for one side, "Client" or "Server", each with its revisions."""
    listed = output("list").partition(f"{side} scenarios")[2].partition("\n\n")[0]
    return [(name, revisions.split(",")) for name, revisions in _SCENARIO.findall(listed)]
