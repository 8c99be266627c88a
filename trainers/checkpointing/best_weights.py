"""Loads weights into an engine: those of a given checkpoint or, after training, of the best one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.shards import SHARDS, has_shards
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.engine import Engine


class Best:
    """Loads the weights of the best checkpoint, on one rank or on all, unless the model already has them."""

    def __init__(self, checkpoints: Checkpoints, engine: Engine, context: RankContext):
        self._checkpoints = checkpoints
        self._engine = engine
        self._context = context
        self._taken = False

    def forget(self) -> None:
        """Record that the model no longer has the best weights."""
        self._taken = False

    def load(self) -> None:
        """Load the best weights on this rank, if there is a best checkpoint and they are not loaded yet.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        if self._taken:
            return
        best = self._checkpoints.best()
        if best is not None:
            self._engine.end(gather=False)
            load_weights(self._engine, best)
        self._taken = True

    def take(self) -> None:
        """Load the best weights on rank 0, and send them to the others; all ranks must call it.

        Raises:
            CheckpointError: the checkpoint is damaged; raised on all ranks.
        """
        self._context.on_main(self.load)
        if not self._context.everywhere(self._engine.strategy.sharded):  # else nothing was saved
            self._engine.end(gather=False)
            self._share()
        self._taken = True

    @torch.no_grad()
    def _share(self) -> None:
        """Copy rank 0's weights and buffers, also the averaged ones, to all ranks."""
        if not self._context.distributed or self._context.world_size == 1:
            return
        for module in dict.fromkeys((self._engine.bare, self._engine.judged)):
            for tensor in module.state_dict().values():
                if isinstance(tensor, Tensor):
                    sent = tensor.contiguous()
                    dist.broadcast(sent, src=0)
                    if sent is not tensor:
                        tensor.copy_(sent)


def load_weights(engine: Engine, checkpoint: Path) -> None:
    """Load a checkpoint's weights, and the averaged weights if the engine has an average.

    Raises:
        CheckpointError: the checkpoint lacks them, or they are those of another model.
    """
    parts = {"model": engine.bare} | ({} if engine.average is None else {"ema": engine.average.module})
    for part, module in parts.items():
        state = _state_for(module, checkpoint, part)
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise CheckpointError(
                f"the weights of checkpoint {checkpoint} do not fit the model that build_model returns: "
                f"{' '.join(str(error).split())}. Build the same model, or start over with "
                "training.fresh: true"
            ) from error


def _state_for(module: nn.Module, checkpoint: Path, part: str) -> dict[str, Any]:
    if not (checkpoint / SHARDS).is_dir() and not has_shards(module.state_dict()):
        return load_part(checkpoint, part)
    from castoff.trainers.checkpointing.sharded_states import weights_for

    return weights_for(module, checkpoint, part)
