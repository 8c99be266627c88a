"""Train a network on graphs: `castoff train gnn CONFIG`, or `python -m castoff.trainers.gnn CONFIG`."""

from __future__ import annotations

from castoff.trainers.configuration.config import Config
from castoff.trainers.program.command_line import run
from castoff.trainers.program.importing import without_collections

DESCRIPTION = "Train a network on graphs: causal sets that are read or generated, or your own graphs."


def main() -> None:
    """Train the command line's configuration on this rank."""
    run("gnn", DESCRIPTION, ("torch", "torch_geometric"), _train)


def _train(config: Config) -> None:
    with without_collections():
        from castoff.trainers.gnn.training import train

    train(config)


if __name__ == "__main__":
    main()
