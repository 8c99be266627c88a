"""Trains the tests' toy, with time to interrupt it, and says what its weights came to."""

from __future__ import annotations

from tests.cluster.slow import Slow
from tests.trainers.toys import Toy, config, digest
from trainers.program.training import train


class SlowToy(Slow, Toy):
    """The toy."""


def main() -> None:
    trained = train(config("trained", num_epochs=5, checkpoint_every_steps=5), SlowToy())
    if trained.measures is not None:
        print("weights", digest(trained.trainer.model), "after", trained.trainer.step, "steps")


if __name__ == "__main__":
    main()
