"""The flags of `castoff train sedd`, and the fields that they set."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from trainers.core.command_line import add_members, add_overrides, new_parser
from trainers.core.config import DEVICES
from trainers.core.flags import Field, add_fields, add_file, add_wandb, file_of, spelled, told_by, wandb_of
from trainers.sedd.start.words import in_own_words

DESCRIPTION = "Train a score-entropy diffusion of proteins."

PREDICTORS = {"rigorous": "analytic", "simple": "euler"}
"""What the sampling methods are called in the configuration."""


FIELDS = (
    Field("work_dir", "training.work_dir", "DIR", "the run's own folder is made in it; default: trained"),
    Field("datafile", "data.datafile", "FILE", "proteins; default: made-up ones"),
    Field("epochs", "training.epochs", "N", "train for so many; training.n_iters of CONFIG is dropped", int),
    Field("seed", "training.seed", "N", "from which everything random follows", int),
    Field("device", "training.device", None, "default: auto, what torch has", choices=DEVICES),
    Field(
        "sampling_method",
        "sampling.predictor",
        None,
        "how proteins are generated: rigorous is sampling.predictor: analytic, simple is euler",
        choices=tuple(PREDICTORS),
    ),
    Field(
        "resume_checkpoint",
        "training.resume_checkpoint",
        "DIR",
        "begin with the checkpoint of another run, as long as this one has none of its own",
    ),
    Field("master_addr", "parallel.master_addr", "HOST", "where ranks meet that no launcher tells: host 0"),
    Field("master_port", "parallel.master_port", "PORT", "a free port there; default: 20000", int),
)

LAYOUT = ("nnodes", "node_rank", "nproc_per_node")
"""Flags that say which ranks this command starts."""


def parser() -> argparse.ArgumentParser:
    """All flags; each with _ or - between its words."""
    made = new_parser("sedd", DESCRIPTION)
    made.description = in_own_words(made.description or "")
    add_file(made, "without one every field has its default")
    add_overrides(made, "training.n_iters=3000")
    add_members(made)
    add_fields(made, FIELDS)
    add_wandb(made)
    ranks = made.add_argument_group(
        "ranks",
        "Only where no launcher has made this process a rank already: then these must agree with it. On "
        "several hosts, start the same command on each, with a --node_rank of its own and host 0 as "
        "--master_addr.",
    )
    ranks.add_argument(*spelled("nnodes"), dest="nnodes", type=_count, metavar="N", help="hosts; default: 1")
    ranks.add_argument(
        *spelled("node_rank"), dest="node_rank", type=_number, metavar="N", help="this host's number, from 0"
    )
    ranks.add_argument(
        *spelled("nproc_per_node"),
        dest="nproc_per_node",
        type=_count,
        metavar="N",
        help="ranks on each host; default: one for each device that torch sees, else 1",
    )
    made.add_argument("--cluster", nargs="?", const="", metavar="NAME", help=argparse.SUPPRESS)
    return made


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, checked as far as that goes without a configuration; `path` is the file's."""
    made = parser()
    arguments = made.parse_args(words)
    _check(made, arguments)
    arguments.path = file_of(made, arguments)
    arguments.wandb = wandb_of(made, arguments)
    return arguments


def told(arguments: argparse.Namespace) -> dict[str, Any]:
    """What flags say, by the fields' paths."""
    found: dict[str, Any] = {**told_by(arguments, FIELDS), **arguments.wandb}
    if arguments.epochs is not None:
        found["training.n_iters"] = None
    if arguments.sampling_method is not None:
        found["sampling.predictor"] = PREDICTORS[arguments.sampling_method]
    return found


def _check(made: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.cluster is not None:
        made.error(
            "--cluster has no meaning here: a rank finds out by itself where it runs; for a job on a "
            "cluster, castoff submit JOB --site NAME writes and sends it (castoff sites lists them)",
        )
    if arguments.master_port is not None and not 1024 <= arguments.master_port < 65536:
        made.error(f"--master_port is {arguments.master_port}, but takes a port from 1024 to 65535")


def _count(text: str) -> int:
    return _at_least(1, text)


def _number(text: str) -> int:
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes a whole number of at least {least}")
    return number
