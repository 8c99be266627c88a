"""Generate proteins: `python -m castoff.trainers.sedd.generate trained/sedd --number 100`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from castoff.trainers.checkpointing.checkpoints import Checkpoints, has_part, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.section import DEVICES
from castoff.trainers.distributed.device_choice import choose_device
from castoff.trainers.distributed.errors import DistributedError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import seed_all
from castoff.trainers.program.parser import Parser
from castoff.trainers.sedd.alphabet import decode
from castoff.trainers.sedd.task import SeddTask
from castoff.trainers.task.configured_task import task_of

_PROGRAM = "python -m castoff.trainers.sedd.generate"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write FASTA to standard output. If that fails, print the error and exit."""
    options = _parser().parse_args(arguments)
    try:
        for line in generated(options):
            print(line, flush=True)
    except (ConfigError, CheckpointError, DistributedError, OSError) as error:
        lines = str(error).replace("training.device", "--device").splitlines()
        sys.exit("\n".join(f"{_PROGRAM}: {line}" for line in lines))
    except KeyboardInterrupt:
        sys.exit(130)


def generated(options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of FASTA that the command line asks for.

    Raises:
        ConfigError: the folder is not a run's, or the run trained something else.
        CheckpointError: the run has no intact checkpoint.
        DistributedError: the device does not exist.
    """
    task = _task(options)
    device = choose_device(options.device, 0)
    checkpoint = _checkpoint(options.run)
    seed_all(options.seed)
    model = task.build_model()
    model.load_state_dict(load_part(checkpoint, "ema" if has_part(checkpoint, "ema") else "model"))
    model.to(device).eval()
    lengths = [options.length] * options.number if options.length else _usual_lengths(task, options.number)
    generator = torch.Generator(device).manual_seed(options.seed)
    number = 0
    for first in range(0, len(lengths), options.batch_size):
        batch = lengths[first : first + options.batch_size]
        for protein in task.generate(model, batch, generator):
            number += 1
            yield f">sedd_{number} {checkpoint.name} seed={options.seed} length={len(protein)}"
            yield decode(protein)


def _task(options: argparse.Namespace) -> SeddTask:
    """The run's task, with the command line's settings of sampling."""
    path = options.run / "config.yaml"
    if not path.is_file():
        raise ConfigError(
            [f"is not a run's folder: it has no {path.name}; pass the folder that the training's log names"],
            str(options.run),
        )
    settings = {"predictor": options.predictor, "steps": options.steps}
    overrides = [
        f"task_kwargs.sampling.{name}={value}" for name, value in settings.items() if value is not None
    ]
    task = task_of(Config.load(path, overrides))
    if not isinstance(task, SeddTask):
        raise ConfigError([f"has trained a {type(task).__name__}, not a SeddTask"], str(options.run))
    return task


def _checkpoint(run: Path) -> Path:
    checkpoints = Checkpoints(run / "checkpoints")
    checkpoint = checkpoints.best() or checkpoints.newest()
    if checkpoint is None:
        raise CheckpointError(f"{run / 'checkpoints'} has no checkpoint yet; train first")
    return checkpoint


def _usual_lengths(task: SeddTask, number: int) -> list[int]:
    try:
        task.setup(RankContext(0, 1, torch.device("cpu"), alone=True))
    except (ConfigError, OSError) as error:
        raise ConfigError(
            [f"{error}; without the training proteins, set the length of the proteins: --length 200"],
            "--length",
        ) from error
    return task.usual_lengths(number)


def _whole(least: int, most: float = math.inf) -> Any:
    takes = f"of at least {least}" if most == math.inf else f"from {least} to {most}"

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"is {text!r}, but takes a whole number {takes}")
        return int(text)

    return number


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="Generate proteins with the best model of a training run, with averaged weights if "
        "there are any, and write them as FASTA. The same arguments give the same proteins "
        "on the same kind of device; another --batch_size gives different ones.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's folder, such as trained/sedd")
    parser.add_argument(
        "--number", type=_whole(1), default=10, metavar="N", help="number of proteins; default 10"
    )
    parser.add_argument(
        "--length",
        type=_whole(1),
        metavar="N",
        help="residues of each protein; default: drawn from training proteins",
    )
    parser.add_argument(
        "--steps", type=_whole(1), metavar="N", help="steps of sampling; default: as configured"
    )
    parser.add_argument("--predictor", choices=("euler", "analytic"), help="default: as configured")
    parser.add_argument("--seed", type=_whole(0, 2**63 - 1), default=0, metavar="N", help="default 0")
    parser.add_argument(
        "--batch_size", type=_whole(1), default=32, metavar="N", help="proteins generated at once; default 32"
    )
    parser.add_argument("--device", choices=DEVICES, default="auto", help="default auto")
    return parser


if __name__ == "__main__":
    main()
