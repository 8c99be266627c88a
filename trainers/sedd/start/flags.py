"""The flags of `castoff train sedd`, and the fields that they set."""

from __future__ import annotations

from typing import Annotated

import msgspec

from castoff.trainers.program.flags import WANDB, CommandLine, Flag, Kind, Refused, typed
from castoff.trainers.sedd.start.configuration import Settings
from castoff.trainers.sedd.start.ranks import add_flags
from castoff.trainers.sedd.start.words import in_own_words

PREDICTORS = {"rigorous": "analytic", "simple": "euler"}
"""The values of `sampling.predictor` by the methods' names in `--sampling_method`."""

Port = Annotated[int, msgspec.Meta(ge=1024, le=65535)]

COMMAND_LINE = CommandLine(
    "sedd",
    "Train a score-entropy diffusion of proteins.",
    (
        Flag("work_dir", "training.work_dir", "DIR"),
        Flag("datafile", "data.datafile", "FILE"),
        Flag("epochs", "training.epochs", "N", "Epochs to train.", drops="training.n_iters"),
        Flag("seed", "training.seed", "N"),
        Flag("device", "training.device"),
        Flag(
            *("sampling_method", "sampling.predictor", None),
            "How proteins are generated: rigorous is sampling.predictor: analytic, simple is euler. "
            "Default: rigorous.",
            choices=tuple(PREDICTORS),
            sets=lambda method: {"sampling.predictor": PREDICTORS[method]},
        ),
        Flag("resume_checkpoint", "training.resume_checkpoint", "DIR"),
        Flag(
            *("master_addr", "parallel.master_addr", "HOST"),
            "The host through which ranks connect, if no launcher sets it. Default: this one.",
        ),
        Flag(
            *("master_port", "parallel.master_port", "PORT"),
            *("The port there, if no launcher sets it. Default: 20000.", typed(Port)),
        ),
        *WANDB,
        Refused(
            "cluster",
            "each rank detects where it runs; to run a job on a cluster, use castoff submit JOB --site NAME "
            "(castoff sites lists the sites)",
        ),
    ),
    kinds={"sedd": Kind(Settings)},
    without="without one, every field has its default",
    example="training.n_iters=3000",
    more=add_flags,
    own_words=in_own_words,
)
