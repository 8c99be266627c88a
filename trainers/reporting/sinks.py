"""Writes metrics to metrics.jsonl and the castoff run, and on request to TensorBoard, wandb and MLflow."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from castoff.trainers.configuration.config import Logging
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.reporting.metrics_file import MetricsFile
from castoff.trainers.reporting.packages import packages
from castoff.trainers.reporting.services import MLflowRun, WeightsAndBiases, plain_text

logger = logging.getLogger(__name__)


METRICS = {
    "train/loss": "Mean over the items of all ranks since the last line.",
    "train/NAME": "The same for each of `Loss.metrics`.",
    "train/grad_norm": "Norm of the last step's gradient, before clipping.",
    "train/lr": "Learning rate of the last step, of the first parameter group.",
    "train/samples_per_second": "Samples per second, of all ranks together.",
    "train/tokens_per_second": "Items per second, if `Loss.count` counts something other than samples.",
    "train/step_time": "Seconds per step, without validations and checkpoints.",
    "train/data_wait": "Fraction of the step spent waiting for batches.",
    "train/communication": "Fraction of the step spent waiting for the sum of gradients and for slower "
    "ranks, as far as computing does not hide it. Several ranks with `ddp` only.",
    "train/slowest_rank": "The rank that computes longest. Several ranks with `ddp` only.",
    "train/slowest_rank_lag": "How much longer it computes than the median, as a fraction of the step.",
    "train/memory_gb": "Memory of the rank with most, in 10^9 bytes: an accelerator's peak, or what the "
    "process has now.",
    "train/memory_balance": "The smallest memory of a rank divided by the largest, 0 to 1. Several ranks "
    "only.",
    "train/memory_allocated_gb": "Memory in tensors now, in 10^9 bytes, on the accelerator with most.",
    "train/memory_reserved_gb": "Memory that torch holds on that device now, in 10^9 bytes.",
    "train/utilization": "Fraction of the time in which accelerators computed, as their driver reports it: "
    "the mean over ranks. Only where torch can ask (NVIDIA: with the package nvidia-ml-py).",
    "train/utilization_min": "The lowest of the ranks' utilizations.",
    "train/flops": "Floating-point operations of the model per second, of all ranks together, with "
    "`monitoring.log_flops`.",
    "train/mfu": "The same as a fraction of the devices' peak, if that is known: model FLOPs utilization.",
    "train/skipped_steps": "Steps that left the weights unchanged because the gradient was not finite; only "
    "if there are any.",
    "ranks/loss_min": "The lowest mean loss of a rank since the last line. Several ranks only.",
    "ranks/loss_max": "The highest mean loss of a rank.",
    "ranks/loss_N": "The loss of each rank, on up to 16 ranks.",
    "gradients/PART": "Norm of a part's gradient, after clipping, with `monitoring.log_gradients`.",
    "weights/PART": "Norm of a part's weights, with `monitoring.log_weights`.",
    "checkpoint/stall": "Seconds for which training halted for the last checkpoint.",
    "train_epoch/loss": "Mean over an epoch.",
    "train_epoch/NAME": "The same for each of `Loss.metrics`.",
    "val/loss": "Loss of a validation.",
    "val/NAME": "Another metric of a validation.",
    "val/best_loss": "The lowest loss of all validations so far.",
    "val/without_improvement": "Validations in a row, this one included, without improvement, as "
    "`early_stopping` defines it.",
    "checkpoint/step": "The step of the checkpoint that was validated.",
    "checkpoint/is_best": "1 if that checkpoint is the best so far, else 0.",
    "test/loss": "Loss of the test, with the best model.",
    "test/NAME": "Another metric of the test.",
}
"""Metrics that a line of metrics.jsonl may have in addition to `step`, `epoch` and `time`."""


class Sink(Protocol):
    """A destination of metrics in addition to metrics.jsonl."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of a step."""

    def flush(self) -> None:
        """Write all metrics to disk."""

    def close(self) -> None:
        """Finish writing."""


class Sinks:
    """All destinations that rank 0 writes metrics to.

    `metrics.jsonl` is the record, exact across kills and resumes. If another destination fails (a server, a
    disk), a warning is logged, and it gets no more metrics; training continues.
    """

    def __init__(self, folder: Path, config: Logging, run_name: str, resolved: Mapping[str, Any]):
        self.metrics = MetricsFile(folder / "metrics.jsonl")
        of_attempt = os.environ.get("CASTOFF_METRICS_FILE")
        self._of_attempt = MetricsFile(Path(of_attempt), keeps_nan=True) if of_attempt else None
        """The attempt's file for `castoff top` and `castoff report`, in which null means that a value is
        missing."""
        self._folder = folder
        self._config = config
        self._run_name = run_name
        self._resolved = resolved
        self._others: dict[str, Sink] | None = None

    def go_back(self, position: int, step: int) -> None:
        """Continue after `step`, with the first `position` bytes of metrics.jsonl; (0, 0) starts over.

        TensorBoard hides its points of later steps. Weights & Biases and MLflow resume the same run and keep
        its history: steps that are trained again appear twice, with the same values.

        Raises:
            ConfigError: Weights & Biases refuses its settings.
            OSError: metrics.jsonl cannot be shortened.
        """
        self.metrics.cut(position)
        self.close()
        self._open(step)

    def begin(self, step: int, total: int | None, device: str) -> None:
        """Record in the castoff run that training begins after `step`, with its packages and device.

        `total`: number of all steps, None if unknown; `device`: its name.
        """
        if self._of_attempt is not None:
            # The configuration's fields, without resolved values (with a slash) and the sweep's member.
            configured = {
                name: one for name, one in self._resolved.items() if "/" not in name and name != "member"
            }
            parameters = json.loads(json.dumps(configured, default=plain_text))
            line = {"step": step, "folder": str(self._folder.absolute()), "parameters": parameters}
            line |= {"packages": packages(), "device": device}
            self._of_attempt.write(line if total is None else {**line, "total_steps": total})

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of a step, by name."""
        line = {"step": step, **values}
        self.metrics.write(line)
        if self._of_attempt is not None:
            self._of_attempt.write(line)
        for name, sink in self._opened(step).items():
            self._attempt(name, sink.write, step, values)

    def position(self) -> int:
        """The length of metrics.jsonl on disk in bytes, for a checkpoint.

        Raises:
            OSError: metrics.jsonl cannot be written.
        """
        self.flush()
        return self.metrics.position()

    def flush(self) -> None:
        """Write all metrics to disk, so that they outlive this process."""
        for name, sink in list((self._others or {}).items()):
            self._attempt(name, sink.flush)

    def close(self) -> None:
        """Close all destinations; Weights & Biases, when online, uploads the rest."""
        for name, sink in list((self._others or {}).items()):
            self._attempt(name, sink.close)
        self._others = None

    def _opened(self, step: int) -> dict[str, Sink]:
        if self._others is None:
            self._open(step - 1)
        return dict(self._others or {})

    def _open(self, step: int) -> None:
        self._others = {}
        wandb, mlflow = self._config.wandb, self._config.mlflow
        if self._config.tensorboard:
            self._add("TensorBoard", lambda: TensorBoard(self._folder, step))
        if wandb is not None:
            self._add(
                "Weights & Biases",
                lambda: WeightsAndBiases(self._folder, wandb, self._run_name, self._resolved),
            )
        if mlflow is not None:
            self._add("MLflow", lambda: MLflowRun(self._folder, mlflow, self._run_name, self._resolved))

    def _add(self, name: str, make: Callable[[], Sink]) -> None:
        def add() -> None:
            assert self._others is not None
            self._others[name] = make()

        self._attempt(name, add)

    def _attempt(self, name: str, do: Any, *arguments: Any) -> None:
        try:
            do(*arguments)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  # a service's failure must not end the run
            logger.warning("%s gets no more metrics, but metrics.jsonl has them all: %s", name, error)
            (self._others or {}).pop(name, None)


class TensorBoard:
    """Event files in the run's folder `tensorboard`."""

    def __init__(self, folder: Path, step: int):
        writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = writer(log_dir=str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each metric's curve."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """Wait for the writing thread."""
        self._writer.flush()

    def close(self) -> None:
        """Write all events that are not written yet."""
        self._writer.close()


def check_packages(config: Logging) -> None:
    """Check that the packages for `logging.tensorboard`, `wandb` and `mlflow` are installed.

    Raises:
        ConfigError: a package is missing.
    """
    asked = {
        "tensorboard": config.tensorboard,
        "wandb": config.wandb is not None,
        "mlflow": config.mlflow is not None,
    }
    packages = {name: "mlflow-skinny" if name == "mlflow" else name for name in asked}
    problems = [
        f"logging.{name}: is set, but the package {packages[name]} is not installed; "
        f"python -m pip install {packages[name]}, or leave the field out"
        for name, wanted in asked.items()
        if wanted and not _installed(name)
    ]
    if problems:
        raise ConfigError(problems)


def _installed(name: str) -> bool:
    """Whether a package is installed; a mere folder of that name, such as wandb's, does not count."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None
