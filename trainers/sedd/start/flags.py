"""The flags of `castoff train sedd`, and the fields that they set."""

from __future__ import annotations

import argparse

from trainers.configuration.section import DEVICES
from trainers.program.flags import WANDB, CommandLine, Flag, Group, Refused, Table, at_least
from trainers.sedd.start.words import in_own_words

PREDICTORS = {"rigorous": "analytic", "simple": "euler"}
"""What the sampling methods are called in the configuration."""


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1024 <= number < 65536:
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes a port from 1024 to 65535")
    return number


LAYOUT = (
    Flag("nnodes", None, "N", "hosts; default: 1", at_least(1)),
    Flag("node_rank", None, "N", "this host's number, from 0", at_least(0)),
    Flag(
        *(
            "nproc_per_node",
            None,
            "N",
            "ranks on each host; default: one for each device that torch sees, else 1",
        ),
        type=at_least(1),
    ),
)
"""Which ranks this command starts."""

TABLE: Table = (
    Flag("work_dir", "training.work_dir", "DIR", "the run's own folder is made in it; default: trained"),
    Flag("datafile", "data.datafile", "FILE", "proteins; default: made-up ones"),
    Flag(
        *("epochs", "training.epochs", "N", "train for so many; training.n_iters of CONFIG is dropped", int),
        drops="training.n_iters",
    ),
    Flag("seed", "training.seed", "N", "from which everything random follows", int),
    Flag("device", "training.device", None, "default: auto, what torch has", choices=DEVICES),
    Flag(
        *("sampling_method", "sampling.predictor", None),
        "how proteins are generated: rigorous is sampling.predictor: analytic, simple is euler",
        choices=tuple(PREDICTORS),
        sets=lambda method: {"sampling.predictor": PREDICTORS[method]},
    ),
    Flag(
        *("resume_checkpoint", "training.resume_checkpoint", "DIR"),
        "begin with the checkpoint of another run, as long as this one has none of its own",
    ),
    Flag("master_addr", "parallel.master_addr", "HOST", "rendezvous host, where no launcher sets it: host 0"),
    Flag(
        "master_port",
        "parallel.master_port",
        "PORT",
        "a port there, from 1024 on; default: 20000",
        _port,
    ),
    *WANDB,
    Group(
        "ranks",
        "Only where no launcher has made this process a rank already: then these must agree with it. On "
        "several hosts, start the same command on each, with a --node_rank of its own and host 0 as "
        "--master_addr.",
        LAYOUT,
    ),
    Refused(
        "cluster",
        "a rank finds out by itself where it runs; for a job on a cluster, castoff submit JOB --site NAME "
        "writes and sends it (castoff sites lists them)",
    ),
)

COMMAND_LINE = CommandLine(
    "sedd",
    "Train a score-entropy diffusion of proteins.",
    TABLE,
    without="without one every field has its default",
    example="training.n_iters=3000",
    own_words=in_own_words,
)
