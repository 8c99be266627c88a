"""A training's reports: collects sums and times in each step, and writes metrics when they are due."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from castoff.trainers.configuration.config import Config, Member
from castoff.trainers.configuration.without_effect import without_effect
from castoff.trainers.configuration.yaml_text import in_a_line, plain
from castoff.trainers.data.loaders import Group
from castoff.trainers.distributed.devices import device_name, limiter
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.evaluation.metrics import Metrics
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.reporting.flops import Flops
from castoff.trainers.reporting.monitoring import Norms
from castoff.trainers.reporting.out_of_memory import explain
from castoff.trainers.reporting.profiler import Profiler
from castoff.trainers.reporting.progress import Progress
from castoff.trainers.reporting.running import Running
from castoff.trainers.reporting.sinks import Sinks
from castoff.trainers.reporting.throughput import Throughput, report
from castoff.trainers.task import Loss, Splits, Task
from castoff.trainers.task.training_state import TrainingState


class Reports:
    """Collects one rank's metrics; rank 0 writes the metrics of all ranks."""

    def __init__(self, folder: Path, config: Config, context: RankContext):
        self.running = Running()
        """Sums of the loss and its metrics, which a checkpoint keeps."""
        self.logger = logging.getLogger(f"castoff.trainers.{config.name}")
        self._context = context
        self._throughput = Throughput(context, config.training.log_every)
        self._profiler = Profiler(config.profile, folder, context)
        self._progress: Progress | None = None
        self._samples = 0
        self._folder = folder
        self._precision = config.training.precision
        self._member = config.member
        self._config = config
        self._engine: Engine | None = None
        self._task: Task | None = None
        self._group: Group | None = None
        """The last group, whose size is reported if memory runs out."""
        self._step = 0
        self._notes = without_effect(config, limits_memory=limiter(context.device) is not None)
        self._norms = Norms(config.monitoring)
        self._flops = Flops(config, context)
        self._resolved: dict[str, Any] = dict(plain(config))
        """The configuration and values resolved from it, which the sinks read when they are opened."""
        self._sinks: Sinks | None = None
        if context.is_main:
            self._sinks = Sinks(folder, config.logging, _name(config), self._resolved)

    def follow(self, engine: Engine, task: Task) -> None:
        """Set the engine and the task of the training that is reported on."""
        self._engine, self._task = engine, task

    @contextmanager
    def opened(self) -> Iterator[None]:
        """A context for the training; the sinks stay open for the test, unless training ends in an error."""
        try:
            yield
        except BaseException as error:
            self._explain(error)
            self.close()
            raise
        self._group = None
        self._flush()

    def _explain(self, error: BaseException) -> None:
        """Log what fills the memory if it is used up."""
        if self._engine is not None:
            batch = None if self._group is None else self._group.micros
            explain(error, self._step, self._engine, batch, self._config, self._context, self._folder)

    @contextmanager
    def training(self, state: TrainingState, total: int | None, epochs: int | None) -> Iterator[None]:
        """A context with a progress bar on rank 0's terminal; `total`: number of steps, None if unknown."""
        if self._sinks is not None:
            self._sinks.begin(state.step, total, device_name(self._context.device))
        with Progress(self._context, total=total, epochs=epochs, done=state.step, epoch=state.epoch) as bar:
            self._progress = bar
            try:
                with self._profiler.training(state):
                    yield
            finally:
                self._progress = None

    def sizes(self, splits: Splits) -> None:
        """Log the sizes of the data sets, and whether the validation set is small."""
        if self._context.is_main:
            self._tell_sizes(splits)
            few = len(splits.validation) if hasattr(splits.validation, "__len__") else _ENOUGH
            if 0 < few < _ENOUGH:
                self.logger.info(
                    "%d validation samples are few: small differences between validations are chance", few
                )

    def _tell_sizes(self, splits: Splits) -> None:
        sizes = [f"{len(part):,}" if hasattr(part, "__len__") else "unknown" for part in splits]
        self.logger.info("Training set size: %s, validation: %s, test: %s", *sizes)

    def begin(self, resolved: Mapping[str, float], model: nn.Module, steps: int | None) -> None:
        """Log the model and the resolved settings; `steps`: steps of an epoch, None if unknown."""
        self._resolved |= resolved
        if self._context.is_main:
            if self._member is not None:
                self.logger.info("%s", _words(self._member))
            for note in self._notes:
                self.logger.info("%s", note)
            self._tell_beginning(resolved)
            self.logger.info(
                "Model: %s; precision %s, device %s; %s; run folder %s",
                _parameters(model),
                self._precision,
                device_name(self._context.device),
                f"{steps:,} steps per epoch" if steps else "epochs of unknown length",
                self._folder,
            )

    def _tell_beginning(self, resolved: Mapping[str, float]) -> None:
        several = self._context.world_size > 1
        named = resolved if several else {_alone(name): value for name, value in resolved.items()}
        words = ", ".join(f"{name} {value:g}" for name, value in named.items() if name)
        self.logger.info("Starting %straining: %s", "distributed " if several else "", words)

    # --- As it comes ------------------------------------------------------------------------------

    def begin_epoch(self, state: TrainingState) -> None:
        """Called when an epoch begins or is resumed."""

    def waits(self, groups: Iterable[Group]) -> Iterator[Group]:
        """Yield the groups, and measure the time to get each."""
        for group in self._throughput.waits(self._profiler.waits(groups)):
            self._group = group
            if self._flops.wanted and self._engine is not None and self._task is not None:
                with self._throughput.paused():
                    self._flops.count(group, self._task, self._engine)
            yield group

    def add(self, loss: Loss, samples: int) -> None:
        """Add the loss of a micro-batch of `samples` samples."""
        self.running.add(loss.total, samples if loss.count is None else loss.count, loss.metrics)
        self._samples += samples

    def reduction(self, total: Tensor) -> AbstractContextManager[None]:
        """A context for the backward pass in which gradients are reduced."""
        return self._throughput.reduction(total)

    def step_done(self, state: TrainingState) -> float:
        """Record an optimizer step; returns its seconds, including the wait for its data."""
        took = self._throughput.step(self._samples)
        self._samples = 0
        self._step = state.step
        if self._progress is not None:
            self._progress.step(state.step, state.epoch)
        if self._profiler.is_due(state.step):
            with self._throughput.paused():
                self._profiler.step_done(state.step)
        return took

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose time is not training's: a validation, a checkpoint."""
        with self._throughput.paused(), self._profiler.paused():
            yield

    # --- When it is due ---------------------------------------------------------------------------

    def log(self, state: TrainingState, engine: Engine, rate: float, stall: float) -> dict[str, float]:
        """Log the steps since the last call; all ranks must call it. Waits for the device.

        Returns the metrics that are the same on all ranks.
        """
        self.running.keep("train/grad_norm", engine.norm)
        if self._context.is_main or engine.strategy.sharded:  # norms are the same on all ranks
            for name, norm in self._norms.of(engine):
                if self._context.is_main:
                    self.running.keep(name, norm)
        values = report(self.running, self._throughput, self._context, sharded=engine.strategy.sharded)
        values |= {**self._flops.metrics(values), "train/lr": rate, "checkpoint/stall": stall}
        if engine.skipped:
            values["train/skipped_steps"] = engine.skipped
        self._write(state, values)
        if self._progress is not None:
            self.logger.info("%s", self._progress.line(values))
        return {name: value for name, value in values.items() if name.startswith("train/")}

    def end_epoch(self, state: TrainingState) -> dict[str, float]:
        """Write and return the epoch's training means over all ranks; all ranks must call it."""
        means = self.running.end_epoch(self._context)
        self._write(state, {f"train_epoch/{name}": value for name, value in means.items()})
        return means

    def validated(self, state: TrainingState, metrics: Metrics) -> None:
        """Log a validation, after `state.validated()`."""
        more = {name: value for name, value in metrics.more.items() if "/" not in name}
        words = [f"{name}={value:.4g}" for name, value in {**metrics, **more}.items() if name != "loss"]
        if "loss" in metrics:
            spread = "" if math.isnan(metrics.spread) else f" ± {metrics.spread:.3f}"
            words = [f"loss={metrics['loss']:.3f}{spread}", *words]
        self.logger.info("Validation: %s", ", ".join(words))
        written = {name if "/" in name else f"val/{name}": value for name, value in metrics.more.items()}
        written |= {f"val/{name}": value for name, value in metrics.items()} | _best(state)
        self._write(state, written)

    def tested(self, state: TrainingState, metrics: Metrics) -> None:
        """Log a test, if there is a test set."""
        if not metrics:
            return
        words = ", ".join(f"{name}={value:.4g}" for name, value in metrics.items())
        self.logger.info("Test: %s", words)
        self._write(state, {f"test/{name}": value for name, value in metrics.items()})
        self._flush()

    # --- Resuming ---------------------------------------------------------------------------------

    def position(self) -> int:
        """The length of metrics.jsonl in bytes, for a checkpoint."""
        return self._sinks.position() if self._sinks is not None else 0

    def go_back(self, position: int, step: int) -> None:
        """Discard the metrics written after a checkpoint. `position`: the length of metrics.jsonl at the
        checkpoint; `step`: the checkpoint's step.
        """
        if self._sinks is not None:
            self._sinks.go_back(position, step)

    def close(self) -> None:
        """Close the sinks."""
        if self._sinks is not None:
            self._sinks.close()

    def _flush(self) -> None:
        if self._sinks is not None:
            self._sinks.flush()

    def _write(self, state: TrainingState, values: Mapping[str, Any]) -> None:
        if self._sinks is not None:
            self._sinks.write(state.step, {"epoch": state.epoch, **values})


_ENOUGH = 30
"""A validation set with fewer samples is reported as small."""


def _parameters(model: nn.Module) -> str:
    """The numbers of parameters and of trained parameters."""
    every = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return f"{every:,} parameters" + (f", {trained:,} of them trained" if trained < every else "")


def _alone(name: str) -> str:
    """A resolved value's name if a single rank trains; empty: the value is not shown."""
    if name in ("ddp/world_size", "ddp/lr_factor"):
        return ""
    return name.removeprefix("ddp/").removeprefix("scaled_").removeprefix("effective_")


def _name(config: Config) -> str:
    """The training's name for services, different for each training of a sweep."""
    return config.name if config.member is None else f"{config.name}_{config.member.number}"


def _words(member: Member) -> str:
    """The number and values of this training of a sweep."""
    of = "" if member.of is None else f" of {member.of}, counting from 0"
    values = (f"{path}={in_a_line(value)}" for path, value in member.values.items())
    return f"Member {member.number}{of}: {', '.join(values)}"


def _best(state: TrainingState) -> dict[str, float]:
    """Metrics that compare the last validation with those before it."""
    losses = [each["loss"] for each in state.val_data if math.isfinite(each.get("loss", math.nan))]
    return {
        **({"val/best_loss": min(losses)} if losses else {}),
        "val/without_improvement": state.without_improvement,
        "checkpoint/step": state.step,
        "checkpoint/is_best": int(not state.without_improvement),
    }
