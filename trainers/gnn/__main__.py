"""Train the causal set network: `castoff train gnn CONFIG`, or `python -m trainers.gnn CONFIG`.

Loads nothing heavy itself: workers of a loader, where they are new interpreters, load it again.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("torch", "torch_geometric")


def main() -> None:
    """Read the command line, and train on this rank."""
    arguments = _parser().parse_args()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(
            f"castoff train: {' and '.join(missing)} cannot be imported by {sys.executable}; load the module "
            "of a site's own torch, or pip install 'castoff[gnn]': a torch that is there already stays"
        )
    # A task's module may lie here or beside the configuration; last, so that it hides nothing.
    for folder in (Path.cwd(), Path(arguments.config).absolute().parent):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    from trainers.gnn.training import train

    train(arguments.config, arguments.set)


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
