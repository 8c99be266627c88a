"""A training on a split's proteins, as a user starts it, and what it left."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from torch import nn

from bench.proteins.homology import Split
from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.sedd.start.configuration import Settings, read
from castoff.trainers.sedd.start.translation import core_config
from castoff.trainers.sedd.task import SeddTask

CONFIGURATION = Path(__file__).with_name("tiny.yaml")
RANKS = 2


class Trained(NamedTuple):
    """A network, with its averaged weights."""

    task: SeddTask
    model: nn.Module
    settings: Settings
    steps: int
    seconds: float
    """From the command's start to its end, with validations and the start of its ranks."""
    cpu: float
    """Seconds of CPU time in it, of all ranks: what a busy machine changes less."""


def trained(split: Split, folder: Path, overrides: Sequence[str] = ()) -> Trained:
    """Train on two ranks with a thread each.

    Raises:
        SystemExit: the training failed.
    """
    told = [f"training.work_dir={folder}", f"data.datafile={split.training}", *overrides]
    bin_ = Path(sys.executable).parent
    words = [str(bin_ / "castoff"), "launch", "-n", str(RANKS), "--", str(bin_ / "castoff"), "train", "sedd"]
    words += [str(CONFIGURATION), "--fresh"]
    began, busy = time.perf_counter(), _cpu_of_children()
    done = subprocess.run(
        [*words, *(word for field in told for word in ("--set", field))],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    seconds, cpu = time.perf_counter() - began, _cpu_of_children() - busy
    if done.returncode != 0:
        raise SystemExit(f"the training ended with {done.returncode}")
    settings = read(yaml.safe_load(CONFIGURATION.read_text()), overrides=told)
    task = SeddTask(**core_config(settings).task_kwargs)
    checkpoints = Checkpoints(folder / settings.name / "checkpoints")
    newest = checkpoints.newest()
    if newest is None:
        raise SystemExit(f"there is no checkpoint in {folder}")
    model = task.build_model()
    model.load_state_dict(load_part(newest, "ema"))
    return Trained(task, model.eval(), settings, int(newest.name.rpartition("-")[2]), seconds, cpu)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
