"""How much more two ranks train of the diffusion of proteins than one: `python -m tests.bench.scaling`.

A training on one rank and one on two are alive at the same time, each rank with one thread, and take turns
of a few steps, in an order that changes: a machine that is busy slows both. A rank's step is as large in
both, so two ranks do twice as much in the same time where they scale perfectly.
"""

from __future__ import annotations

import os
import random
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.utils.data import Dataset

from launcher.ranks import RankEnv
from tests.bench.training import Ratio, machine, versions
from trainers.program import train
from trainers.sedd.alphabet import MASK
from trainers.sedd.data import Protein, ProteinBatch, sample
from trainers.sedd.task import SeddTask
from trainers.task import Loss, Splits

CHECKOUT = Path(__file__).resolve().parents[2]
WORLDS = (1, 2)
ROUNDS = 41
STEPS = 3
"""Of a turn."""
BATCH_SIZE, LENGTH = 16, 256
"""Proteins of a rank's step, and residues of each."""
BAR = 1.2
ELSEWHERE = 1.8
"""What the guide to the UniRef50 trainer that this one follows expects of two GPUs."""


class Even(Dataset[Protein]):
    """Random residues, as many in each protein."""

    draws_from = ("torch",)

    def __init__(self, number: int):
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Protein:
        return sample(numpy.random.default_rng(index).integers(MASK, size=LENGTH, dtype=numpy.uint8), LENGTH)


class InTurns(SeddTask):
    """Makes as many steps as it is told to, and stands before the next; 0: it goes on to the end."""

    def __init__(self, conductor: Connection, steps: int):
        super().__init__()
        self._conductor = conductor
        self._steps = steps
        self._left = 0

    def build_data(self) -> Splits:
        world_size = RankEnv.detect().world_size
        return Splits(Even(self._steps * BATCH_SIZE * world_size), Even(0), Even(0))

    def loss(self, model: nn.Module, batch: ProteinBatch) -> Loss:
        if self._left == 0:
            self._conductor.send(None)
            self._left = self._conductor.recv()
        self._left -= 1
        return super().loss(model, batch)


def rank(address: str, folder: str, steps: int) -> None:
    """What each rank does."""
    me = RankEnv.detect()
    with Client(address) as conductor:
        conductor.send(me.world_size)
        config = {
            "name": f"on-{me.world_size}",
            "training": {
                "path": folder,
                "num_steps": steps,
                "batch_size": BATCH_SIZE,
                "device": "cpu",
                "optimizer_type": torch.optim.AdamW,
                "optimizer_kwargs": {"lr": 1e-3},
                "ema_decay": 0.999,
                "clip_grad_norm": 1.0,
                "log_every": 50,
            },
        }
        train(config, InTurns(conductor, steps))


def measured(rounds: int, turn: int = STEPS) -> dict[int, list[float]]:
    """Seconds of each turn of so many steps, by the number of ranks.

    Raises:
        SystemExit: a training failed.
    """
    steps = (rounds + 1) * turn
    shuffled = random.Random(0)
    taken: dict[int, list[float]] = {world: [] for world in WORLDS}
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/turns")
        listener.listen()
        with _started(f"{folder}/turns", folder, steps) as processes:
            ranks = _connected(listener, processes)
            for number in range(rounds + 1):
                for world in shuffled.sample(WORLDS, len(WORLDS)):
                    began = time.perf_counter()
                    for connection in ranks[world]:
                        connection.send(turn if number < rounds else steps)
                    if number < rounds:
                        _all_stand(ranks[world])
                    if 0 < number < rounds:  # the first turn fills caches
                        taken[world].append(time.perf_counter() - began)
    return taken


def _connected(
    listener: socket.socket, processes: list[subprocess.Popen[str]]
) -> dict[int, list[Connection]]:
    """The ranks by their number, when all stand before their first step."""
    ranks: dict[int, list[Connection]] = {world: [] for world in WORLDS}
    while sum(map(len, ranks.values())) < sum(WORLDS):
        if select.select([listener], [], [], 1.0)[0]:
            connection: Connection = Connection(listener.accept()[0].detach())
            ranks[connection.recv()].append(connection)
        elif any(process.poll() is not None for process in processes):
            raise _NeverCame
    for connections in ranks.values():
        _all_stand(connections)
    return ranks


class _NeverCame(Exception):
    """A training ended before it began."""


def _all_stand(connections: list[Connection]) -> None:
    for connection in connections:
        connection.recv()


@contextmanager
def _started(address: str, folder: str, steps: int) -> Iterator[list[subprocess.Popen[str]]]:
    """A training for each number of ranks; they end by themselves."""
    castoff = str(Path(sys.executable).with_name("castoff"))
    program = [sys.executable, "-m", "tests.bench.scaling", "rank", address, folder, str(steps)]
    started = [
        subprocess.Popen(
            [castoff, "launch", "-n", str(world), "--", *program],
            cwd=CHECKOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for world in WORLDS
    ]
    with suppress(_NeverCame, EOFError, ConnectionError):
        try:
            yield started
        except BaseException:
            for process in started:
                process.terminate()
            raise
    said = [process.communicate()[0] for process in started]
    for process, words in zip(started, said, strict=True):
        if process.returncode != 0:
            raise SystemExit(f"a training ended with {process.returncode}:\n{words}")


def table(taken: dict[int, list[float]], turn: int = STEPS) -> list[str]:
    """What came out."""
    alone, together = (taken[world] for world in WORLDS)
    gain = Ratio.of([2 * seconds for seconds in alone], together)
    rows = [
        f"{world} rank{'s' * (world > 1)}: {statistics.median(seconds) / turn * 1e3:.0f} ms a step, "
        f"{world * BATCH_SIZE * LENGTH * turn / statistics.median(seconds):,.0f} residues per second"
        for world, seconds in taken.items()
    ]
    verdict = "met" if gain.median >= BAR else "NOT MET"
    return [
        *rows,
        f"gain of two ranks, median of {len(alone)} rounds (10th to 90th percentile): {gain}, "
        f"bar {BAR}: {verdict}; expected of two GPUs elsewhere: {ELSEWHERE}",
    ]


def main(rounds: int) -> None:
    """Measure, and print what came out."""
    print(
        f"The tiny diffusion on one rank and on two, one thread each: {BATCH_SIZE} x {LENGTH} residues a step"
    )
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; {versions()}", flush=True)
    print("\n".join(table(measured(rounds))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
