"""Trains a toy whose ranks are killed at any time: `python -m tests.systems.killed STEPS`.

Each rank, with its loader workers, holds a lock on a file of its attempt for as long as it lives. One that
finds the lock of an earlier attempt held, leaves a file `overlap`: that attempt was still alive.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from trainers.program.importing import without_collections

with without_collections():
    from tests.trainers.toys import Toy, config, digest
    from trainers.program.training import train

SAVED_EVERY = 5
"""Steps."""


def learned(path: str, steps: int) -> str | None:
    """What the weights came to, on rank 0."""
    fields = config(path, num_epochs=None, num_steps=steps, checkpoint_every_steps=SAVED_EVERY, num_workers=1)
    trained = train(fields, Toy(pause=0.02))
    if trained.measures is None:
        return None
    return f"{digest(trained.trainer.model)} after {trained.trainer.step} steps"


def show_that_it_lives(attempt: int) -> int:
    """Hold this attempt's lock, whose descriptor it gives, and look at those of earlier ones."""
    mine = os.open(f"alive-{attempt}", os.O_RDWR | os.O_CREAT)
    fcntl.flock(mine, fcntl.LOCK_SH)
    for earlier in range(attempt):
        before = os.open(f"alive-{earlier}", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(before, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Path("overlap").write_text(f"attempt {earlier} lived when {attempt} began\n")
        os.close(before)
    return mine


if __name__ == "__main__":
    alive = show_that_it_lives(int(os.environ["CASTOFF_ATTEMPT"]))
    weights = learned("trained", int(sys.argv[1]))
    if weights is not None:
        print("weights", weights)
