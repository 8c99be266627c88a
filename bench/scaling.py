"""How much more several ranks train than one: `python -m bench.scaling [dpo|gnn|sedd] [ROUNDS]`.

A training on one rank, and others on more, are alive at the same time, each rank with one thread, and take
turns of a few steps, in an order that changes: a machine that is busy slows all. A rank's step is as large
in each, so two ranks do twice as much in the same time where they scale perfectly.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy
import torch
from torch import nn
from torch.utils.data import Dataset
from torch_geometric.data import Data

from bench.training import Ratio, machine, versions
from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.dpo.alphabet import RESIDUES
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.weights import Loaded
from castoff.trainers.dpo.samples.batch import Sample
from castoff.trainers.dpo.task import DpoTask
from castoff.trainers.gnn.causets.samples import sample
from castoff.trainers.gnn.causets.settings import Causets
from castoff.trainers.gnn.defaults import with_defaults
from castoff.trainers.gnn.task import GraphTask
from castoff.trainers.program.training import train
from castoff.trainers.sedd import data
from castoff.trainers.sedd.alphabet import MASK
from castoff.trainers.sedd.data import Protein
from castoff.trainers.sedd.task import SeddTask
from castoff.trainers.task import Loss, Splits, Task

CHECKOUT = Path(__file__).resolve().parents[1]
ROUNDS = 41
STEPS = 3
"""Of a turn."""


class InTurns(Task):
    """Makes as many steps as it is told to, and stands before the next; 0: it goes on to the end."""

    conductor: Connection
    _left = 0

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if self._left == 0:
            self.conductor.send(None)
            self._left = self.conductor.recv()
        self._left -= 1
        return super().loss(model, batch)  # type: ignore[safe-super]  # a system's


class Even(Dataset[Any]):
    """Random samples, all of the same length."""

    rng_sources = ("torch",)

    def __init__(self, number: int, sample: Callable[[int], Any]):
        self.number = number
        self.sample = sample

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Any:
        return self.sample(index)


class Diffusion(InTurns, SeddTask):
    """Of proteins: the tiny network."""

    def __init__(self, samples: int, config: Config):
        super().__init__()
        self._samples = samples

    def build_data(self) -> Splits:
        return splits(self._samples, _protein)


class Preferences(InTurns, DpoTask):
    """Of sequences for backbones: the network at its standard size."""

    def __init__(self, samples: int, config: Config):
        super().__init__(data={"train_data": "random"}, base_model={"dir": "random"})
        self._samples = samples

    def setup(self, context: RankContext) -> None:
        self._base, self._digests = Loaded(InverseFolding(dropout=0.0), 0.0), {}

    def build_data(self) -> Splits:
        return splits(self._samples, _pair)


class Causality(InTurns, GraphTask):
    """Of causal sets: the network that is trained on generated ones."""

    def __init__(self, samples: int, config: Config):
        super().__init__(with_defaults(msgspec.structs.replace(config, data={"causets": {}})))
        self._samples = samples

    def build_data(self) -> Splits:
        return splits(self._samples, lambda index: _graph(index % 64))


def splits(number: int, sample: Callable[[int], Any]) -> Splits:
    """So many samples to train on, and none for anything else."""
    return Splits(Even(number, sample), Even(0, sample), Even(0, sample))


def _protein(index: int) -> Protein:
    length = SYSTEMS["sedd"].length
    return data.sample(numpy.random.default_rng(index).integers(MASK, size=length, dtype=numpy.uint8), length)


def _pair(index: int) -> Sample:
    """Two random sequences on a random walk."""
    length = SYSTEMS["dpo"].length
    generator = torch.Generator().manual_seed(index)
    walk = 2.2 * torch.randn(length, 1, 3, generator=generator).cumsum(0)
    everywhere = torch.ones(length, dtype=torch.bool)
    return Sample(
        walk + torch.randn(length, 4, 3, generator=generator),
        everywhere,
        torch.zeros(length, dtype=torch.int64),
        torch.arange(length),
        torch.randint(len(RESIDUES), (2, length), generator=generator),
        everywhere,
        torch.randperm(length, generator=generator),
        torch.zeros(2),
    )


@cache
def _graph(index: int) -> Data:
    """A sprinkling."""
    length = SYSTEMS["gnn"].length
    return sample(Causets(size=(length, length), kinds={"sprinkled": 1.0}), 0, index)


class System(NamedTuple):
    """What is trained."""

    task: Callable[[int, Config], InTurns]
    """Makes it with so many samples."""
    what: str
    batch_size: int
    """Samples of a rank's step."""
    length: int
    """Residues or elements of each."""
    parts: str
    """Which of the two."""
    worlds: tuple[int, ...]
    """Numbers of ranks."""
    bar: float | None
    """What two ranks have to gain."""
    elsewhere: str
    """What the guides to the trainers that these follow expect."""


SYSTEMS = {
    "sedd": System(
        *(Diffusion, "The tiny diffusion of proteins", 16, 256, "residues"),
        *((1, 2), 1.2, "1.8 of two GPUs"),
    ),
    "gnn": System(
        *(Causality, "The network on causal sets", 32, 64, "elements"),
        *((1, 2, 4), None, "no figure: the guide has none"),
    ),
    "dpo": System(
        *(Preferences, "Preferences of sequences, the standard network", 1, 150, "residues"),
        *((1, 2, 4), None, "3.3 of four GPUs, the time of an epoch"),
    ),
}


def rank(name: str, address: str, folder: str, steps: int) -> None:
    """What each rank does."""
    me, system = RankEnv.detect(), SYSTEMS[name]
    with Client(address) as conductor:
        conductor.send(me.world_size)
        config = {
            "name": f"on-{me.world_size}",
            "training": {
                "path": folder,
                "num_steps": steps,
                "batch_size": system.batch_size,
                "device": "cpu",
                "optimizer_type": torch.optim.AdamW,
                "optimizer_kwargs": {"lr": 1e-3},
                "ema_decay": 0.999,
                "clip_grad_norm": 1.0,
                "log_every": 50,
            },
        }
        read = Config.of(config)
        task = system.task(steps * system.batch_size * me.world_size, read)
        task.conductor = conductor
        train(read, task)


def measured(name: str, rounds: int, turn: int = STEPS) -> dict[int, list[float]]:
    """Seconds of each turn of so many steps, by the number of ranks.

    Raises:
        SystemExit: a training failed.
    """
    steps, worlds = (rounds + 1) * turn, SYSTEMS[name].worlds
    shuffled = random.Random(0)
    taken: dict[int, list[float]] = {world: [] for world in worlds}
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/turns")
        listener.listen()
        with _started(name, f"{folder}/turns", folder, steps) as processes:
            ranks = _connected(listener, processes, worlds)
            for number in range(rounds + 1):
                for world in shuffled.sample(worlds, len(worlds)):
                    began = time.perf_counter()
                    for connection in ranks[world]:
                        connection.send(turn if number < rounds else steps)
                    if number < rounds:
                        _all_stand(ranks[world])
                    if 0 < number < rounds:  # the first turn fills caches
                        taken[world].append(time.perf_counter() - began)
    return taken


def _connected(
    listener: socket.socket, processes: list[subprocess.Popen[str]], worlds: Sequence[int]
) -> dict[int, list[Connection]]:
    """The ranks by their number, when all stand before their first step."""
    ranks: dict[int, list[Connection]] = {world: [] for world in worlds}
    while sum(map(len, ranks.values())) < sum(worlds):
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
def _started(name: str, address: str, folder: str, steps: int) -> Iterator[list[subprocess.Popen[str]]]:
    """A training for each number of ranks; they end by themselves."""
    castoff = str(Path(sys.executable).with_name("castoff"))
    program = [sys.executable, "-m", "bench.scaling", "rank", name, address, folder, str(steps)]
    started = [
        subprocess.Popen(
            [castoff, "launch", "-n", str(world), "--", *program],
            cwd=CHECKOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for world in SYSTEMS[name].worlds
    ]
    with suppress(_NeverCame, EOFError, ConnectionError):
        try:
            yield started
        except BaseException:
            for process in started:
                process.terminate()
            raise
    outputs = [process.communicate()[0] for process in started]
    for process, words in zip(started, outputs, strict=True):
        if process.returncode != 0:
            raise SystemExit(f"a training ended with {process.returncode}:\n{words}")


def table(name: str, taken: dict[int, list[float]], turn: int = STEPS) -> list[str]:
    """What came out."""
    system = SYSTEMS[name]
    parts = system.batch_size * system.length * turn
    rows = [
        f"{world} rank{'s' * (world > 1)}: {statistics.median(seconds) / turn * 1e3:.0f} ms a step, "
        f"{world * parts / statistics.median(seconds):,.0f} {system.parts} per second"
        for world, seconds in taken.items()
    ]
    for world in system.worlds[1:]:
        gain = Ratio.of([world * seconds for seconds in taken[1]], taken[world])
        verdict = ""
        if world == 2 and system.bar is not None:
            verdict = f", bar {system.bar}: {'met' if gain.median >= system.bar else 'NOT MET'}"
        rows.append(
            f"gain of {world} ranks, median of {len(taken[1])} rounds (10th to 90th percentile): {gain}"
            + verdict
        )
    return [*rows, f"expected elsewhere: {system.elsewhere}"]


def main(name: str, rounds: int) -> None:
    """Measure, and print what came out."""
    system = SYSTEMS[name]
    worlds = " and ".join(map(str, system.worlds))
    step = f"{system.batch_size} x {system.length} {system.parts}"
    print(f"{system.what} on {worlds} ranks, one thread each: {step} a step of each")
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; {versions()}", flush=True)
    print("\n".join(table(name, measured(name, rounds))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        words = sys.argv[1:]
        main(words.pop(0) if words and words[0] in SYSTEMS else "sedd", int(words[0]) if words else ROUNDS)
