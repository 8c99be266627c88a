"""Write the graphs of a configuration in advance: `python -m castoff.trainers.gnn.prepare CONFIG`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import torch

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.gnn.graphs.splits import prepared
from castoff.trainers.program.command_line import make_importable
from castoff.trainers.program.parser import Parser

_PROGRAM = "python -m castoff.trainers.gnn.prepare"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the graphs of the command line's configuration. If that fails, print the error and exit."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    make_importable(options.config)
    try:
        config = Config.load(options.config, options.overrides)
        print(_written(config))
    except (ConfigError, OSError) as error:
        sys.exit("\n".join(f"{_PROGRAM}: {line}" for line in str(error).splitlines()))
    except KeyboardInterrupt:
        sys.exit(130)


def _written(config: Config) -> str:
    """Write the graphs; return their numbers as text."""
    if config.task is not None or "dataset" in config.data:
        raise ConfigError(["data: has neither files nor causets, so there is nothing to write"])
    alone = RankContext(0, 1, torch.device("cpu"), alone=True)
    folder = expanded(config.training.path, "training.path")
    splits = prepared(config.data, config.training.seed, alone, beside=folder)
    sizes = zip(("train", "validate", "test"), splits, strict=True)
    return "graphs: " + ", ".join(f"{len(part):,} to {name}" for name, part in sizes)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="Write the graphs that a training would write when it begins, so that its ranks do "
        "not wait for them. It uses data.n_processes processes, and can run on a login "
        "node. A training with the same configuration finds the graphs by itself.",
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML of the training run")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="FIELD=VALUE",
        help="set a field of CONFIG, as in data.n_processes=8; repeatable",
    )
    return parser


if __name__ == "__main__":
    main()
