"""A rank of a training system that leaves word of where it found itself.

`python -m tests.systems.rank NAME` does what `python -m castoff.trainers.NAME config.yaml` does, and with a
port what a program does that makes two ranks itself. The folder of the training is the working directory, and
rank N writes `rank-N.json` there once it has trained.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import spawn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.stopping import StoppedEarly
from tests.systems.systems import SYSTEMS

CONFIG = "config.yaml"


def commanded(name: str) -> None:
    """As its command line has it."""
    before = _found()
    sys.argv[1:] = [CONFIG]
    runpy.run_module(SYSTEMS[name].module, run_name="__main__", alter_sys=True)
    _tell(before)


def called(name: str, folder: Path) -> None:
    """As a function, which its users submit, or call on ranks of their own."""
    os.chdir(folder)
    before = _found()
    system = SYSTEMS[name]
    system.train(system.load(Path(CONFIG)))
    _tell(before)


def stopped(name: str, folder: Path) -> None:
    """The same, asked to stop before its first step: it saves what it begins with."""
    (folder / "stop").touch()
    os.environ["CASTOFF_STOP_FILE"] = str(folder / "stop")
    with suppress(StoppedEarly):
        called(name, folder)


def spawned(rank: int, name: str, world_size: int, port: int) -> None:
    """As a child of torch.multiprocessing.spawn, which tells its children nothing but their rank."""
    before = _found() | {"rank": rank, "world_size": world_size}
    system = SYSTEMS[name]
    initialize_ddp(rank, world_size, "127.0.0.1", port, device="cpu")
    trainer = system.trainer()(rank, system.load(Path(CONFIG)))
    training, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    cleanup_ddp()
    _tell(before)


def spawning(name: str, port: int) -> None:
    """As a program that makes two of them."""
    spawn(spawned, args=(name, 2, port), nprocs=2)


def _found() -> dict[str, Any]:
    """Where this rank finds itself, before the system has looked."""
    me = RankEnv.detect()
    return {
        "rank": me.rank,
        "world_size": me.world_size,
        "launcher": me.launcher,
        "environ": dict(os.environ),
        "process": multiprocessing.current_process().name,
        "host": socket.gethostname(),
    }


def _tell(found: dict[str, Any]) -> None:
    reported = {**found, "threads": torch.get_num_threads()}
    Path(f"rank-{found['rank']}.json").write_text(json.dumps(reported))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        spawning(sys.argv[1], int(sys.argv[2]))
    else:
        commanded(sys.argv[1])
