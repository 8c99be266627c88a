"""Trains a toy whose ranks are killed at any time: `python -m tests.systems.killed STEPS`.

Each rank, with its loader workers, holds a lock on a file of its own for as long as it lives. One that finds
such a lock of an earlier attempt says so in a file `overlap`: that attempt was still alive.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from castoff.trainers.program.importing import without_collections

with without_collections():
    from castoff.trainers.program.training import train
    from tests.trainers.toys import Toy, config

SAVED_EVERY = 5
"""Steps."""


def learn(path: str, steps: int) -> None:
    """Train it in a folder."""
    fields = config(path, num_epochs=None, num_steps=steps, checkpoint_every_steps=SAVED_EVERY, num_workers=1)
    train(fields, Toy(pause=0.02))


def show_that_it_lives(attempt: int, rank: int) -> int:
    """Hold this rank's lock, whose descriptor it gives, and look at those of all ranks of earlier attempts.

    Looking takes a shared lock: two ranks that look at once are not in each other's way.
    """
    mine = os.open(f"alive-{attempt}-{rank}", os.O_RDWR | os.O_CREAT)
    fcntl.flock(mine, fcntl.LOCK_EX)
    for path in Path().glob("alive-*"):
        if int(path.name.split("-")[1]) >= attempt:
            continue
        other = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with Path("overlap").open("a") as file:
                file.write(f"{path.name} was held when {attempt}-{rank} began\n")
        os.close(other)
    return mine


if __name__ == "__main__":
    alive = show_that_it_lives(int(os.environ["CASTOFF_ATTEMPT"]), int(os.environ["RANK"]))
    learn("trained", int(sys.argv[1]))
