"""What a user brings: a model, data, and what to make of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from trainers.distributed.process_group import RankContext
    from trainers.task.training_state import TrainingState

Sum: TypeAlias = "tuple[Tensor | float, Tensor | float | None]"
"""(sum over items, number of items); sums over ranks of both give the exact mean. None: the samples."""


@dataclass(frozen=True)
class Loss:
    """A batch's training loss, as a sum, so that batches of any size weigh what they should."""

    total: Tensor
    """Sum over the batch's items; what is differentiated."""
    count: int | Tensor | None = None
    """Items in the sum: tokens, or whatever the loss is a mean over. None: the batch's samples, of which
    every rank knows how many the others have; anything else costs one small message a step."""
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)
    """Sums over the same items, for the log."""


class Evaluated(NamedTuple):
    """What a batch comes to, where sums are not all of it."""

    sums: Mapping[str, Sum]
    kept: Any
    """Small, and on the CPU: it stays until the set is over, and `measure` gets that of all batches."""


class WholeSetEvaluator(Protocol):
    """Judges a whole set by itself, on rank 0 alone, while the others wait."""

    def __call__(self, model: nn.Module, batches: Any) -> Mapping[str, float]:
        """Measures by name; `batches` are a DataLoader's, on the CPU."""
        ...


class Splits(NamedTuple):
    """The three data sets; training may be iterable, the others have a length, and are empty if not given."""

    train: Any
    validation: Any = ()
    test: Any = ()


class Task(ABC):
    """What is trained: inherit from it, and write the first three methods.

    Every method is called on every rank and must do the same there, but for `measure`, `after_evaluation`
    and `export`. What is random comes from torch's, numpy's or Python's global generators, which the trainer
    seeds.
    """

    state: TrainingState
    """Step, epoch and a generator of each step; set before `setup`."""

    rng_sources: Collection[str] = ("torch", "random", "numpy")
    """The global generators that `loss` and `evaluate` may draw from. They are seeded in every step, which
    takes 8 microseconds for all three, several times as much between quick steps, and 1 for torch's alone."""

    arguments: str | None = "task_kwargs"
    """The field that holds its arguments; None: they are the configuration's own sections."""

    volatile_arguments: Collection[str] = ()
    """Which of its arguments change nothing that is trained: where data lie, what is shown, how often.
    Names in `arguments`, or paths below it (`sampling.steps`). Other values are for a resumed run
    to have, and for each rank."""

    changeable_arguments: Collection[str] = ()
    """Which take effect from a checkpoint on, as the log then says. All others matter: with another value it
    would be another training, which is refused."""

    whole_set_evaluator: WholeSetEvaluator | None = None
    """What judges a whole set in the place of `evaluate`: it is called with (model, batches) on rank 0 alone,
    while the others wait, and returns numbers by name. What it keeps from one validation to the next is part
    of `state_dict`."""

    @abstractmethod
    def build_model(self) -> nn.Module:
        """The model, on the CPU; the same on all ranks, because the trainer seeds them alike.

        The trainer moves it, then wraps it.
        """

    @abstractmethod
    def build_data(self) -> Splits:
        """The data sets, `Splits(train, validation, test)`; the same on all ranks.

        The last two may be left out; `split(dataset, fractions, seed)` divides one set.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The training loss of a batch that is on the device already: `Loss(total, count, metrics)`.

        That is the sum over the batch's items; how many items these are, as a number or a tensor (left out:
        the batch's samples); and sums of other measures over the same items, the same ones for every batch.
        `model` is the module that `build_model` gave, or with `training.compile` the compiled one; on any
        number of ranks. Whatever of it is called, and however often, gradients are reduced.
        """

    def setup(self, context: RankContext) -> None:
        """Called once, before the others: a frozen reference for the device, a cache that rank 0 makes.

        `context` has the rank and the device; `context.barrier(name)` waits for all ranks.
        """

    def parameters(self, model: nn.Module) -> Iterable[Tensor] | Iterable[dict[str, Any]]:
        """What the optimizer gets: parameters, or groups of them with learning rates of their own.

        Default: all that want a gradient.
        """
        return [each for each in model.parameters() if each.requires_grad]

    def collate(self, samples: list[Any]) -> Any:
        """A batch of samples; default: torch's."""
        return torch.utils.data.default_collate(samples)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum] | Evaluated:
        """Sums of each measure over a batch, `{name: (sum, count)}`; default: the loss and its metrics.

        With `Evaluated(sums, kept)`, what `measure` is to see of the batch, too, on the CPU. Runs under
        `torch.no_grad()` in eval mode, on the bare module.
        """
        loss = self.loss(model, batch)
        return {
            "loss": (loss.total, loss.count),
            **{name: (total, loss.count) for name, total in loss.metrics.items()},
        }

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        """Measures from the sums and counts over all ranks' samples; default: the means.

        What is not a mean is made here, as a perplexity, which is exp of one.
        """
        return {name: total / count if count else float("nan") for name, (total, count) in sums.items()}

    def measure(self, kept: Sequence[Any]) -> Mapping[str, float]:
        """Measures of what `evaluate` has kept of each batch of all ranks, in their order: an F1 score, say.

        On rank 0 alone, once; waits for no other rank, and all have the numbers. For what is not a mean over
        samples.
        """
        raise NotImplementedError(
            f"{type(self).__qualname__}.evaluate keeps something, and measure is missing"
        )

    def test_task(self) -> Task:
        """The task as it judges a test set; default: as any other."""
        return self

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        """More to log after a validation, on rank 0 alone: samples, plots. Waits for no other rank.

        It is logged as `val/NAME`; a name with a slash in it, as `generation/length`, stays as it is, and is
        for metrics.jsonl and its like alone.
        `model` is what was validated: the averaged weights, where there are some.
        """
        return {}

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        """Write the model as others read it, on rank 0 alone.

        After each validation was judged, and at the end of an epoch or of the training that no validation
        ends. `folder` is the run's; `better`: it is the best model so far. `model` is what is validated, in
        eval mode: the averaged weights, where there are some. `self.state` has the epochs that are done, and
        the measures of all of them. It is called again for the same step where a run resumes from there, so
        it writes the same files then, each as a whole. An OSError ends all ranks.
        """

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the task: rank 0's tensors, numbers, texts and containers of them.

        It is made before the model is validated, so a validation should change none of it.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint."""


def move(batch: Any, device: torch.device) -> Any:
    """A batch on a device: tensors, what has a `to` of its own, and containers of these."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(item, device) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)([move(item, device) for item in batch])
    if isinstance(batch, Mapping):
        return {key: move(item, device) for key, item in batch.items()}
    if hasattr(batch, "to"):  # torch_geometric's Data
        return batch.to(device, non_blocking=True)
    return batch
