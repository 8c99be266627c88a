"""The flags of `castoff train dpo`, and the fields that they set."""

from __future__ import annotations

import os
import re
from pathlib import Path

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.dpo.start.configuration import OBJECTIVES
from castoff.trainers.program.flags import WANDB, CommandLine, Flag, Kind, Number, Refused, Switch, typed

_OUTPUT = "--output_dir"


def _range(text: str) -> list[int]:
    first, last = text.split("-")
    return [int(first), int(last)]


_range.__name__ = "range"  # argparse shows it in errors


def parted(folder: str) -> tuple[str, str]:
    """Split a folder's path into the folder above it and its name.

    Raises:
        ConfigError: it has no name, or a variable in it is not set.
    """
    path = Path(os.path.normpath(expanded(folder, _OUTPUT)))
    if path.name in ("", ".."):
        path = Path(os.path.normpath(path.absolute()))
    if not folder.strip() or not path.name:
        problem = f"{_OUTPUT}: is {folder!r}, but takes a folder that has a name, unlike /"
        raise ConfigError([problem], "command line")
    return str(path.parent), path.name


COMMAND_LINE = CommandLine(
    "dpo",
    "Tune an inverse folding of proteins by preferences, or train one on structures.",
    (
        Flag(
            *("output_dir", "training.run", "DIR"),
            "The run's own folder, which is training.path and training.run: checkpoints, metrics, and the "
            "tuned model as best_model.pt, latest_model.pt and checkpoint_epoch_N.pt.",
            sets=lambda folder: dict(zip(("training.path", "training.run"), parted(folder), strict=True)),
        ),
        Flag("objective", "objective"),
        Flag("train_data", "data.train_data", "FILE"),
        Flag("val_data", "data.val_data", "FILE"),
        Flag("test_data", "data.test_data", "FILE"),
        Flag("structures", "data.structures", "DIR"),
        Flag("validation_structures", "data.validation_structures", "DIR"),
        Flag("max_length", "data.max_length", "N"),
        Flag("mutable_positions", "data.mutable_positions", "N"),
        Flag("mutable_ranges", "data.mutable_ranges", "A-B", type=_range),
        Flag("base_model_dir", "base_model.dir", "DIR"),
        Flag("base_model_name", "base_model.name", "NAME"),
        Flag("num_epochs", "training.num_epochs", "N", "Epochs to train.", drops="training.num_steps"),
        Flag("batch_size", "training.batch_size", "N"),
        Flag(
            *("learning_rate", "training.optimizer_kwargs.lr", "RATE"),
            *("Learning rate, used as given on any number of ranks.", typed(Number)),
            also=("lr",),
        ),
        Flag(
            *("weight_decay", "training.optimizer_kwargs.weight_decay", "PART"),
            *("Weight decay, as in torch. Default: 0.", typed(Number)),
        ),
        Flag("loss", "preference.loss"),
        Flag("beta", "preference.beta", "BETA"),
        Flag("temperature", "preference.temperature", "T"),
        Flag("label_smoothing", "preference.label_smoothing", "SHARE"),
        Flag("diversity_lambda", "preference.diversity_lambda", "WEIGHT"),
        Flag("decoding_order", "preference.decoding_order"),
        Flag("seed", "training.seed", "N"),
        Flag("num_workers", "training.num_workers", "N"),
        Flag("device", "training.device"),
        Flag("backend", "parallel.backend", choices=("auto", "nccl", "gloo", "ccl", "xccl", "xpu")),
        Switch("no_cuda", "training.device", "cpu", "Train on the CPU, as with --device cpu."),
        *WANDB,
        Refused("base_model_config_dir", "the weights determine the network's sizes; leave it out"),
    ),
    kinds={name: Kind(each.settings, each.defaults) for name, each in OBJECTIVES.items()},
    without="without one, flags set what has no default",
    example="training.gradient_accumulation_steps=4",
)

_FLAGS = {row.field: f"--{row.name}" for row in COMMAND_LINE.table if isinstance(row, Flag)}
_FLAGS["training.path"] = _OUTPUT
_FIELDS = "|".join(map(re.escape, sorted(_FLAGS, reverse=True)))
_BEFORE_ITS_MISTAKE = re.compile(rf"(^|: )(?:task_kwargs\.)?({_FIELDS})((?:\.\d+)*):(?= )", re.MULTILINE)


def with_flags(text: str) -> str:
    """Add to a message about fields the flags that set them, and remove `task_kwargs.`."""
    named = _BEFORE_ITS_MISTAKE.sub(
        lambda match: f"{match[1]}{match[2]}{match[3]} ({_FLAGS[match[2]]}):", text
    )
    return named.replace("task_kwargs.", "")
