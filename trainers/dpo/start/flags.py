"""The flags of `castoff train dpo`, and the fields that they set."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from trainers.configuration.fields import ConfigError
from trainers.configuration.paths import expanded
from trainers.configuration.section import DEVICES
from trainers.dpo.start.configuration import OBJECTIVES
from trainers.program.flags import WANDB, CommandLine, Flag, Refused, Switch, Table, flags_by_field

LOSSES = ("sigmoid", "ipo", "hinge", "robust")
BACKENDS = ("auto", "nccl", "gloo", "ccl", "xccl", "xpu")

_OUTPUT = "--output_dir"
_RATE = "training.optimizer_kwargs.lr"
_DECAY = "training.optimizer_kwargs.weight_decay"


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


def _folder(folder: str) -> dict[str, str]:
    return dict(zip(("training.path", "training.run"), parted(folder), strict=True))


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


TABLE: Table = (
    Flag(
        *("output_dir", None, "DIR"),
        "the run's own folder, which is training.path and training.run: checkpoints, measures, and the "
        "tuned model as best_model.pt, latest_model.pt and checkpoint_epoch_N.pt",
        sets=_folder,
    ),
    Flag("objective", "objective", None, "what is learned; default: dpo", choices=tuple(OBJECTIVES)),
    Flag("train_data", "data.train_data", "FILE", "pairs of sequences, JSON"),
    Flag("val_data", "data.val_data", "FILE", "pairs to validate with; default: a tenth of train_data"),
    Flag("test_data", "data.test_data", "FILE", "pairs to test with at the end"),
    Flag("structures", "data.structures", "DIR", "PDB and mmCIF files: of the pairs, or to be learned"),
    Flag("validation_structures", "data.validation_structures", "DIR", "the same, to validate with"),
    Flag("max_length", "data.max_length", "N", "residues; longer ones are left out; default: 500", int),
    Flag(
        *("mutable_positions", "data.mutable_positions", "N"),
        *("designed positions, from 0, of pairs that say none", int),
        nargs="+",
    ),
    Flag(
        *("mutable_ranges", "data.mutable_ranges", "A-B"),
        *("the same as ranges, each with its last position", _range),
        nargs="+",
    ),
    Flag("base_model_dir", "base_model.dir", "DIR", "where the base model lies"),
    Flag("base_model_name", "base_model.name", "NAME", "NAME.pt in it; default: v_48_020"),
    Flag(
        *("num_epochs", "training.num_epochs", "N", "training.num_steps of CONFIG is dropped", int),
        drops="training.num_steps",
    ),
    Flag("batch_size", "training.batch_size", "N", "of each rank; default: 1, for likelihood 8", int),
    Flag(
        *("learning_rate", _RATE, "RATE"),
        *("as it stands, on any number of ranks; default: 3e-7, for likelihood 1e-3", _number),
        also=("lr",),
    ),
    Flag("weight_decay", _DECAY, "PART", "default: 0", _number),
    Flag("loss", "preference.loss", None, "default: sigmoid", choices=LOSSES),
    Flag("beta", "preference.beta", "BETA", "penalty for leaving the base model; default: 0.1", _number),
    Flag("temperature", "preference.temperature", "T", "what logits are divided by; default: 0.1", _number),
    Flag(
        *("label_smoothing", "preference.label_smoothing", "SHARE"),
        *("of pairs that may be the wrong way round; default: 0", _number),
    ),
    Flag("diversity_lambda", "preference.diversity_lambda", "WEIGHT", "of the entropy; default: 0", _number),
    Flag("seed", "training.seed", "N", "from which everything random follows; default: 0", int),
    Flag("num_workers", "training.num_workers", "N", "processes of each rank that load; default: 0", int),
    Flag("device", "training.device", None, "default: auto, what torch has", choices=DEVICES),
    Flag(
        *("backend", "parallel.backend", None),
        "what carries messages between ranks; default: what fits the device; ccl and xpu are xccl",
        choices=BACKENDS,
    ),
    Switch("no_cuda", "training.device", "cpu", "on the CPU, as with --device cpu", against=("device",)),
    *WANDB,
    Refused("base_model_config_dir", "the weights say the network's sizes; drop it"),
)

COMMAND_LINE = CommandLine(
    "dpo",
    "Tune an inverse folding of proteins by preferences, or train one on structures.",
    TABLE,
    without="without one flags say what has no default",
    example="training.gradient_accumulation_steps=4",
)

NAMES = flags_by_field(TABLE) | dict.fromkeys(("training.path", "training.run"), _OUTPUT)
"""Flags by the paths of the fields that they set."""

_NAMES = "|".join(map(re.escape, sorted(NAMES, reverse=True)))
_BEFORE_ITS_MISTAKE = re.compile(rf"(^|: )(?:task_kwargs\.)?({_NAMES})((?:\.\d+)*):(?= )", re.MULTILINE)


def with_flags(text: str) -> str:
    """What is said of fields, with the flags that set them, and without where the core keeps them."""
    named = _BEFORE_ITS_MISTAKE.sub(lambda at: f"{at[1]}{at[2]}{at[3]} ({NAMES[at[2]]}):", text)
    return named.replace("task_kwargs.", "")
