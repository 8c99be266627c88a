"""A callback with which Hugging Face's Trainer stops early on request, and resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.resumable.others import Watched
from castoff.trainers.resumable.ranks import joined
from castoff.trainers.resumable.sealed import newest, seal


class _Callback:
    """Saves and stops on request, and completes every checkpoint that the Trainer writes."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._watched: Watched | None = None
        self._stops = False

    def newest(self) -> str | None:
        """The newest undamaged checkpoint, for `resume_from_checkpoint`; None: there is none.

        Raises:
            RuntimeError: no Trainer has this callback yet.
        """
        if self._folder is None:
            raise RuntimeError("pass this callback to a Trainer first: Trainer(…, callbacks=[callback])")
        found = newest(self._folder, r"checkpoint-(\d+)")
        return None if found is None else str(found)

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Learn the folder."""
        self._folder = Path(args.output_dir)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Lock the folder, and listen to requests.

        Raises:
            ConfigError: the checkpoints would have no optimizer.
        """
        if args.save_only_model:
            raise ConfigError(
                [
                    "TrainingArguments: save_only_model=True keeps no optimizer and no schedule, so that the "
                    "training could not be resumed; leave it out, or leave out resumable.trainer_callback()"
                ]
            )
        self._watched = Watched(Path(args.output_dir), joined(), lambda: int(state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have the Trainer save if it is to stop."""
        assert self._watched is not None
        self._stops = self._watched.asks_to_stop()
        control.should_save |= self._stops

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Complete the checkpoint, and stop if this was asked for."""
        assert self._watched is not None
        written = Path(args.output_dir, f"checkpoint-{state.global_step}")
        self._watched.saved(lambda: seal(written), 0.0)
        if self._stops:
            self._watched.stop()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record that the training is complete."""
        assert self._watched is not None
        self._watched.done()


def trainer_callback() -> Any:
    """A callback for Hugging Face's Trainer, which saves and stops on request.

    The Trainer writes checkpoints into its `output_dir`, as its `save_steps` say; the callback flushes each
    to disk, with checksums. Its `newest()` is for `resume_from_checkpoint` of `train`.
    """
    from transformers import TrainerCallback

    return type("Resumable", (_Callback, TrainerCallback), {})()
