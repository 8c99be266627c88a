"""A callback with which Lightning's Trainer stops early on request, and resumes bit for bit."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from castoff.trainers.distributed.randomness import STEP, derived, seed_all
from castoff.trainers.files.durable import flush
from castoff.trainers.resumable.folder import check_saves, default_folder
from castoff.trainers.resumable.loader import Loader
from castoff.trainers.resumable.others import Watched
from castoff.trainers.resumable.ranks import joined, settle
from castoff.trainers.resumable.sealed import newest, seal, sealed

logger = logging.getLogger(__name__)

_FILE = "lightning.ckpt"
_NAME = r"step-(\d{10})"

_POSITION = "castoff.resumable.Loader"
"""The key of the loader's position in a checkpoint."""


class _Callback:
    """The hooks of a Lightning callback."""

    def __init__(self, folder: Path, save_every: int, keep: int, seed: int):
        self.folder = folder
        self._save_every = save_every
        self._keep = keep
        self._seed = seed
        self._stepped = self._saved = -1
        self._stops = False
        self._late = False
        """Whether to save or stop as soon as the next epoch begins."""
        self._asked = False
        self._position: dict[str, Any] | None = None
        """The loader's, in the checkpoint from which the training resumes."""
        self._watched: Watched | None = None

    def newest(self) -> str | None:
        """The newest undamaged checkpoint, for `ckpt_path` of `fit`; None: there is none."""
        self._asked = True
        found = newest(self.folder, _NAME)
        return None if found is None else str(found / _FILE)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Lock the folder, listen to requests, and set the loader's position."""
        loaders = trainer.train_dataloader
        if isinstance(loaders, Loader):
            if self._position is not None:  # Lightning itself restores it within an epoch only
                loaders.load_state_dict(self._position)
                self._position = None
        else:
            logger.warning(
                "the training's loader is a %s: after a stop, Lightning begins its epoch again; pass a "
                "resumable.Loader to fit",
                type(loaders).__name__,
            )
        self._warn_if_forgotten(trainer)
        settle(trainer.strategy.model)
        self._late = False
        self._stepped = trainer.global_step
        self._watched = self._watch(trainer)

    def _watch(self, trainer: Any) -> Watched:
        how = 'pass Trainer strategy="ddp", devices= the ranks of a node, and num_nodes= the nodes'
        return Watched(self.folder, joined(how), lambda: int(trainer.global_step))

    def _warn_if_forgotten(self, trainer: Any) -> None:
        """Warn if a training begins anew although it has checkpoints, and nobody asked for the newest."""
        forgotten = not (self._asked or trainer.ckpt_path or trainer.global_step)
        if forgotten and trainer.global_rank == 0 and sealed(self.folder, _NAME):
            logger.warning(
                "the training begins anew, although %s has checkpoints; to resume, write "
                "trainer.fit(…, ckpt_path=callback.newest())",
                self.folder,
            )

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """Seed random numbers by rank and batch; stop or save, if the last epoch ended with that."""
        if self._late:
            self._late = False
            with _unbegun(trainer):
                self._save_or_stop(trainer)
        seed_all(derived(STEP, self._seed, trainer.global_rank, trainer.fit_loop.total_batch_idx))

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Stop or save, where an optimizer step has just ended."""
        assert self._watched is not None
        step = trainer.global_step
        if step == self._stepped:  # gradients are being accumulated
            return
        self._stepped = step
        self._stops = self._watched.asks_to_stop()
        if trainer.is_last_batch and trainer.num_training_batches > 1:
            # Lightning would skip what follows the epoch's last batch, such as a validation
            self._late = self._stops or step % self._save_every == 0
        else:
            self._save_or_stop(trainer)

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the loader's position."""
        if isinstance(trainer.train_dataloader, Loader):
            checkpoint[_POSITION] = trainer.train_dataloader.state_dict()

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Remember the loader's position until there is a loader."""
        self._position = checkpoint.get(_POSITION)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Save, unless the last step did, and record that the training is complete."""
        assert self._watched is not None
        if trainer.global_step != self._saved:
            self._save(trainer, trainer.global_step)
        self._watched.done()

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        """Record that the training is complete also if there was nothing to train."""
        if self._watched is None:
            self._watched = self._watch(trainer)
            words = "Nothing is left to train: %s has %d epochs; to start over, remove it"
            logger.info(words, self.folder, trainer.current_epoch)
            self._watched.done()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Restore the signal handlers."""
        if self._watched is not None:
            self._watched.close()

    def _save_or_stop(self, trainer: Any) -> None:
        assert self._watched is not None
        if self._stops or trainer.global_step % self._save_every == 0:
            self._save(trainer, trainer.global_step)
        if self._stops:
            self._watched.stop()

    def _save(self, trainer: Any, step: int) -> None:
        if trainer.fast_dev_run:  # a trial, from which no training is to resume
            return
        assert self._watched is not None
        began = time.perf_counter()
        final = self.folder / f"step-{step:010d}"
        draft = final.with_name(f".{final.name}")
        if self._watched.context.is_main:
            logger.info("Saving checkpoint at step %d: %s", step, final)
        self._watched.context.on_main(lambda: shutil.rmtree(draft, ignore_errors=True))
        trainer.save_checkpoint(draft / _FILE, weights_only=False)
        self._watched.saved(lambda: self._complete(draft, final), time.perf_counter() - began)
        self._saved = step

    def _complete(self, draft: Path, final: Path) -> None:
        seal(draft)
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)
        flush(self.folder)
        for old in sealed(self.folder, _NAME)[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _unbegun(trainer: Any) -> Iterator[None]:
    """Have checkpoints begin with the batch that Lightning has loaded, not after it."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    loaders = trainer.train_dataloader
    with loaders.returning() if isinstance(loaders, Loader) else nullcontext():
        for counts in (progress.total, progress.current):
            counts.ready -= 1
        try:
            yield
        finally:
            for counts in (progress.total, progress.current):
                counts.ready += 1


def lightning_callback(
    folder: str | Path | None = None, *, save_every: int = 500, keep: int = 2, seed: int = 0
) -> Any:
    """A callback for Lightning's Trainer, of `lightning` or `pytorch_lightning`; put it last among callbacks.

    It saves every `save_every` optimizer steps, before a stop and at the end, into the folder, by default
    `checkpoints` in the castoff run's directory, or else here, and keeps the last `keep` checkpoints. Its
    `newest()` is for `ckpt_path` of `fit`. With a `resumable.Loader`, the training resumes bit for bit;
    random numbers in a batch depend on (seed, rank, batch) alone.

    Raises:
        ValueError: `save_every` or `keep` is out of range.
    """
    check_saves(save_every, keep)
    name = next((each for each in ("lightning.pytorch", "pytorch_lightning") if each in sys.modules), None)
    base = import_module(name or "pytorch_lightning").Callback
    kind = type("Resumable", (_Callback, base), {})
    return kind(default_folder() if folder is None else Path(folder), save_every, keep, seed)
