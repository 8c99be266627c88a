"""Trains the tests' toy in the run's directory, slowly at first, and says what its weights came to.

python -m tests.cluster.toy_training PAUSE    seconds that each step of the first attempt takes
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.trainers.toys import Toy, config, digest
from trainers.program import train


def main() -> None:
    pause = float(sys.argv[1]) if os.environ["CASTOFF_ATTEMPT"] == "0" else 0.0
    out = Path(os.environ["CASTOFF_RUN_DIR"]) / "trained"
    trained = train(config(out, num_epochs=8, checkpoint_every_steps=5), Toy(pause=pause))
    if trained.measures is not None:
        print("weights", digest(trained.trainer.model), "after", trained.trainer.step, "steps")


if __name__ == "__main__":
    main()
