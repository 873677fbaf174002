"""Bytecode of test modules, compiled by workers of pytest-xdist together and not by each of them.

In a fresh clone every worker would compile every module at the same time as the others.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def compile_together(config: pytest.Config) -> None:
    """Write what is missing: each worker begins with a share of its own, then looks at the others'.

    A file that is there may be old: pytest finds out when it imports the module.
    """
    worker: dict[str, object] = getattr(config, "workerinput", {})
    if not worker or sys.dont_write_bytecode:
        return
    files = sorted(_files(config))
    begin = len(files) * int(str(worker["workerid"])[2:]) // int(str(worker["workercount"]))
    state = config.stash[rewrite.assertstate_key]
    for file in files[begin:] + files[:begin]:
        folder = rewrite.get_cache_dir(file)
        compiled = folder / (file.name.removesuffix(".py") + rewrite.PYC_TAIL)
        if not compiled.exists() and rewrite.try_makedirs(folder):
            source, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source, compiled)


def _files(config: pytest.Config) -> Iterator[Path]:
    """Return the files of tests that a run names."""
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        yield from path.rglob("test_*.py") if path.is_dir() else [path]
