"""Saves a training and resumes it: collects all parts of a checkpoint, and waits until it is durable."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from castoff.trainers.checkpointing.best_weights import Best, load_weights
from castoff.trainers.checkpointing.checkpoints import Checkpoints, found_in, load_part
from castoff.trainers.checkpointing.differences import compare, digest
from castoff.trainers.checkpointing.finite_weights import finite
from castoff.trainers.checkpointing.of_task import KeptTask
from castoff.trainers.checkpointing.registry import OfOneRank, Registry, Stateful
from castoff.trainers.checkpointing.run_folder import RunFolder
from castoff.trainers.checkpointing.shards import SHARDS, has_shards
from castoff.trainers.checkpointing.verification import manifest_of
from castoff.trainers.checkpointing.written_by import changes, lacks
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.flattened import Fields, fields
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.weights import Weights
from castoff.trainers.task import Task
from castoff.trainers.task.training_state import TrainingState

logger = logging.getLogger(__name__)


class Log(Protocol):
    """A run's metrics, which a resumed run continues from the position in its checkpoint."""

    def position(self) -> int:
        """The current length of the metrics file, in bytes."""
        ...

    def go_back(self, position: int, step: int) -> None:
        """Drop all metrics recorded after `position`, which was the file's length at `step`."""
        ...


class Resumed(NamedTuple):
    """The result of resuming from a checkpoint."""

    record: dict[str, Any] | None
    """The record of the validation at the checkpoint; None: it was not validated."""


class CheckpointManager:
    """Saves and restores a training: weights, averaged weights, and the states of all parts.

    `given`: a task passed from Python code. As a context manager it finishes writing when it exits.
    """

    def __init__(
        self,
        config: Config,
        given: Task | None,
        task: Task,
        context: RankContext,
        state: TrainingState,
        engine: Engine,
        weights: Weights,
        log: Log,
        run_folder: RunFolder,
    ):
        self._config = config
        self._given = given
        self._task = task
        self._context = context
        self._state = state
        self._engine = engine
        self._weights = weights
        self._log = log
        self._registry = Registry(KeptTask(task), {}, {})
        self._saved: tuple[int, int, bool] | None = None
        self._attempt = run_folder.attempt
        self._durable: deque[int] = deque(maxlen=config.training.keep_checkpoints)
        self.checkpoints = Checkpoints(
            run_folder.path / "checkpoints",
            config.training.keep_checkpoints,
            check=run_folder.check,
            durable=self._is_durable,
            infinite=[name for name, each in engine.bare.named_buffers() if not finite(each)],
        )
        self.best = Best(self.checkpoints, engine, context)
        self.stall = 0.0
        """Seconds for which training halted for the last checkpoint."""

    def keep(self, shared: Mapping[str, Stateful], own: Mapping[str, OfOneRank]) -> None:
        """Register further parts to save: of `shared` ones rank 0's state, of `own` ones each rank's
        state.
        """
        first: dict[str, Stateful] = {"state": self._state, "engine": self._engine}
        self._registry = Registry(KeptTask(self._task), first | dict(shared), own)
        self._saved = None
        self.best.forget()

    def __enter__(self) -> CheckpointManager:
        self.checkpoints.__enter__()
        return self

    def __exit__(self, *ended: Any) -> None:
        self.checkpoints.__exit__(*ended)

    def save(self) -> None:
        """Save a checkpoint, unless the current state has been saved; all ranks must call it.

        Rank 0 writes while training continues, and so do all ranks if tensors are sharded; `wait` waits for
        it.

        Raises:
            NonFiniteError: the last step's gradient was NaN or infinite.
            ConfigError: the ranks' weights differ, and nothing is saved; or a parameter is left untrained.
            OSError: on ranks that write, if this or the checkpoint before it could not be written.
        """
        if self._saved is not None and self._saved >= self._here():
            return
        began = time.perf_counter()
        self._engine.settle()
        self._weights.check_alike()
        states = self._registry.state_dict(self._context)
        if self._context.is_main:
            now = self._fields()
            states["about"] = {
                "config": now,
                "digest": digest(now, self._task),
                "metrics": self._log.position(),
            }
            words = "Saving checkpoint for model at epoch %d, step %d: %s"
            path = self.checkpoints.path(self._state.step)
            logger.info(words, self._state.epoch, self._state.step, path)
            self.checkpoints.save(self._state.step, {**self._engine.weights(), "training": states})
        elif self._config.parallel.strategy == "fsdp":
            parts = {**self._engine.weights(), "training": {"engine": self._engine.state_dict()}}
            if has_shards(parts):  # not if all weights are whole again, and there is no optimizer's state
                self.checkpoints.save(self._state.step, parts)
        self._saved = self._here()
        self.stall = time.perf_counter() - began
        self._weights.check_trained()

    def _is_durable(self, step: int) -> None:
        """Called by the thread that writes."""
        self._attempt.record_progress(step)
        self._durable.append(step)

    def newly_durable(self) -> Iterator[Path]:
        """On rank 0, the checkpoints that have become durable since the last call, and still exist."""
        while self._durable:
            path = self.checkpoints.path(self._durable.popleft())
            if path.exists():
                yield path

    @property
    def longest(self) -> float:
        """Seconds that the slowest checkpoint took, from the halt of training until it was durable."""
        return self.stall + self.checkpoints.longest

    def wait(self) -> None:
        """Wait until everything saved is on disk.

        Raises:
            OSError: on ranks that write, if it cannot be written.
        """
        self.checkpoints.wait()

    def record(self, record: Mapping[str, Any]) -> None:
        """Write the validation's metrics into this step's checkpoint; rank 0 writes."""
        if self._context.is_main:
            self.checkpoints.record(self._state.step, record)

    def resume(self) -> Resumed | None:
        """Resume from the run's newest undamaged checkpoint, else from `training.resume_checkpoint`.

        All ranks must call it. Returns None if there is neither: training starts from the beginning.

        Raises:
            CheckpointError: there are checkpoints, and every one is damaged; or the newest has a format that
                this castoff does not read.
            ConfigError: `training.resume_checkpoint` leads to none, or the checkpoint's configuration does
                not match.
        """
        asked = self._config.training.resume_checkpoint
        newest = self.checkpoints.newest(self._context)
        if newest is None and asked is not None:
            newest = self._context.on_main(lambda: _named(asked))
        if newest is None:
            self._log.go_back(0, 0)
            return None
        return Resumed(self._load(newest))

    def load_weights(self, path: Path) -> None:
        """Load the weights of a checkpoint, and the averaged weights.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        load_weights(self._engine, self.checkpoints.whole(path))
        self.best.forget()

    def _load(self, path: Path) -> dict[str, Any] | None:
        """Resume from a checkpoint; returns the metrics of its validation, or None if it was not
        validated."""
        manifest = manifest_of(path)
        try:
            record = self._take(path)
        except KeyError as error:
            raise lacks(path, manifest, f"{error} in training.pt") from error
        change = changes(manifest)
        if change is not None:
            logger.info("%s", change)
        return record

    def _take(self, path: Path) -> dict[str, Any] | None:
        states = self._training_in(path)
        about = states.pop("about")
        step = states["state"]["step"]
        differences = compare(about["config"], self._fields(), str(path), step, self._task)
        differences.check()
        load_weights(self._engine, path)
        self._registry.load_state_dict(states, self._context)
        # Another run's metrics are in its own folder.
        is_of_this_run = path.parent == self.checkpoints.folder
        self._log.go_back(about["metrics"] if is_of_this_run else 0, self._state.step)
        self._saved = self._here()
        for line in differences.reported:
            logger.info("%s", line)
        words = "Resuming from %s: epoch %d, step %d, configuration %s"
        logger.info(words, path, self._state.epoch, self._state.step, about["digest"])
        return self._context.on_main(lambda: self.checkpoints.record_of(path))

    def _training_in(self, path: Path) -> dict[str, Any]:
        if not self._engine.strategy.sharded and not (path / SHARDS).is_dir():
            return load_part(path, "training")
        from castoff.trainers.checkpointing.sharded_states import training_for

        return training_for(self._engine.optimizer, path)

    def _fields(self) -> Fields:
        return fields(self._config, self._context.world_size, self._given)

    def _here(self) -> tuple[int, int, bool]:
        """(step, epoch, validating). Training changes it; if nothing has changed, no new checkpoint is
        needed.
        """
        return self._state.step, self._state.epoch, self._state.validating


def _named(asked: str) -> Path:
    field = "training.resume_checkpoint"
    checkpoint = found_in(expanded(asked, field))
    if checkpoint is None:
        raise ConfigError(
            [
                f"{field}: is {asked!r}, but there is no castoff checkpoint; write a checkpoint's "
                "folder, such as trained/NAME/checkpoints/step-0000002000, or a run's folder, to use "
                "its newest checkpoint"
            ]
        )
    return checkpoint
