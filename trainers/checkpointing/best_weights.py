"""Weights that were saved, taken up by an engine: any checkpoint's, and in the end the best one's."""

from __future__ import annotations

from pathlib import Path

from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.engine import Engine


class Best:
    """Whether the model has them, and how it gets them: on one rank, or on all."""

    def __init__(self, checkpoints: Checkpoints, engine: Engine, context: RankContext):
        self._checkpoints = checkpoints
        self._engine = engine
        self._context = context
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
            load_weights(self._engine, best)
        self._taken = True

    def take(self) -> None:
        """Read them on rank 0, and give them to the others; all ranks must call it.

        Raises:
            CheckpointError: the checkpoint is damaged; on all ranks.
        """
        self._context.on_main(self.load)
        self._engine.share_weights()
        self._taken = True


def load_weights(engine: Engine, checkpoint: Path) -> None:
    """Take a checkpoint's weights, and the averaged ones if there are to be some.

    Raises:
        CheckpointError: it lacks them, or they are those of another model.
    """
    parts = {"model": engine.bare} | ({} if engine.average is None else {"ema": engine.average.module})
    for part, module in parts.items():
        state = load_part(checkpoint, part)
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise CheckpointError(
                f"the weights of checkpoint {checkpoint} do not fit the model that build_model makes: "
                f"{' '.join(str(error).split())}. Make the same one, or start over with training.fresh: true"
            ) from error
