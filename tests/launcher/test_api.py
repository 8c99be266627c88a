"""`from castoff import …` as a user of the library meets it."""

from __future__ import annotations

import doctest
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ["JobSpec", "Site", "plan", "render", "submit", "Run", "RankEnv", "executor"]
MODULES = [
    "castoff.launcher.planning.planner",
    "castoff.launcher.planning.render",
    "castoff.launcher.api.run",
    "castoff.launcher.api.submit",
    "castoff.launcher.submission.submit",
    "castoff.launcher.ranks",
    "castoff.launcher.executors.executor",
    "castoff.launcher.config.site",
]


def in_a_python_of_its_own(code: str, folder: Path) -> str:
    words = [sys.executable, "-W", "error", "-c", code]
    answer = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_every_name_whatever_was_imported_before(tmp_path: Path) -> None:
    """A submodule named as a function would win over it once it is imported."""
    check = "; ".join(f"assert callable({name}), {name}" for name in NAMES)
    lines = [f"from castoff import {', '.join(NAMES)}; {check}"]
    for name, module in itertools.product(NAMES, MODULES):
        lines.append(f"fresh(); import {module}; from castoff import {name}; assert callable({name}), {name}")
        lines.append(f"fresh(); from castoff import {name}; import {module}; assert callable({name}), {name}")
        lines.append(f"import castoff; assert callable(castoff.{name})")
    fresh = (
        "import sys\n"
        "def fresh():\n"
        "    for name in [name for name in sys.modules if name.partition('.')[0] == 'castoff']:\n"
        "        del sys.modules[name]\n"
    )
    in_a_python_of_its_own(fresh + "\n".join(lines), tmp_path)


def test_what_it_offers_is_listed(tmp_path: Path) -> None:
    assert set(NAMES) <= set(in_a_python_of_its_own("import castoff; print(*dir(castoff))", tmp_path).split())
    in_a_python_of_its_own("from castoff import *; plan, render, submit", tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    code = "import castoff\ntry: castoff.subnit\nexcept AttributeError as error: print(error)"
    assert in_a_python_of_its_own(code, tmp_path) == "module 'castoff' has no attribute 'subnit'\n"


def test_the_example_of_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from castoff.launcher.api import submit as api

    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(api)
    assert results.attempted > 5 and results.failed == 0


def test_its_version_is_the_package_s(tmp_path: Path) -> None:
    check = "assert castoff.__version__ == importlib.metadata.version('castoff')"
    early = "import sys, castoff; assert 'importlib.metadata' not in sys.modules; import importlib.metadata"
    in_a_python_of_its_own(f"{early}; {check}; assert '__version__' in dir(castoff)", tmp_path)
