"""The core works without any one of the windows: its own tests pass where that folder is not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import CHECKOUT, FLOORS, WINDOWS

CORE = [room for floor in FLOORS["launcher"][2:] for room in floor]


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("window", WINDOWS)
def test_the_core_works_without_it(window: str, tmp_path: Path) -> None:
    """Tests that start no ranks: what these start needs no more of castoff."""
    folders = ("castoff", "launcher", "trainers", "templates", "tests", "examples", "docs")
    for name in folders:
        skip = shutil.ignore_patterns("__pycache__", window if name == "launcher" else "__pycache__")
        shutil.copytree(CHECKOUT / name, tmp_path / name, symlinks=True, ignore=skip)
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    tests = [str(folder) for room in CORE if (folder := Path("tests", "launcher", room)).is_dir()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not real and not long", *tests],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "CASTOFF_TESTS_NO_SKIPS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
