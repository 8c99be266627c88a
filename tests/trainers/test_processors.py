"""Tests of numbers hold on processors that compute otherwise than this one, and with more threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPARES = re.compile(r"\b(assert_close|assert_allclose|assert_rounded|allclose|approx)\(")


@pytest.mark.long
@pytest.mark.apart
@pytest.mark.parametrize(("capability", "threads"), [("default", 1), ("avx2", 4)])
def test_numbers(capability: str, threads: int) -> None:
    """Of all files that compare numbers. torch reads ATEN_CPU_CAPABILITY as it begins."""
    files = [path for path in sorted(HERE.rglob("test_*.py")) if COMPARES.search(path.read_text())]
    assert len(files) > 40
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ |= {"ATEN_CPU_CAPABILITY": capability, "CASTOFF_TESTS_THREADS": str(threads)}
    given = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not long and not real",
            *files,
        ],
        cwd=HERE.parents[1],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert given.returncode == 0, given.stdout[-20000:] + given.stderr
