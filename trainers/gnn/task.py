"""What a configuration describes: a network on graphs, their data, and how its outputs are judged."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss
from torch_geometric.data import Batch

from trainers.core.configured import ConfiguredTask
from trainers.core.contract import made
from trainers.core.distributed import Place
from trainers.core.fields import ConfigError
from trainers.gnn import names
from trainers.gnn.data import FEATURES, Causets
from trainers.gnn.graphs import settings
from trainers.gnn.graphs.splits import prepared
from trainers.gnn.model import GNNModel as CausetNetwork
from trainers.gnn.models import GNNModel
from trainers.gnn.models.inputs import given, taken
from trainers.gnn.report import linear_error, table
from trainers.task import Loss, Splits, Sum, Task


class GraphTask(ConfiguredTask):
    """A network that is called with `(x, edge_index, batch)`, and by name with what else it takes of graphs.

    That is `graph_features`, `edge_attr`, `edge_weight`, and `size`, how many graphs there are. `model.type`
    is `GNNModel` unless it says otherwise. `data` has files, causets or a dataset. The criterion is called
    with (outputs, batch), and monitors with the outputs and `batch.y` of all batches.

    Raises:
        ConfigError: with everything in the configuration that makes no sense.
    """

    silent_arguments = ("data.output", "data.n_processes", "data.chunksize", "data.validate_data")

    _place: Place

    def missing(self) -> list[str]:
        """What the configuration lacks, and what its data section has that makes no sense."""
        problems = []
        if not self.config.model:
            problems.append(
                "model: is missing; write the arguments of GNNModel, or a type of your own and its"
            )
        if self.config.criterion is None:
            problems.append("criterion: is missing; write !pyobject my_module.compute_loss")
        if not self.config.data:
            problems.append("data: is missing; write files: [...], causets: {...}, or dataset: !pyobject …")
        elif "dataset" not in self.config.data:
            settings.read(self.config.data, problems)
        return problems

    def find(self, value: Any, field: str, kind: str) -> Any:
        """The same, which may be a bare name of our own."""
        return super().find(value, field, kind) if kind == "apply_model" else names.found(value, field, kind)

    def setup(self, place: Place) -> None:
        """Where the graphs are to be written and mapped."""
        super().setup(place)
        self._place = place

    def build_model(self) -> nn.Module:
        """`model.type` made of the other fields of `model`: by their names, or of its `args` and `kwargs`."""
        fields = dict(self.config.model)
        make = self.find(fields.pop("type", "GNNModel"), "model.type", "model")
        if isinstance(make, type) and issubclass(make, GNNModel):
            model: nn.Module = make.from_config(fields)
        else:
            model = _of_ones_own(make, fields)
        self._takes = taken(model, leaving=3) if isinstance(model, nn.Module) else {}
        return model

    def build_data(self) -> Splits:
        """The graphs of three parts, which rank 0 has written for all."""
        if "dataset" in self.config.data:
            return super().build_data()
        seed, folder = self.config.training.seed, self.state.folder
        return prepared(self.config.data, seed, self._place, beside=folder)

    def collate(self, samples: list[Any]) -> Any:
        """One large graph of many small ones."""
        return Batch.from_data_list(samples)

    def apply(self, model: nn.Module, batch: Any) -> Any:
        """The network's outputs for a batch of graphs."""
        beside = {name: getattr(batch, name, None) for name in ("graph_features", "edge_attr", "edge_weight")}
        told = given(self._takes, size=batch.num_graphs, **beside)
        return model(batch.x, batch.edge_index, batch.batch, **told)


def _of_ones_own(make: Any, fields: dict[str, Any]) -> Any:
    """What somebody's own class or function gives, which no field here is checked for."""
    problems: list[str] = []
    fields = names.arguments(fields, "model", problems)
    if problems:
        raise ConfigError(problems)
    if fields.keys() <= {"args", "kwargs"}:
        before, by_name = fields.get("args") or [], fields.get("kwargs") or {}
        return made(make, by_name, "model.kwargs", "model.type", before)
    return made(make, fields, "model", "model.type")


MANIFOLD, DIMENSION = 0, 1
"""The heads."""

MOST_ELEMENTS = 20_000
"""A causal set is a matrix: so many elements need some 10 GB while one is made."""


class CausetTask(Task):
    """Head 0: a logit that the set is manifold-like. Head 1: its dimension, where it is.

    `model` holds arguments of `CausetNetwork`, `sets` the sizes of the training, validation and test set,
    `mean` the expected number of elements. No set is in two of the three.

    Raises:
        ConfigError: with every argument that makes no sense.
    """

    def __init__(
        self,
        model: Mapping[str, Any] | None = None,
        sets: Sequence[int] = (4000, 500, 1000),
        mean: float = 64.0,
        seed: int = 0,
    ):
        problems = [*_wrong_model(model), *_wrong_sets(sets)]
        if not _is_number(mean) or not 2 <= mean <= MOST_ELEMENTS:
            problems.append(f"mean: is {mean!r}, but takes a number from 2 to {MOST_ELEMENTS}")
        if type(seed) is not int or seed < 0:
            problems.append(f"seed: is {seed!r}, but takes a whole number of at least 0")
        if problems:
            raise ConfigError([f"task_kwargs.{problem}" for problem in problems])
        self._model = dict(model or {})
        self._sets = tuple(sets)
        self._mean = mean
        self._seed = seed

    def build_model(self) -> nn.Module:
        """The network."""
        try:
            return CausetNetwork(FEATURES, **self._model)
        except ValueError as error:
            raise ConfigError([f"task_kwargs.model.{error}"]) from error

    def build_data(self) -> Splits:
        """Three runs of indices, one after the other."""
        firsts = [0, self._sets[0], self._sets[0] + self._sets[1]]
        return Splits(
            *(
                Causets(length, mean=self._mean, seed=self._seed, first=first)
                for first, length in zip(firsts, self._sets, strict=True)
            )
        )

    def collate(self, samples: list[Any]) -> Any:
        """One large graph of many small ones."""
        return Batch.from_data_list(samples)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Binary cross-entropy, plus the dimension's error where there is a dimension."""
        return Loss(_total(_outputs(model, batch), batch))

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum]:
        """The loss, the classifier's accuracy, and the dimension's mean absolute errors.

        `dimension_error` is the network's, `estimator_error` that of Myrheim and Meyer.
        """
        outputs = _outputs(model, batch)
        sums: dict[str, Sum] = {"loss": (_total(outputs, batch), None)}
        manifold = batch.manifold > 0
        if MANIFOLD in outputs:
            right = (outputs[MANIFOLD].squeeze(1) > 0) == manifold
            sums["accuracy"] = (right.sum(), len(right))
        if DIMENSION in outputs and manifold.any():
            error = (dimension(outputs) - batch.dimension).abs()[manifold]
            estimated = (batch.estimate - batch.dimension).abs()[manifold]
            sums["dimension_error"] = (error.sum(), len(error))
            sums["estimator_error"] = (estimated.sum(), len(estimated))
        return sums

    def report(self, measures: Mapping[str, float], train: Any, test: Any) -> tuple[str, dict[str, float]]:
        """What the network is worth, in words, and the dimension's errors that it is compared with."""
        line = None
        if isinstance(train, Causets) and isinstance(test, Causets) and "dimension_error" in measures:
            line = linear_error(train, test)
        others = {"Myrheim-Meyer": measures.get("estimator_error"), "linear fit": line}
        return table(measures, line), {name: each for name, each in others.items() if each is not None}


def _outputs(model: nn.Module, batch: Any) -> dict[int, Tensor]:
    outputs: dict[int, Tensor] = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
    return outputs


def _total(outputs: Mapping[int, Tensor], batch: Any) -> Tensor:
    """The sum of the losses of a batch's sets."""
    total: Tensor = torch.zeros((), device=batch.x.device)
    if MANIFOLD in outputs:
        logits = outputs[MANIFOLD].squeeze(1)
        total = total + binary_cross_entropy_with_logits(logits, batch.manifold, reduction="sum")
    if DIMENSION in outputs:
        errors = smooth_l1_loss(dimension(outputs), batch.dimension, reduction="none")
        total = total + (errors * batch.manifold).sum()
    return total


def dimension(outputs: Mapping[int, Tensor]) -> Tensor:
    """The dimension that the second head means; 3 is the middle of those there are."""
    return 3.0 + outputs[DIMENSION].squeeze(1)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _wrong_model(model: Any) -> list[str]:
    """What is wrong with the names of the network's arguments; it judges the values itself."""
    if model is None:
        return []
    if not isinstance(model, Mapping):
        return [f"model: is {model!r}, but takes arguments of CausetNetwork by name"]
    names = [name for name in inspect.signature(CausetNetwork).parameters if name not in ("in_dim", "heads")]
    problems = []
    for name in model:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
            problems.append(f"model.{name}: there is no such field{hint}")
    return problems


def _wrong_sets(sets: Any) -> list[str]:
    if (
        isinstance(sets, (list, tuple))
        and len(sets) == 3
        and all(type(size) is int and size >= 0 for size in sets)
        and sets[0] > 0
    ):
        return []
    return [f"sets: is {sets!r}, but takes three sizes, as in [4000, 500, 1000]: training, validation, test"]
