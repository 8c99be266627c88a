"""Write a run's weights as one file: `python -m castoff.trainers.export trained/NAME model.safetensors`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.safetensors_file import export_safetensors
from castoff.trainers.program.parser import Parser

_PROGRAM = "python -m castoff.trainers.export"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file, and say what is in it. If that fails, print the error and exit."""
    options = _parser().parse_args(arguments)
    try:
        written = export_safetensors(options.source, options.file, ema=options.ema)
    except (CheckpointError, OSError) as error:
        sys.exit("\n".join(f"{_PROGRAM}: {line}" for line in str(error).splitlines()))
    what = "averaged weights" if options.ema else "weights"
    megabytes = written.size / 1e6
    print(f"{options.file}: {what} of {written.checkpoint}, {written.tensors} tensors, {megabytes:.1f} MB")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="Write the weights of a run's best checkpoint, or of its newest, as one safetensors "
        "file. They may be sharded. A weight with several names is written once: load the file with "
        "safetensors.torch.load_model.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "source", metavar="RUN", type=Path, help="the run's folder, such as trained/NAME, or a checkpoint's"
    )
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="the file to write, such as model.safetensors"
    )
    parser.add_argument("--ema", action="store_true", help="write the averaged weights")
    return parser


if __name__ == "__main__":
    main()
