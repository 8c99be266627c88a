"""The bar: on a terminal, on rank 0, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience

pytestmark = pytest.mark.usefixtures("for_real")

SHOW = """
import sys, torch
from trainers.core.distributed import Place
from trainers.core.progress import progress

with progress(Place(int(sys.argv[1]), 2, torch.device("cpu")), "epoch 1 of 3", 10, 4) as step_is_done:
    for _ in range(6):
        step_is_done()
"""


def shown(rank: int, *, terminal: bool) -> str:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm"}
    command = [sys.executable, "-c", SHOW, str(rank)]
    error = theirs if terminal else subprocess.PIPE
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=error, timeout=patience.SECONDS, check=True
    )
    os.close(theirs)
    told = b""
    try:
        while part := os.read(ours, 4096):
            told += part
    except OSError:  # all of it was read, and nobody writes any more
        pass
    os.close(ours)
    return (told + done.stdout + (done.stderr or b"")).decode()


def test_on_a_terminal() -> None:
    text = shown(0, terminal=True)
    assert "epoch 1 of 3" in text
    assert "50%" in text or "100%" in text


@pytest.mark.parametrize(("rank", "terminal"), [(1, True), (0, False)])
def test_nowhere_else(rank: int, terminal: bool) -> None:
    assert shown(rank, terminal=terminal) == ""
