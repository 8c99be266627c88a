"""The flags of `castoff train dpo`, and the fields that they set."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainers.configuration.config import DEVICES
from trainers.configuration.fields import ConfigError
from trainers.configuration.flags import (
    Field,
    add_fields,
    add_file,
    add_wandb,
    file_of,
    spelled,
    told_by,
    wandb_of,
)
from trainers.configuration.paths import expanded
from trainers.dpo.start.configuration import OBJECTIVES
from trainers.program.command_line import add_members, add_overrides, new_parser

DESCRIPTION = "Tune an inverse folding of proteins by preferences, or train one on structures."

LOSSES = ("sigmoid", "ipo", "hinge", "robust")
BACKENDS = ("auto", "nccl", "gloo", "ccl", "xccl", "xpu")


def _number(text: str) -> int | float:
    """As it was written, so that a message shows it so."""
    try:
        return int(text)
    except ValueError:
        return float(text)


_number.__name__ = "number"  # argparse says so


def _range(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes the first and the last position, as 10-15")
    return [int(first), int(last)]


_RATE = "training.optimizer_kwargs.lr"

FIELDS = (
    Field("objective", "objective", None, "what is learned; default: dpo", choices=tuple(OBJECTIVES)),
    Field("train_data", "data.train_data", "FILE", "pairs of sequences, JSON"),
    Field("val_data", "data.val_data", "FILE", "pairs to validate with; default: a tenth of train_data"),
    Field("test_data", "data.test_data", "FILE", "pairs to test with at the end"),
    Field("structures", "data.structures", "DIR", "PDB and mmCIF files: of the pairs, or to be learned"),
    Field("validation_structures", "data.validation_structures", "DIR", "the same, to validate with"),
    Field("max_length", "data.max_length", "N", "residues; longer ones are left out; default: 500", int),
    Field(
        "mutable_positions",
        "data.mutable_positions",
        "N",
        "designed positions, from 0, of pairs that say none",
        int,
        nargs="+",
    ),
    Field(
        "mutable_ranges",
        "data.mutable_ranges",
        "A-B",
        "the same as ranges, each with its last position",
        _range,
        nargs="+",
    ),
    Field("base_model_dir", "base_model.dir", "DIR", "where the base model lies"),
    Field("base_model_name", "base_model.name", "NAME", "NAME.pt in it; default: v_48_020"),
    Field("num_epochs", "training.num_epochs", "N", "training.num_steps of CONFIG is dropped", int),
    Field("batch_size", "training.batch_size", "N", "of each rank; default: 1, for likelihood 8", int),
    Field(
        "learning_rate",
        _RATE,
        "RATE",
        "as it stands, on any number of ranks; default: 3e-7, for likelihood 1e-3",
        _number,
        also=("lr",),
    ),
    Field("weight_decay", "training.optimizer_kwargs.weight_decay", "PART", "default: 0", _number),
    Field("loss", "preference.loss", None, "default: sigmoid", choices=LOSSES),
    Field("beta", "preference.beta", "BETA", "how dear it is to leave the base model; default: 0.1", _number),
    Field(
        "temperature",
        "preference.temperature",
        "T",
        "what logits are divided by; default: 0.1",
        _number,
    ),
    Field(
        "label_smoothing",
        "preference.label_smoothing",
        "SHARE",
        "of pairs that may be the wrong way round; default: 0",
        _number,
    ),
    Field("diversity_lambda", "preference.diversity_lambda", "WEIGHT", "of the entropy; default: 0", _number),
    Field("seed", "training.seed", "N", "from which everything random follows; default: 0", int),
    Field("num_workers", "training.num_workers", "N", "processes of each rank that load; default: 0", int),
    Field("device", "training.device", None, "default: auto, what torch has", choices=DEVICES),
    Field(
        "backend",
        "parallel.backend",
        None,
        "what carries messages between ranks; default: what fits the device; ccl and xpu are xccl",
        choices=BACKENDS,
    ),
)

_OUTPUT = "--output_dir"

NAMES = {field.path: f"--{field.flag}" for field in FIELDS} | dict.fromkeys(
    ("training.path", "training.run"), _OUTPUT
)
"""Flags by the paths of the fields that they set."""

_NAMES = "|".join(map(re.escape, sorted(NAMES, reverse=True)))
_BEFORE_ITS_MISTAKE = re.compile(rf"(^|: )(?:task_kwargs\.)?({_NAMES})((?:\.\d+)*):(?= )", re.MULTILINE)


def with_flags(text: str) -> str:
    """What is said of fields, with the flags that set them, and without where the core keeps them."""
    named = _BEFORE_ITS_MISTAKE.sub(
        lambda found: f"{found[1]}{found[2]}{found[3]} ({NAMES[found[2]]}):", text
    )
    return named.replace("task_kwargs.", "")


def parser() -> argparse.ArgumentParser:
    """All flags; each with _ or - between its words."""
    made = new_parser("dpo", DESCRIPTION)
    add_file(made, "without one flags say what has no default")
    add_overrides(made, "training.gradient_accumulation_steps=4")
    add_members(made)
    made.add_argument(
        *spelled("output_dir"),
        metavar="DIR",
        help="the run's own folder, which is training.path and training.run: checkpoints, measures, and the "
        "tuned model as best_model.pt, latest_model.pt and checkpoint_epoch_N.pt",
    )
    add_fields(made, FIELDS)
    made.add_argument(*spelled("no_cuda"), action="store_true", help="on the CPU, as with --device cpu")
    add_wandb(made)
    made.add_argument(*spelled("base_model_config_dir"), nargs="?", const="", help=argparse.SUPPRESS)
    return made


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, checked as far as that goes without a configuration; `path` is the file's."""
    made = parser()
    arguments = made.parse_args(words)
    if arguments.base_model_config_dir is not None:
        made.error(
            "--base_model_config_dir has no meaning here: the weights say the network's sizes; drop it"
        )
    if arguments.no_cuda and arguments.device not in (None, "cpu"):
        made.error(f"--no_cuda stands beside --device {arguments.device}; drop one of the two")
    arguments.path = file_of(made, arguments)
    arguments.wandb = wandb_of(made, arguments)
    return arguments


def told(arguments: argparse.Namespace) -> dict[str, Any]:
    """What flags say, by the fields' paths.

    Raises:
        ConfigError: --output_dir names no folder.
    """
    found: dict[str, Any] = {**told_by(arguments, FIELDS), **arguments.wandb}
    if arguments.output_dir is not None:
        found["training.path"], found["training.run"] = parted(arguments.output_dir)
    if arguments.num_epochs is not None:
        found["training.num_steps"] = None
    if arguments.no_cuda:
        found["training.device"] = "cpu"
    return found


def parted(folder: str) -> tuple[str, str]:
    """The folder in which a folder lies, and its name.

    Raises:
        ConfigError: it has no name, or a variable in it is not set.
    """
    if not folder.strip():
        raise ConfigError([f"{_OUTPUT}: is {folder!r}, but takes a folder"], "command line")
    path = Path(os.path.normpath(expanded(folder, _OUTPUT)))
    if path.name in ("", ".."):
        path = Path(os.path.normpath(path.absolute()))
    if not path.name:
        raise ConfigError(
            [f"{_OUTPUT}: is {folder!r}, which has no name of its own; write a folder in it"], "command line"
        )
    return str(path.parent), path.name
