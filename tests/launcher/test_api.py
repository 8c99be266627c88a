"""`from launcher import …` as a user of the library meets it."""

from __future__ import annotations

import doctest
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ["JobSpec", "Site", "plan", "render", "submit", "Run", "RankEnv", "executor"]
MODULES = [
    "launcher.planning.planner",
    "launcher.planning.render",
    "launcher.api.run",
    "launcher.api.submit",
    "launcher.submission.submit",
    "launcher.ranks",
    "launcher.executors.executor",
    "launcher.config.site",
]


def in_a_python_of_its_own(code: str, folder: Path) -> str:
    words = [sys.executable, "-W", "error", "-c", code]
    answer = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_every_name_whatever_was_imported_before(tmp_path: Path) -> None:
    """A submodule named as a function would win over it once it is imported."""
    check = "; ".join(f"assert callable({name}), {name}" for name in NAMES)
    lines = [f"from launcher import {', '.join(NAMES)}; {check}"]
    for name, module in itertools.product(NAMES, MODULES):
        lines.append(
            f"fresh(); import {module}; from launcher import {name}; assert callable({name}), {name}"
        )
        lines.append(
            f"fresh(); from launcher import {name}; import {module}; assert callable({name}), {name}"
        )
        lines.append(f"import launcher; assert callable(launcher.{name})")
    fresh = (
        "import sys\n"
        "def fresh():\n"
        "    for name in [name for name in sys.modules if name.partition('.')[0] == 'launcher']:\n"
        "        del sys.modules[name]\n"
    )
    in_a_python_of_its_own(fresh + "\n".join(lines), tmp_path)


def test_what_it_offers_is_listed(tmp_path: Path) -> None:
    assert set(NAMES) <= set(
        in_a_python_of_its_own("import launcher; print(*dir(launcher))", tmp_path).split()
    )
    in_a_python_of_its_own("from launcher import *; plan, render, submit", tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    code = "import launcher\ntry: launcher.subnit\nexcept AttributeError as error: print(error)"
    assert in_a_python_of_its_own(code, tmp_path) == "module 'launcher' has no attribute 'subnit'\n"


def test_the_example_of_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.api import submit as api

    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(api)
    assert results.attempted > 5 and results.failed == 0


def test_its_version_is_the_package_s(tmp_path: Path) -> None:
    check = "assert launcher.__version__ == importlib.metadata.version('castoff')"
    early = "import sys, launcher; assert 'importlib.metadata' not in sys.modules; import importlib.metadata"
    in_a_python_of_its_own(f"{early}; {check}; assert '__version__' in dir(launcher)", tmp_path)
