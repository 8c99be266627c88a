"""The weights of the best model that was saved, taken up once training is over."""

from __future__ import annotations

from trainers.core.checkpoint import Checkpoints
from trainers.core.distributed import Place
from trainers.core.engine import Engine


class Best:
    """Whether the model has them, and how it gets them: on one rank, or on all."""

    def __init__(self, checkpoints: Checkpoints, engine: Engine, place: Place):
        self._checkpoints = checkpoints
        self._engine = engine
        self._place = place
        self._taken = False

    def forget(self) -> None:
        """The model gets other weights."""
        self._taken = False

    def load(self) -> None:
        """Read them on this rank, if there are some and it does not have them.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        if self._taken:
            return
        best = self._checkpoints.best()
        if best is not None:
            self._engine.load_weights(best)
        self._taken = True

    def take(self) -> None:
        """Read them on rank 0, and give them to the others; all ranks must call it.

        Raises:
            CheckpointError: the checkpoint is damaged; on all ranks.
        """
        self._place.decided(self.load)
        self._engine.share_weights()
        self._taken = True
