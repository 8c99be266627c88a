"""What a user brings: a model, data, and what to do with a batch."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from castoff.trainers.configuration.fields import ConfigError

if TYPE_CHECKING:
    from castoff.trainers.distributed.process_group import RankContext
    from castoff.trainers.task.training_state import TrainingState

Sum: TypeAlias = "tuple[Tensor | float, Tensor | float | None]"
"""(sum over items, number of items); sums over ranks of both give the exact mean. None: the samples."""


@dataclass(frozen=True)
class Loss:
    """A batch's training loss, as a sum, so that batches of different sizes are weighted correctly."""

    total: Tensor
    """Sum over the batch's items; the trainer differentiates it."""
    count: int | Tensor | None = None
    """Number of items in the sum, such as tokens. None: the number of samples, which every rank knows for all
    ranks; any other count costs one small message per step."""
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)
    """Sums of other quantities over the same items, for the log."""


class Evaluated(NamedTuple):
    """The evaluation of a batch: sums, and optionally values that `measure` gets later."""

    sums: Mapping[str, Sum]
    """Sums by metric name."""
    kept: Any
    """Value that `measure` gets, with those of all other batches, after the last batch. Keep it small and
    on the CPU.
    """


class WholeSetEvaluator(Protocol):
    """Evaluates a whole set by itself, on rank 0 alone, while the other ranks wait."""

    def __call__(self, model: nn.Module, batches: Any) -> Mapping[str, float]:
        """Return metrics by name; `batches` iterates over batches on the CPU, as a DataLoader does."""
        ...


class Splits(NamedTuple):
    """The three data sets."""

    train: Any
    """The training set, which may be iterable."""
    validation: Any = ()
    """Empty: no validation. May be iterable, and is then held in memory."""
    test: Any = ()
    """Empty: no test. May be iterable, and is then held in memory."""


class Task(ABC):
    """What to train. Subclass it and write the first three methods.

    Every rank calls every method, except `measure`, `after_evaluation`, `export` and `on_checkpoint`, and
    each call must do the same on all ranks. Draw random numbers from the global generators of torch, numpy
    and Python, which the trainer seeds, or from `state.generator`.
    """

    state: TrainingState
    """To read: `step`, `epoch`, a `generator` on the device that is seeded in each step, `autocast()` for a
    frozen model that `setup` runs, and `folder`, which is `training.path`. Available from `setup` on."""

    rng_sources: Collection[str] = ("torch", "random", "numpy")
    """The global generators that `loss` and `evaluate` draw from. The trainer seeds them in every step. That
    takes 8 µs for all three and 1 µs for torch's alone, and several times as much between quick steps."""

    arguments: str | None = "task_kwargs"
    """The configuration field that holds the task's arguments; None: they are the configuration's own
    sections."""

    volatile_arguments: Collection[str] = ()
    """Arguments that do not affect the training's result, such as paths of data or display settings. Names in
    `arguments`, or paths below it (`sampling.steps`). They may change when a run resumes, and differ between
    ranks."""

    changeable_arguments: Collection[str] = ()
    """Arguments that may change when a run resumes. The change takes effect from the checkpoint on, and is
    logged. A change of any argument that is in neither list is refused."""

    whole_set_evaluator: WholeSetEvaluator | None = None
    """Evaluates a whole set in place of `evaluate`: it is called with (model, batches) on rank 0 alone, while
    the others wait, and returns numbers by name. State that it keeps between validations belongs in
    `state_dict`."""

    turns: Sequence[str] = ()
    """The names of `optimizers` that take turns in each step, such as ("discriminator", "generator"). Each
    turn calls `loss` with the step's batch, and only the parameters of its optimizer get a gradient. Empty:
    all make a step with the gradient of one loss."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """The model, on the CPU. All ranks are seeded alike, so they build the same one.

        The trainer moves it to the device and wraps it.
        """

    @abstractmethod
    def build_data(self) -> Splits:
        """The data sets, `Splits(train, validation, test)`: the same ones on all ranks.

        The last two are optional. `split(dataset, fractions, seed)` divides one set.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The training loss of a batch, which is on the device already: `Loss(total, count, metrics)`.

        `total` is the sum over the batch's items, `count` the number of items (default: the samples), and
        `metrics` has sums of other quantities over the same items, under the same names for every batch.
        `model` is the module that `build_model` returned, compiled if `training.compile` is set. Call any of
        its methods and parts, any number of times: gradients are reduced all the same. With `turns`,
        `self.state.turn` is the name of the optimizer whose loss is wanted.
        """

    def setup(self, context: RankContext) -> None:
        """Called once, before the other methods: for a frozen reference model, or a cache that rank 0 makes.

        `context` has the rank and the device; `context.barrier(name)` waits for all ranks.
        """

    def parameters(self, model: nn.Module) -> Iterable[Tensor] | Iterable[dict[str, Any]]:
        """The parameters for the optimizer, or groups of them with their own learning rates.

        Default: all that require a gradient.
        """
        return [parameter for parameter in model.parameters() if parameter.requires_grad]

    def optimizers(self, model: nn.Module) -> Optimizer | Mapping[str, Optimizer] | None:
        """The optimizer, or several by name, in place of the configured one, which then is left out.

        Each parameter that requires a gradient belongs to one of them. `training.schedule`, `scaling` and
        torch's schedulers set the rates of all. Default: None, `training.optimizer_type` with `parameters`.
        """
        return None

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch of samples; default: torch's `default_collate`."""
        return torch.utils.data.default_collate(samples)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum] | Evaluated:
        """Sums of each metric over a batch, `{name: (sum, count)}`; default: the loss and its metrics; with
        `turns` the sum of their losses, and each by its name.

        Return `Evaluated(sums, kept)` to pass something to `measure`, on the CPU. Runs on the bare module in
        eval mode, under `torch.no_grad()`.
        """
        loss = whole_loss(self, model, batch)
        return {
            "loss": (loss.total, loss.count),
            **{name: (total, loss.count) for name, total in loss.metrics.items()},
        }

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        """Metrics from the sums and counts over all ranks; default: the means.

        A function of means, such as a perplexity, is computed here.
        """
        return {name: total / count if count else float("nan") for name, (total, count) in sums.items()}

    def measure(self, kept: Sequence[Any]) -> Mapping[str, float]:
        """Metrics that are not means over samples, such as F1, from what `evaluate` kept of all batches.

        Runs once, on rank 0 alone, with the batches of all ranks in order. It must not wait for other ranks;
        all of them get the numbers.
        """
        raise NotImplementedError(
            f"{type(self).__qualname__}.evaluate returns something for measure, but measure is missing"
        )

    def test_task(self) -> Task:
        """The task that evaluates the test set; default: this one."""
        return self

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        """More numbers to log after a validation, such as statistics of generated samples.

        Runs on rank 0 alone, and must not wait for other ranks. A number is recorded as `val/NAME`; a name
        with a slash, such as `generation/length`, is kept, and left out of the log. `model` is the validated
        one, with the averaged weights, if there are any.
        """
        return {}

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        """Write the model in another format, on rank 0 alone.

        Called after each validation; without validations, at the end of each epoch and of the training.
        `folder` is the run's folder; `better`: this is the best model so far. `model` is the validated one,
        in eval mode, with the averaged weights, if there are any. `self.state` has the completed epochs and
        their metrics. A resumed run may call it again for the same step, so write the same files, each
        atomically. An OSError ends all ranks.
        """

    def on_step(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        """Called on all ranks after each step, before its validation and checkpoint. They may communicate.

        At log steps `metrics` has the `train/` metrics, the same on all ranks; else it is empty. A resumed
        run does not repeat the calls before its checkpoint: keep in `state_dict` what they change.
        """

    def on_validation(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        """Called on all ranks after each validation, before `export`, with its metrics. They may
        communicate.

        A run that resumes from the validated checkpoint repeats the call, with the state before it.
        """

    def on_checkpoint(self, state: TrainingState, path: Path) -> None:
        """Called on rank 0 alone, at the first step after a checkpoint is on disk in the folder `path`.

        Other ranks wait meanwhile. Later checkpoints replace this one (`training.keep_checkpoints`). A killed
        run may miss the call.
        """

    def state_dict(self) -> dict[str, Any]:
        """The task's state for a checkpoint: tensors, numbers, strings and containers of them.

        If it differs between ranks, each rank's is kept, and only the same number of ranks can resume. It is
        taken before the model is validated, so of a validation's methods only `on_validation` should change
        it.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


def whole_loss(task: Task, model: nn.Module, batch: Any) -> Loss:
    """The loss of a batch; if optimizers take turns, the sum of their losses with each as a metric."""
    if not task.turns:
        return task.loss(model, batch)
    losses = {}
    for turn in dict.fromkeys(task.turns):
        with taking(task, turn):
            losses[turn] = task.loss(model, batch)
    return joined(task, losses)


@contextmanager
def taking(task: Task, turn: str) -> Iterator[None]:
    """A context in which it is this optimizer's turn, for `task.state.turn`."""
    before, task.state.turn = task.state.turn, turn
    try:
        yield
    finally:
        task.state.turn = before


def joined(task: Task, losses: Mapping[str, Loss]) -> Loss:
    """The sum of the turns' losses of one batch, with each as a metric.

    Raises:
        ConfigError: they have different numbers of items, or metrics of the same name.
    """
    kind = f"{type(task).__qualname__}.loss"
    counts = {turn: loss.count for turn, loss in losses.items()}
    if len({count for count in counts.values() if not isinstance(count, Tensor)}) > 1:
        found = ", ".join(f"{count} for {turn}" for turn, count in counts.items())
        raise ConfigError([f"{kind} returned different counts in the turns of a batch ({found}); return one"])
    totals = {turn: loss.total for turn, loss in losses.items()}
    metrics: dict[str, Tensor | float] = dict(totals)
    for turn, loss in losses.items():
        twice = [name for name in loss.metrics if name in metrics]
        if twice:
            raise ConfigError(
                [f"{kind} returned the metric {twice[0]!r} for {turn}, which is taken; use another name"]
            )
        metrics |= loss.metrics
    first, *others = totals.values()
    return Loss(sum(others, first), next(iter(counts.values())), metrics)


def move(batch: Any, device: torch.device) -> Any:
    """Move a batch to a device: tensors, objects with a `to` method, and containers and dataclasses of these.

    Classes of containers are kept.
    """
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):  # graphs, PackedSequence, BatchEncoding, TensorDict
        moved = _to(batch, device)
        return batch if moved is None else moved
    if isinstance(batch, tuple) and hasattr(batch, "_make"):
        return batch._make(move(item, device) for item in batch)
    if isinstance(batch, (list, tuple)):
        return type(batch)([move(item, device) for item in batch])
    if isinstance(batch, Mapping):
        return _mapping({key: move(item, device) for key, item in batch.items()}, batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        moved = copy.copy(batch)
        for attribute in fields(batch):
            if hasattr(batch, attribute.name):
                object.__setattr__(
                    moved, attribute.name, move(getattr(batch, attribute.name), device)
                )  # if frozen, too
        return moved
    return batch


def _to(batch: Any, device: torch.device) -> Any:
    """Move an object by its own `to` method, which may not accept `non_blocking`."""
    try:
        parameters = inspect.signature(batch.to).parameters.values()
    except (TypeError, ValueError):
        return batch.to(device)
    any_name = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    knows = any_name or any(each.name == "non_blocking" for each in parameters)
    return batch.to(device, non_blocking=True) if knows else batch.to(device)


def _mapping(moved: dict[Any, Any], batch: Mapping[Any, Any]) -> Any:
    """The moved items in a mapping of the same class, with the batch's other attributes."""
    if type(batch) is dict:
        return moved
    if not isinstance(batch, MutableMapping):
        try:
            return type(batch)(moved)  # type: ignore[call-arg]
        except TypeError:
            return moved
    same = copy.copy(batch)
    for key, item in moved.items():
        same[key] = item
    return same
