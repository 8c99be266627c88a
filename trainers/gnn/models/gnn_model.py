"""A graph network in QuantumGrav's schema: encoder, pooling or latent model, graph features, heads."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from castoff.launcher.typed.suggestion import suggestion
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.inputs import given, taken
from castoff.trainers.gnn.models.joints import JoinedParts, shape_errors
from castoff.trainers.gnn.models.parts import Fields, Part, built, part, part_of
from castoff.trainers.gnn.names import found


class GNNModel(JoinedParts):
    """Maps node features, edges and each node's graph to {number of a task: its output}.

    Every part is a class, function or module, or the name of one, with its arguments next to it. The encoder
    makes node embeddings; the poolings reduce them to a row for each graph, and an aggregation joins their
    rows, or a latent model replaces both; another network processes graph features, whose result is joined
    with the embeddings; every active head gets the result.

    Inactive heads are frozen, because DistributedDataParallel waits for a gradient of every parameter that
    requires one. When the model is made, a tiny synthetic batch goes through all parts.

    Args:
        encoder_type, encoder_args, encoder_kwargs: Computes node embeddings from x and edge_index. It also
            gets `batch`, `batch_size`, `edge_attr` and `edge_weight` if its forward has such a parameter.
        downstream_tasks: A list of heads. Each gets one row per graph.
        pooling_layers: A list of poolings, which reduce node embeddings to one row per graph. Without them,
            heads get the encoder's output.
        aggregate_pooling_type, aggregate_pooling_args, aggregate_pooling_kwargs: Combines the rows of all
            poolings into one; by default it concatenates them (`cat`).
        latent_model_type, latent_model_args, latent_model_kwargs: Replaces poolings. It gets the
            embeddings, and `edge_index`, `batch` and `num_graphs` if its forward has such a parameter.
        graph_features_net_type, graph_features_net_args, graph_features_net_kwargs: A network for
            `graph_features` (graphs, numbers), which every graph must then have.
        aggregate_graph_features_type, aggregate_graph_features_args, aggregate_graph_features_kwargs: Joins
            embeddings and the output of that network; by default it concatenates them.
        active_tasks: True or false for each head's number; by default all heads are active.

    Raises:
        ConfigError: lists every argument that makes no sense, or parts that do not fit together.
    """

    def __init__(
        self,
        encoder_type: Any,
        downstream_tasks: Sequence[Any],
        encoder_args: Sequence[Any] | None = None,
        encoder_kwargs: Mapping[str, Any] | None = None,
        pooling_layers: Sequence[Any] | None = None,
        aggregate_pooling_type: Any = None,
        aggregate_pooling_args: Sequence[Any] | None = None,
        aggregate_pooling_kwargs: Mapping[str, Any] | None = None,
        latent_model_type: Any = None,
        latent_model_args: Sequence[Any] | None = None,
        latent_model_kwargs: Mapping[str, Any] | None = None,
        graph_features_net_type: Any = None,
        graph_features_net_args: Sequence[Any] | None = None,
        graph_features_net_kwargs: Mapping[str, Any] | None = None,
        aggregate_graph_features_type: Any = None,
        aggregate_graph_features_args: Sequence[Any] | None = None,
        aggregate_graph_features_kwargs: Mapping[str, Any] | None = None,
        active_tasks: Mapping[Any, bool] | None = None,
    ):
        super().__init__()
        fields = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        problems = _alone(fields)
        pooled, featured = bool(pooling_layers), graph_features_net_type is not None
        encoder = _part("encoder", fields, "layer", problems)
        latent = _part("latent_model", fields, "layer", problems)
        net = _part("graph_features_net", fields, "layer", problems)
        pooling_aggregate = _part(
            "aggregate_pooling", fields, "aggregation", problems, default="cat" if pooled else None
        )
        feature_aggregate = _part(
            "aggregate_graph_features", fields, "aggregation", problems, default="cat" if featured else None
        )
        poolings = _parts("pooling_layers", pooling_layers, "pooling", problems)
        heads = _parts("downstream_tasks", downstream_tasks, "layer", problems)
        self.active_tasks = _active(len(downstream_tasks or ()), active_tasks, problems)
        """Whether each head is trained, by its number."""
        whole = (encoder, pooling_aggregate, latent, net, feature_aggregate)
        made = [_built(each, problems) for each in whole]
        layers, tasks = _all_built(poolings, problems), _all_built(heads, problems)
        if problems or made[0] is None:
            raise ConfigError(problems)
        self.encoder = made[0]
        self.pooling_layers = nn.ModuleList(layers) if pooled else None
        self.aggregate_pooling, self.latent_model = made[1], made[2]
        self.graph_features_net, self.aggregate_graph_features = made[3], made[4]
        self.downstream_tasks = nn.ModuleList(tasks)
        self._to_encoder = taken(self.encoder, leaving=2)
        self._to_poolings = [_only_size(taken(layer, leaving=2)) for layer in layers]
        self._to_latent = taken(self.latent_model) if self.latent_model is not None else {}
        problems += shape_errors(self)
        if problems:
            raise ConfigError(problems)
        self._freeze()

    @classmethod
    def from_config(cls, fields: Mapping[str, Any]) -> GNNModel:
        """Make the network that a `model` section describes.

        Raises:
            ConfigError: lists every problem of the section.
        """
        fields = dict(fields)
        name = fields.pop("type", cls)
        if found(name, "model.type", "model") is not cls:
            raise ConfigError([f"model.type: is {name!r}, but this makes a {cls.__name__}; drop it"])
        known = list(inspect.signature(cls).parameters)
        unknown = [
            f"model.{name}: there is no such field{suggestion(str(name), known)}"
            for name in fields
            if name not in known
        ]
        arguments: dict[str, Any] = {"encoder_type": None, "downstream_tasks": None}
        arguments |= {name: value for name, value in fields.items() if name in known}
        try:
            model: GNNModel = cls(**arguments)
        except ConfigError as error:
            raise ConfigError([*unknown, *error.problems]) from error
        if unknown:
            raise ConfigError(unknown)
        return model

    @property
    def takes_graph_features(self) -> bool:
        """Whether the model has a network for graph features."""
        return self.graph_features_net is not None

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        graph_features: Tensor | None = None,
        latent_args: Sequence[Any] | None = None,
        latent_kwargs: Mapping[str, Any] | None = None,
        downstream_task_args: Sequence[Sequence[Any]] | None = None,
        downstream_task_kwargs: Sequence[Mapping[str, Any]] | None = None,
        embedding_kwargs: Mapping[str, Any] | None = None,
        *,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        size: int | None = None,
    ) -> dict[int, Tensor]:
        """The outputs of the active tasks, by their numbers.

        `x` (nodes, numbers), `edge_index` (2, edges), `batch` (nodes,): the graph of each node; None: all are
        in one. `graph_features` (graphs, numbers). `size`: the number of graphs, without which empty ones at
        the end are missed.

        Raises:
            ConfigError: graph features are missing, or no part takes them.
        """
        if size is None and graph_features is not None:
            size = graph_features.shape[0]
        embeddings = self.get_embeddings(
            x,
            edge_index,
            batch,
            embedding_kwargs,
            latent_args,
            latent_kwargs,
            edge_attr=edge_attr,
            edge_weight=edge_weight,
            size=size,
        )
        embeddings = self.with_graph_features(embeddings, graph_features)
        return self.compute_downstream_tasks(embeddings, downstream_task_args, downstream_task_kwargs)

    def get_embeddings(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        gcn_kwargs: Mapping[str, Any] | None = None,
        latent_args: Sequence[Any] | None = None,
        latent_kwargs: Mapping[str, Any] | None = None,
        *,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        size: int | None = None,
    ) -> Any:
        """The encoder's output, after poolings or the latent model if there are any."""
        graph = {"edge_index": edge_index, "batch": batch, "size": size}
        edges = {"edge_attr": edge_attr, "edge_weight": edge_weight}
        embeddings = self.encoder(
            x, edge_index, **{**given(self._to_encoder, **graph, **edges), **(gcn_kwargs or {})}
        )
        if self.latent_model is not None:
            stated = {**given(self._to_latent, **graph, **edges), **(latent_kwargs or {})}
            return self.latent_model(embeddings, *(latent_args or ()), **stated)
        if self.pooling_layers is None or self.aggregate_pooling is None:
            return embeddings
        if batch is None:
            batch, size = embeddings.new_zeros(embeddings.shape[0], dtype=torch.int64), 1
        return self.aggregate_pooling(self.pooled(embeddings, batch, size))

    def pooled(self, embeddings: Tensor, batch: Tensor, size: int | None) -> list[Tensor]:
        """The output of each pooling for node embeddings, (graphs, numbers)."""
        return [
            pool(embeddings, batch, **given(takes, size=size))
            for pool, takes in zip(self.pooling_layers or (), self._to_poolings, strict=True)
        ]

    def with_graph_features(self, embeddings: Any, graph_features: Tensor | None) -> Any:
        """Embeddings joined with the output of the network for graph features."""
        if self.graph_features_net is None or self.aggregate_graph_features is None:
            if graph_features is not None:
                raise ConfigError([f"model.graph_features_net_type: is missing, {_FEATURES}"])
            return embeddings
        if graph_features is None:
            raise ConfigError([f"model.graph_features_net_type: is given, {_NO_FEATURES}"])
        return self.aggregate_graph_features(embeddings, self.graph_features_net(graph_features))

    def compute_downstream_tasks(
        self,
        x: Any,
        args: Sequence[Sequence[Any]] | None = None,
        kwargs: Sequence[Mapping[str, Any]] | None = None,
    ) -> dict[int, Tensor]:
        """The outputs of the active heads for embeddings, by their numbers."""
        return {
            number: head(x, *(args[number] if args else ()), **(kwargs[number] if kwargs else {}))
            for number, head in enumerate(self.downstream_tasks)
            if self.active_tasks[number]
        }

    def set_task_active(self, key: int) -> None:
        """Train a head. Call this before the model is passed to a trainer."""
        self._switch(key, on=True)

    def set_task_inactive(self, key: int) -> None:
        """Stop training a head. Call this before the model is passed to a trainer."""
        self._switch(key, on=False)

    def save(self, path: str | Path) -> None:
        """Write the weights."""
        torch.save(self.state_dict(), path)

    @classmethod
    def load(
        cls, path: str | Path, config: Mapping[str, Any], device: torch.device | str = "cpu"
    ) -> GNNModel:
        """Make the network that a `model` section describes, with saved weights.

        Raises:
            ConfigError: lists every problem of the section.
            RuntimeError: the weights are of another network.
        """
        model = cls.from_config(config).to(device)
        model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
        return model

    def _switch(self, key: int, *, on: bool) -> None:
        if key not in self.active_tasks:
            raise KeyError(f"there is no task {key!r}, only 0 to {len(self.active_tasks) - 1}")
        if not on and [number for number, is_on in self.active_tasks.items() if is_on] == [key]:
            raise ValueError(f"task {key} is the only active one; keep it active")
        self.active_tasks[key] = on
        self.downstream_tasks[key].requires_grad_(on)
        self._freeze()

    def _freeze(self) -> None:
        """Freeze inactive heads, except for weights that they share with active parts."""
        active = [head for number, head in enumerate(self.downstream_tasks) if self.active_tasks[number]]
        others = [child for name, child in self.named_children() if name != "downstream_tasks"]
        used = {id(weight) for part in (*others, *active) for weight in part.parameters()}
        for weight in self.downstream_tasks.parameters():
            if id(weight) not in used:
                weight.requires_grad_(False)


_FEATURES = "but graph features are passed; name a network for them, or pass none"
_NO_FEATURES = (
    "but the graphs have no graph_features; give each graph some, of shape (1, numbers), or drop "
    "graph_features_net_type"
)


def _alone(fields: Mapping[str, Any]) -> list[str]:
    """Errors about arguments that need another one, or exclude each other."""
    problems = [
        f"model.{name}: is missing; {write}"
        for name, write in (("encoder_type", _WRITE_ENCODER), ("downstream_tasks", _WRITE_HEADS))
        if fields[name] is None
    ]
    if fields["aggregate_pooling_type"] is not None and fields["pooling_layers"] is None:
        problems.append(
            "model.aggregate_pooling_type: is given, but pooling_layers is missing; name the poolings "
            "to aggregate, such as [mean, max]"
        )
    if fields["aggregate_graph_features_type"] is not None and fields["graph_features_net_type"] is None:
        problems.append(
            "model.aggregate_graph_features_type: is given, but graph_features_net_type is missing; "
            "name a network for graph features, or identity"
        )
    if fields["latent_model_type"] is not None and fields["pooling_layers"] is not None:
        problems.append(
            "model.latent_model_type: is given, and pooling_layers, too, but only one of them can be "
            "used; drop the other"
        )
    return problems


_WRITE_ENCODER = (
    "name the module that makes node embeddings, such as encoder_type: Encoder, encoder_args: [5, [64, 64]]"
)
_WRITE_HEADS = "write a list of heads, each as [type, args, kwargs]: [[LinearSequential, [[64, 32, 1]]]]"


def _part(
    name: str, fields: Mapping[str, Any], kind: str, problems: list[str], default: Any = None
) -> Part | None:
    at = Fields(*(f"model.{name}_{each}" for each in Fields._fields))
    given = [fields[f"{name}_{field}"] for field in Fields._fields]
    if name == "encoder" and given[0] is None:
        return None
    return part(given[0], given[1], given[2], at, kind, problems, default)


def _parts(name: str, value: Any, kind: str, problems: list[str]) -> list[Part]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)) or not value:
        what = (
            "heads, each as [type, args, kwargs]" if name == "downstream_tasks" else "some, as in [mean, max]"
        )
        problems.append(f"model.{name}: is {value!r}, but takes a list of {what}")
        return []
    parts = [part_of(each, f"model.{name}[{number}]", kind, problems) for number, each in enumerate(value)]
    return [each for each in parts if each is not None]


def _built(described: Part | None, problems: list[str]) -> nn.Module | None:
    if described is None:
        return None
    try:
        return built(described)
    except ConfigError as error:
        problems += error.problems
        return None


def _all_built(parts: Sequence[Part], problems: list[str]) -> list[nn.Module]:
    return [each for described in parts if (each := _built(described, problems)) is not None]


def _only_size(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: meaning for name, meaning in parameters.items() if meaning == "size"}


def _active(heads: int, asked: Any, problems: list[str]) -> dict[int, bool]:
    """Which heads are active; in `asked`, their numbers may be text, as `--set` leaves them."""
    active = dict.fromkeys(range(heads), True)
    if asked is None or not heads:
        return active
    field = "model.active_tasks"
    if not isinstance(asked, Mapping):
        problems.append(f"{field}: is {asked!r}, but takes true or false by number, as in {{1: false}}")
        return active
    for name, is_on in asked.items():
        number = int(name) if str(name).isdecimal() else heads
        if number not in active:
            problems.append(f"{field}.{name}: there is no such task; there are 0 to {heads - 1}")
        elif not isinstance(is_on, bool):
            problems.append(f"{field}.{name}: is {is_on!r}, but takes true or false")
        else:
            active[number] = is_on
    if not any(active.values()):
        problems.append(f"{field}: switches every task off; leave one on")
    return active
