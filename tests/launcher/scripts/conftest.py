"""Benches to run scripts on, and golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from .harness import Bench

pytest.register_assert_rewrite(f"{__package__}.hostile_checks", f"{__package__}.hostile_nodes")

GOLDEN = Path(__file__).parents[1] / "golden"


class Benches(Protocol):
    def __call__(self, kind: str, folder: str = "here") -> Bench: ...


@pytest.fixture
def bench(tmp_path: Path, system_program: Callable[[str, str], Path], for_real: None) -> Benches:
    """`bench("hydra")`: a folder, and a faked PBS or Slurm with a real or a stub launcher."""
    return lambda kind, folder="here": Bench(tmp_path, kind, system_program, folder)


@pytest.fixture
def same_as_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with its golden file; one that is missing is a failure, never written silently."""
    update = request.config.getoption("--update-golden", default=False)

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.write_text(text)
        assert path.is_file(), f"no golden file {name}: pytest --update-golden"
        assert text == path.read_text(), f"{name} has changed: review, then --update-golden"

    return compare
