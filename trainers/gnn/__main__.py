"""Train the causal set network: `castoff train gnn CONFIG`, or `python -m trainers.gnn CONFIG`.

Loads nothing heavy before the configuration is read: a mistake in it is said at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from launcher.ranks import PlacementError, RankEnv
from trainers.core.config import Config
from trainers.core.failures import end, words

NEEDED = ("torch", "torch_geometric")


def main() -> None:
    """Read the command line, and train on this rank; the end of this process if that fails."""
    arguments = _parser().parse_args()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(
            f"castoff train: {sys.executable} has no {' and no '.join(missing)}; load the module of a "
            "site's own torch, then pip install 'castoff[gnn]': a torch from 2.8 on that is there stays"
        )
    # A task's module may lie here or beside the configuration; last, so that it hides nothing.
    for place in (Path.cwd(), Path(arguments.config).absolute().parent):
        if str(place) not in sys.path:
            sys.path.append(str(place))
    try:
        me = RankEnv.detect()
    except PlacementError as error:
        sys.exit("\n".join(words(str(error))))
    folder = None
    try:
        config = Config.load(arguments.config, arguments.set)
        folder = config.training.path
        from trainers.gnn.training import train

        train(config)
    except KeyboardInterrupt:
        os._exit(130)
    except Exception as error:  # noqa: BLE001  # each ends the program; what it says differs
        end(error, me, folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="castoff train gnn",
        description="Train a network to tell manifold-like causal sets from others, and their dimension. "
        "Every rank of a job runs this; one that was stopped goes on from its newest checkpoint.",
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML of the training run")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="set a field of CONFIG, as in training.num_epochs=3; may stand several times",
    )
    return parser


if __name__ == "__main__":
    main()
