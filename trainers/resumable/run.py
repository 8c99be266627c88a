"""A program's own training loop, made resumable: it saves, stops early on request, and continues.

run = resumable.Run(model=model, optimizer=optimizer)
for epoch in run.epochs(10):
    for batch in run.batches(loader):
        ...
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, Protocol

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.distributed.attempt import Attempt
from castoff.trainers.distributed.process_group import cleanup_ddp
from castoff.trainers.distributed.randomness import EVALUATION, STEP, derived, seed_all
from castoff.trainers.distributed.requests import StoppedEarly
from castoff.trainers.distributed.stacks import write_stacks_on_request
from castoff.trainers.distributed.stopping import Stopping
from castoff.trainers.program.logs import show_trainers
from castoff.trainers.resumable.folder import Held, check_saves, default_folder
from castoff.trainers.resumable.loader import Loader
from castoff.trainers.resumable.ranks import joined, settle

logger = logging.getLogger(__name__)

_ALL = "training"
"""The file of a checkpoint that holds the states of all parts but modules."""


class Stateful(Protocol):
    """A part of a training that a checkpoint keeps: a model, an optimizer, a scheduler, a scaler …"""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Resume from a state."""
        ...


class Run:
    """The progress of a training loop, and its checkpoints in a folder.

    Every rank makes one, after its process group and DDP model, with the same arguments: it resumes `parts`
    from the newest undamaged checkpoint there. The folder is by default `checkpoints` in the castoff run's
    directory, or else here. It saves every `save_every` batches and at the end, and keeps the last `keep`
    checkpoints. Random numbers in a batch depend on (seed, rank, batch) alone.

    Raises:
        TypeError: there are no parts, or one has no state.
        ValueError: `save_every` or `keep` is out of range.
        ConfigError: another process trains in the folder, or parts are missing in its checkpoint.
        CheckpointError: every checkpoint there is damaged.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        save_every: int = 500,
        keep: int = 2,
        seed: int = 0,
        **parts: Stateful,
    ):
        self.epoch = 0
        """Completed epochs."""
        self.step = 0
        """Batches of all epochs that each rank has trained on."""
        self.consumed = 0
        """Batches of this epoch that each rank has trained on: the index of the next batch."""
        self.state: dict[str, Any] = {}
        """This rank's further values that checkpoints keep: tensors, numbers, texts, and containers of
        these, such as a sum of losses."""
        self.folder = _folder(folder)
        self._parts = _checked(parts)
        check_saves(save_every, keep)
        self._save_every = save_every
        self._seed = seed
        self._order: dict[str, Any] = {}
        """What the position within this epoch depends on, once it has begun."""
        self._loader: Loader | None = None
        """What the program takes this epoch's batches from, once it has begun."""
        self._trained = False
        """Whether this process has come to the end of this epoch's batches."""
        self._last: float | None = None
        self._attempt = Attempt()
        self._held: Held | None = None  # on rank 0
        self._context = joined()
        show_trainers(self._context.rank)
        write_stacks_on_request(self._context.rank)
        self._context.on_main(self._hold)
        self._checkpoints = Checkpoints(
            self.folder, keep, check=self._check, durable=self._attempt.record_progress
        )
        self._resume()
        for part in parts.values():
            if isinstance(part, nn.Module):
                settle(part)
        self._ends = ExitStack()
        self._stopping = self._ends.enter_context(Stopping(self._context, look=self._look))

    def epochs(self, number: int) -> Iterator[int]:
        """The epochs, from 0, that are not completed; then `finish`.

        Raises:
            StoppedEarly: a stop was requested, and everything is saved. It is a SystemExit.
            RuntimeError: an epoch ended without `batches`.
        """
        if self.epoch >= number:
            words = "Nothing is left to train: %s has %d epochs; to start over, remove it"
            logger.info(words, self.folder, self.epoch)
            self._end("done")
            return
        while self.epoch < number:
            yield self.epoch
            if self._loader is None:
                raise RuntimeError(
                    f"run.epochs: epoch {self.epoch} ended without run.batches, which saves, and stops on "
                    "request; write `for batch in run.batches(loader):` in place of `for batch in loader:`"
                )
            self.epoch, self.consumed, self._order = self.epoch + 1, 0, {}
            self._loader, self._trained = None, False
        self.finish()

    def finish(self) -> None:
        """Save, and no longer stop on request; for a program that leaves `epochs` by `break`."""
        self.save()
        self._end("done")

    def batches(self, loader: Loader, accumulate: int = 1) -> Iterator[Any]:
        """This epoch's batches that are left, on this rank.

        `accumulate`: batches of an optimizer step; between these, it neither saves nor stops.

        Raises:
            TypeError: it is no `resumable.Loader`.
            ConfigError: the loader has changed in the middle of an epoch.
            RuntimeError: this epoch's batches were used already, or come from another loader.
        """
        if not isinstance(loader, Loader):
            raise TypeError(
                f"run.batches takes a resumable.Loader, not a {type(loader).__name__}, which cannot begin "
                "in the middle of an epoch: resumable.Loader(dataset, batch_size, shuffle=…) takes its place"
            )
        if self._loader not in (None, loader):
            raise RuntimeError(
                "run.batches: this epoch's batches come from another Loader; iterate over a validation "
                "loader directly: `for batch in validation:`"
            )
        if self._trained:
            raise RuntimeError(
                f"run.batches: epoch {self.epoch} has no batches left; begin each epoch by "
                "`for epoch in run.epochs(N):`, and iterate over a validation loader directly"
            )
        if self._order:
            loader.check({**self._order, "consumed": self.consumed})
        self._loader, self._order = loader, loader.fixed()
        rank = self._context.rank
        for batch in loader.batches(self.epoch, self.consumed):
            seed_all(derived(STEP, self._seed, rank, self.step))
            try:
                yield batch
            finally:  # also when the program leaves the loop by `break`
                self.step, self.consumed = self.step + 1, self.consumed + 1
            if self.consumed % accumulate == 0:
                self._after_step()
        self._trained = True
        seed_all(derived(EVALUATION, self._seed, rank, self.epoch))

    def save(self) -> None:
        """Save a checkpoint; all ranks must call it. Rank 0 writes in the background.

        Raises:
            OSError: on rank 0, if this or the checkpoint before it could not be written.
            TypeError: on rank 0, a state holds more than tensors, numbers, text and containers of these.
            NonFiniteWeights: on rank 0, the weights of the checkpoint before it were NaN or infinite.
        """
        began = time.perf_counter()
        states = self._context.gather_on_main(_on_cpu(self.state))
        if self._context.is_main:
            words = "Saving checkpoint at epoch %d, step %d: %s"
            logger.info(words, self.epoch, self.step, self._checkpoints.path(self.step))
            self._checkpoints.save(self.step, self._content(states))
        took = time.perf_counter() - began
        self._stopping.checkpoint_took(took + self._checkpoints.longest)
        self._last = None

    # --- Inside -----------------------------------------------------------------------------------

    def _after_step(self) -> None:
        now = time.perf_counter()
        if self._last is not None:  # what follows an epoch, such as a validation, belongs to a step
            self._stopping.step_took(now - self._last)
        self._last = now
        if self._stopping.agreed():
            self._stop_early()
        if self.step % self._save_every == 0:
            self.save()

    def _stop_early(self) -> NoReturn:
        self.save()
        why = self._stopping.reason()
        self._end("resume")
        if self._context.is_main:
            logger.warning(
                "Stopped early at step %d (%s); it can be resumed from %s", self.step, why, self.folder
            )
        cleanup_ddp()
        raise StoppedEarly(f"stopped early at step {self.step}: {why}")

    def _end(self, outcome: str) -> None:
        """Record the outcome once everything is on disk; an error of rank 0 is raised on all ranks."""
        self._context.on_main(self._checkpoints.wait)
        self._ends.close()
        self._stopping.record_outcome(outcome)
        self._context.barrier(outcome)

    def _hold(self) -> None:
        self._held = Held(self.folder, self._attempt)

    def _check(self) -> None:
        assert self._held is not None  # on rank 0
        self._held.check()

    def _look(self) -> None:
        self._check()
        self._attempt.record_progress(self.step)

    def _content(self, states: list[dict[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """What a checkpoint holds: each module in its own file, the rest in one."""
        parts = self._parts.items()
        modules = {name: part.state_dict() for name, part in parts if isinstance(part, nn.Module)}
        same = all(pickle.dumps(each) == pickle.dumps(states[0]) for each in states)
        rest = {
            "position": {"epoch": self.epoch, "step": self.step, "consumed": self.consumed},
            "order": self._order,
            "state": states[:1] if same else states,
            "parts": {name: part.state_dict() for name, part in parts if name not in modules},
        }
        return {**modules, _ALL: rest}

    def _resume(self) -> None:
        try:
            path = self._context.on_main(self._checkpoints.newest)
        except CheckpointError as error:
            _, _, each = str(error).partition("\n")
            problem = f"every checkpoint is damaged; restore a copy of one, or remove {self.folder}:\n{each}"
            raise CheckpointError(problem) from None
        if path is None:
            return
        saved = load_part(path, _ALL)
        self._check_names(path, saved["parts"])
        for name, part in self._parts.items():
            own = load_part(path, name) if isinstance(part, nn.Module) else saved["parts"][name]
            part.load_state_dict(own)
        vars(self).update(saved["position"])
        self._order = saved["order"]
        self.state = self._own(saved["state"])
        logger.info("Resuming from %s: epoch %d, step %d", path, self.epoch, self.step)

    def _check_names(self, path: Path, others: Mapping[str, Any]) -> None:
        saved = {each.stem for each in path.glob("*.pt")} - {_ALL} | set(others)
        if saved != set(self._parts):
            mine = few(sorted(self._parts)) or "none"
            raise ConfigError(
                [
                    f"resumable.Run: its parts are {mine}, but those in {path} are {few(sorted(saved))}; "
                    f"pass the same ones, or remove {self.folder} to start over"
                ]
            )

    def _own(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """This rank's state."""
        ranks = self._context.world_size
        if len(states) not in (1, ranks):
            raise ConfigError(
                [
                    f"resumable.Run: there are {ranks} ranks, but run.state differs between the checkpoint's "
                    f"{len(states)}; use {len(states)} ranks, or keep only what is the same on all"
                ]
            )
        return states[0] if len(states) == 1 else states[self._context.rank]


def _folder(folder: str | Path | None) -> Path:
    if folder is None:
        return default_folder()
    if not isinstance(folder, str | Path):
        kind = type(folder).__name__
        raise TypeError(
            f"resumable.Run: the folder is a {kind}; give models and optimizers by name: "
            "resumable.Run(model=model, optimizer=optimizer)"
        )
    return Path(folder)


def _checked(parts: Mapping[str, Stateful]) -> dict[str, Stateful]:
    """The parts, models without their wrappers.

    Raises:
        TypeError: there are none, or one has no state.
        ConfigError: a part cannot be kept.
    """
    if not parts:
        raise TypeError(
            "resumable.Run: its checkpoints would hold no weights; write "
            "resumable.Run(model=model, optimizer=optimizer)"
        )
    for name, part in parts.items():
        if not callable(getattr(part, "state_dict", None)):
            meant = get_close_matches(name, ("folder", "save_every", "keep", "seed"), 1)
            if meant:
                raise TypeError(f"resumable.Run: there is no {name}; did you mean {meant[0]}?")
            raise TypeError(
                f"resumable.Run: {name} is a {type(part).__name__} without state_dict and load_state_dict; "
                "put plain values into run.state"
            )
    bare = {name: _bare(part) if isinstance(part, nn.Module) else part for name, part in parts.items()}
    for name, part in bare.items():
        if not isinstance(part, nn.Module):
            continue
        if name == _ALL:
            raise ConfigError([f"resumable.Run: a model cannot be called {_ALL!r}; call it model, say"])
        if any(type(each).__name__ == "DTensor" for each in part.parameters()):
            raise ConfigError(
                [
                    f"resumable.Run: {name} is sharded over the ranks, and this keeps whole models only; "
                    "save it by torch.distributed.checkpoint, and stop by resumable.StopSignal"
                ]
            )
    return bare


def _bare(model: nn.Module) -> nn.Module:
    """The model without DDP and torch.compile, whose names would be in its state."""
    while True:
        inner = model.module if isinstance(model, DistributedDataParallel) else None
        inner = inner or getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _on_cpu(value: Any) -> Any:
    """The value with its tensors on the CPU, to be sent to rank 0."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_on_cpu, value))
    return value
