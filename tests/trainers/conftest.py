"""What all tests of trainings have in common."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import torch

from castoff.trainers.distributed import termination

THREADS = int(os.environ.get("CASTOFF_TESTS_THREADS", "1"))
"""Read once, before a test has its clean environment."""


@pytest.fixture(autouse=True, scope="session")
def _few_threads() -> None:
    """Several test processes share a few cores: threads that wait for each other make small things slow."""
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def _no_term_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an earlier test in this process, which ranks that wait would take for their own."""
    monkeypatch.setattr(termination, "_noticed", None)


@pytest.fixture(autouse=True)
def _own_log_lines() -> Iterator[None]:
    """What a training sets of the trainers' logger ends with its test: others count the lines of theirs."""
    ours = logging.getLogger("castoff.trainers")
    level, handlers = ours.level, ours.handlers[:]
    yield
    ours.setLevel(level)
    ours.handlers[:] = handlers
