"""The task of a configuration: a network on graphs, their data, and the evaluation."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn
from torch_geometric.data import Batch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.gnn.graphs import settings
from castoff.trainers.gnn.graphs.dataset import Graphs
from castoff.trainers.gnn.graphs.splits import prepared
from castoff.trainers.gnn.models.parts import of_libraries
from castoff.trainers.gnn.models.section import applied, model_of
from castoff.trainers.gnn.models.trial import trial
from castoff.trainers.gnn.names import found
from castoff.trainers.task import Splits, move
from castoff.trainers.task.configured_task import ConfiguredTask


class GraphTask(ConfiguredTask):
    """Trains a network on graphs, passing the inputs that the network's forward has parameters for.

    `data` has files, causets or a dataset. The criterion is called with (outputs, batch), and monitors with
    the outputs and `batch.y` of all batches. Networks, criteria and monitors may have bare names.

    Raises:
        ConfigError: lists everything in the configuration that makes no sense.
    """

    volatile_arguments = ("data.output", "data.n_processes", "data.chunksize", "data.validate_data")

    _context: RankContext
    _graphs: Mapping[str, Any] | None = None
    """Number and digest of graphs from stores; generated graphs follow from the configuration."""

    def missing(self) -> list[str]:
        """What is missing in the configuration, and what is wrong in its data section."""
        problems = []
        if not self.config.model:
            problems.append("model: is missing; write the arguments of GNNModel, or your own type and its")
        if self.config.criterion is None:
            problems.append("criterion: is missing; write !pyobject my_module.compute_loss")
        if not self.config.data:
            problems.append("data: is missing; write files: [...], causets: {...}, or dataset: !pyobject …")
        elif "dataset" in self.config.data:
            problems += self.wrong_dataset()
        else:
            settings.read(self.config.data, problems)
        return problems

    def find(self, value: Any, field: str, kind: str) -> Any:
        """Find a class or function, which may have one of castoff's bare names."""
        return super().find(value, field, kind) if kind == "apply_model" else found(value, field, kind)

    def setup(self, context: RankContext) -> None:
        """Keep the rank's context, by which graphs are written and mapped."""
        super().setup(context)
        self._context = context

    def build_model(self) -> nn.Module:
        """Make the network that the `model` section describes."""
        model = model_of(self.config.model)
        self._applied = applied(model)
        self._tried = copy.deepcopy(model)  # which stays whole if the model is sharded
        return model

    def build_data(self) -> Splits:
        """The graphs in three parts, which rank 0 writes for all."""
        if "dataset" in self.config.data:
            splits = super().build_data()
        else:
            seed, folder = self.config.training.seed, self.state.folder
            splits = prepared(self.config.data, seed, self._context, beside=folder)
        self.trained_on(splits.train)
        return splits

    def trained_on(self, train: Any) -> None:
        """Record the training graphs, and check that the network can take them.

        Raises:
            ConfigError: the network cannot take them.
        """
        graphs = getattr(train, "dataset", None)
        if "files" in self.config.data and isinstance(graphs, Graphs):
            self._graphs = {"number": len(graphs), "digest": graphs.digest}
        self._see_that_it_fits(train)

    @staticmethod
    def collate(samples: list[Any]) -> Any:
        """Combine graphs to one large graph. A static method, so that spawned loader workers do not get the
        task.
        """
        return Batch.from_data_list(samples)

    def apply(self, model: nn.Module, batch: Any) -> Any:
        """The network's outputs for a batch of graphs."""
        return self._applied(model, batch)

    def state_dict(self) -> dict[str, Any]:
        """The core's state, and which graphs are trained on."""
        graphs = {} if self._graphs is None else {"graphs": dict(self._graphs)}
        return {**super().state_dict(), **graphs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the core's state, and check that the graphs are the same.

        Raises:
            ConfigError: they differ; some test graphs may have been trained on.
        """
        super().load_state_dict(state)
        self._context.on_main(partial(_see_that_they_are_the_same, state.get("graphs"), self._graphs))

    def _see_that_it_fits(self, train: Any) -> None:
        """Apply the network to the first graph, because torch's later errors name no field.

        Raises:
            ConfigError: the network cannot take the graph.
        """
        if not (hasattr(train, "__getitem__") and len(train)):
            return
        graph = train[0]
        batch = move(self.collate([graph]), self._context.device)
        try:
            model = self._tried.to(self._context.device)
            with trial(model):
                self._training.apply(model, batch)
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            if not of_libraries(error):
                raise  # a mistake in the user's own network
            message = " ".join(str(error).split())
            has = f"{graph.x.shape[1]} numbers per node" if hasattr(graph.x, "shape") else f"{graph}"
            raise ConfigError(
                [
                    f"model: cannot process the first graph of data, which has {has}: {message}; make model "
                    "and data match"
                ]
            ) from error


def _see_that_they_are_the_same(before: Mapping[str, Any] | None, current: Mapping[str, Any] | None) -> None:
    if before is None or current is None or before == current:
        return
    raise ConfigError(
        [
            f"data.files: give {current['number']:,} graphs, which are not the {before['number']:,} "
            "graphs that this training began with: a file or the code of reader, pre_filter or "
            "pre_transform has changed; restore the old state, start over with training.fresh: true "
            "(--fresh), or train in a separate folder, with training.run: NAME"
        ]
    )
