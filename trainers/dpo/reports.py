"""The log lines of inverse folding: its epochs, and a warning about DPO."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from castoff.trainers.configuration.config import Config
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.dpo.loss import CHOSEN_TO_REFERENCE
from castoff.trainers.dpo.start.configuration import OBJECTIVES
from castoff.trainers.evaluation.metrics import Metrics
from castoff.trainers.reporting.reports import Reports
from castoff.trainers.task import Loss, Splits
from castoff.trainers.task.training_state import TrainingState

_UNLIKELY = 1.2
"""The preferred sequences' log-likelihood, as a multiple of the reference's, above which there is a
warning.
"""


class EpochReports(Reports):
    """Logs when an epoch begins, its steps and mean loss, and a summary when it is validated."""

    def __init__(self, folder: Path, config: Config, context: RankContext):
        super().__init__(folder, config, context)
        self._training = config.training
        self._epochs = config.training.num_epochs
        self._samples_are = "pairs" if config.task == OBJECTIVES["dpo"].task else "chains"
        self._validates = False
        """Whether a validation ends each epoch."""
        self._every_steps = config.validation.every_steps
        self._latest: tuple[Tensor, int | Tensor] | None = None
        self._epoch_began = 0.0
        self._warned = False

    def sizes(self, splits: Splits) -> None:
        """Log the numbers of samples, and note whether a validation ends each epoch."""
        super().sizes(splits)
        self._validates = len(splits.validation) > 0 and self._every_steps is None

    def _tell_sizes(self, splits: Splits) -> None:
        training, validation = len(splits.train), len(splits.validation)
        message = "Loaded %d training and %d validation %s"
        self.logger.info(message, training, validation, self._samples_are)

    def _tell_beginning(self, resolved: Mapping[str, float]) -> None:
        batch_size, micros = self._training.batch_size, self._training.gradient_accumulation_steps
        sizes = (
            f"Batch size per GPU: {batch_size}, Total batch size: {resolved['ddp/effective_batch_size']:g}"
        )
        self.logger.info("%s", sizes if micros == 1 else f"{sizes} (with {micros} accumulation steps)")

    def begin_epoch(self, state: TrainingState) -> None:
        """Log the epoch's number."""
        self._epoch_began = time.monotonic()
        self.logger.info("Epoch %d%s", state.epoch + 1, "" if self._epochs is None else f"/{self._epochs}")

    def add(self, loss: Loss, samples: int) -> None:
        """Add the loss of a micro-batch; the latest one is logged at the epoch's end."""
        super().add(loss, samples)
        self._latest = loss.total.detach(), samples if loss.count is None else loss.count

    def end_epoch(self, state: TrainingState) -> dict[str, float]:
        """Log and return the epoch's training means over all ranks."""
        means = super().end_epoch(state)
        steps, took = state.consumed, _clock(time.monotonic() - self._epoch_began)
        latest = f"loss={_mean(*self._latest):.4f}, " if self._latest is not None else ""
        self.logger.info("Training: %d/%d [%s, %savg_loss=%.4f]", steps, steps, took, latest, means["loss"])
        if not self._validates:
            self._summary(state.epoch + 1, {"Train": means["loss"]})
        return means

    def validated(self, state: TrainingState, metrics: Metrics) -> None:
        """Log a validation, and the summary of an epoch that ends with it."""
        super().validated(state, metrics)
        self._warn_of_unlikely(metrics.get(CHOSEN_TO_REFERENCE, 1.0))
        if self._validates and not state.consumed and state.train_data:
            trained = state.train_data[-1]["loss"]
            self._summary(state.epoch, {"Train": trained, "Val": metrics.get("loss", float("nan"))})

    def _warn_of_unlikely(self, ratio: float) -> None:
        """Warn of DPO's best-known failure: margins grow while both sequences of a pair become less
        likely.
        """
        if ratio > _UNLIKELY and not self._warned and self._context.is_main:
            self._warned = True
            self.logger.warning(
                "%s is %.2f: the policy makes the preferred sequences much less likely than the base "
                "model does, and only the others even less, so its designs get worse although the loss "
                "falls. Lower the learning rate, train for fewer epochs, or raise preference.beta; "
                "judge designs by their likelihood under the base model, too",
                CHOSEN_TO_REFERENCE,
                ratio,
            )

    def _summary(self, epoch: int, losses: Mapping[str, float]) -> None:
        self.logger.info("Epoch %d Summary:", epoch)
        for name, loss in losses.items():
            self.logger.info("  %-11s %.4f", f"{name} Loss:", loss)


def _mean(total: Tensor, count: int | Tensor) -> float:
    items = float(count)
    return float(total) / items if items else float("nan")


def _clock(seconds: float) -> str:
    """A duration such as 02:15, or 1:02:15."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
