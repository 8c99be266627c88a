"""Trains the tests' toy, with time to interrupt it, and says what its weights came to."""

from __future__ import annotations

from castoff.trainers.program.importing import without_collections

with without_collections():
    from castoff.trainers.program.training import train
    from tests.cluster.slow import Slow
    from tests.trainers.toys import Toy, config, digest


class SlowToy(Slow, Toy):
    """The toy."""


def learned() -> str | None:
    """What its weights came to at its end; None if it has stopped before."""
    trained = train(config("trained", num_epochs=5, checkpoint_every_steps=5), SlowToy())
    if trained.metrics is None:
        return None
    return f"{digest(trained.trainer.model)} after {trained.trainer.step} steps"


if __name__ == "__main__":
    weights = learned()
    if weights is not None:
        print("weights", weights)
