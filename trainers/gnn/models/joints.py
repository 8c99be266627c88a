"""Checks with a tiny synthetic batch that the parts of a network fit together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from castoff.trainers.gnn.models.inputs import given, taken
from castoff.trainers.gnn.models.parts import name_of, of_libraries
from castoff.trainers.gnn.models.trial import trial

GRAPHS = 3
_GRAPH_OF = (0, 0, 0, 1, 1, 2)
_EDGES = ((0, 1, 1, 2, 3, 4), (1, 0, 2, 1, 4, 3))
"""Edges of a graph of three nodes, one of two, and one of a single node."""


class JoinedParts(nn.Module):
    """The parts of a graph network, in the order in which a batch passes them."""

    encoder: nn.Module
    pooling_layers: nn.ModuleList | None
    aggregate_pooling: nn.Module | None
    latent_model: nn.Module | None
    graph_features_net: nn.Module | None
    aggregate_graph_features: nn.Module | None
    downstream_tasks: nn.ModuleList


def shape_errors(model: JoinedParts) -> list[str]:
    """Errors about parts of a model that do not fit the output of the part before them.

    Nothing is reported if this cannot be known: for an encoder whose input width is unknown, or a custom part
    that fails for another reason than a width.
    """
    width = width_into(model.encoder)
    if width is None:
        return []
    misfits = _Misfits(model)
    with trial(model):
        misfits.look(torch.rand(len(_GRAPH_OF), width, generator=torch.Generator().manual_seed(0)))
    return [f"model.{problem}" for problem in misfits.problems]


class _Misfits:
    """Passes a batch through a model, and collects errors."""

    def __init__(self, model: JoinedParts):
        self.problems: list[str] = []
        self._model = model
        self._edges = torch.tensor(_EDGES)
        self._graph_of = torch.tensor(_GRAPH_OF)

    def look(self, nodes: Tensor) -> None:
        """Pass node features through all parts, as far as they fit."""
        model, name = self._model, name_of(self._model.encoder)
        graph = {"batch": self._graph_of, "size": GRAPHS}
        stated = given(taken(model.encoder, leaving=2), **graph)
        takes = f"{nodes.shape[1]} numbers per node"
        embeddings = self._of("encoder_type", model.encoder, takes, nodes, self._edges, **stated)
        if not isinstance(embeddings, Tensor) or embeddings.dim() != 2:
            return  # the next part may take it
        source = f"the encoder ({name})"
        if model.pooling_layers is not None:
            embeddings = self._pooled(embeddings, source)
            source = f"pooling_layers ({', '.join(map(name_of, model.pooling_layers))})"
        elif model.latent_model is not None:
            latent = model.latent_model
            stated = given(taken(latent), edge_index=self._edges, **graph)
            embeddings = self._of(
                "latent_model_type", latent, _from(source, embeddings), embeddings, **stated
            )
            source = f"the latent model ({name_of(latent)})"
        if model.graph_features_net is not None and isinstance(embeddings, Tensor):
            embeddings = self._featured(embeddings, source)
            source = f"embeddings with graph features ({name_of(model.aggregate_graph_features)})"
        if isinstance(embeddings, Tensor):
            self._into_heads(embeddings, source)

    def _pooled(self, embeddings: Tensor, source: str) -> Tensor | None:
        model = self._model
        rows = []
        for number, pool in enumerate(model.pooling_layers or ()):
            field = f"pooling_layers[{number}]"
            stated = {name: GRAPHS for name, meaning in taken(pool, leaving=2).items() if meaning == "size"}
            row = self._of(field, pool, _from(source, embeddings), embeddings, self._graph_of, **stated)
            rows.append(self._a_row_each(field, pool, row))
        aggregate = model.aggregate_pooling
        if aggregate is None or any(row is None for row in rows):
            return None
        shapes = ", ".join(str(tuple(row.shape)) for row in rows if row is not None)
        takes = f"a list of tensors, as pooling_layers return them: {shapes}"
        field = "aggregate_pooling_type"
        return self._a_row_each(field, aggregate, self._of(field, aggregate, takes, rows))

    def _featured(self, embeddings: Tensor, source: str) -> Tensor | None:
        net, aggregate = self._model.graph_features_net, self._model.aggregate_graph_features
        if net is None or aggregate is None:
            return embeddings
        width = width_into(net)
        if width is None or len(embeddings) != GRAPHS:
            return None
        features = torch.rand(GRAPHS, width, generator=torch.Generator().manual_seed(1))
        field = "graph_features_net_type"
        processed = self._a_row_each(field, net, self._of(field, net, f"{width} graph features", features))
        if processed is None:
            return None
        field = "aggregate_graph_features_type"
        takes = (
            f"{_from(source, embeddings)}, and graph_features_net's {_shape(processed)}, one after the other"
        )
        joined = self._of(field, aggregate, takes, embeddings, processed)
        return self._a_row_each(field, aggregate, joined)

    def _into_heads(self, embeddings: Tensor, source: str) -> None:
        for number, head in enumerate(self._model.downstream_tasks):
            self._of(f"downstream_tasks[{number}]", head, _from(source, embeddings), embeddings)

    def _of(self, field: str, part: nn.Module, takes: str, *inputs: Any, **stated: Any) -> Any:
        """The output of a part; None if it fails."""
        try:
            return part(*inputs, **stated)
        except Exception as error:  # noqa: BLE001  # whatever a part may raise
            wants = width_into(part)
            of_width = _WIDTHS in str(error) and isinstance(inputs[0], Tensor)
            if of_width and wants not in (None, inputs[0].shape[-1]):
                self.problems.append(
                    f"{field}: {name_of(part)} takes {wants} numbers per row, but gets {takes}"
                )
            elif of_width or of_libraries(error):
                reason = str(error).strip().splitlines() or [type(error).__name__]
                self.problems.append(f"{field}: {name_of(part)} does not take {takes}: {reason[0]}")
            return None

    def _a_row_each(self, field: str, part: nn.Module, made: Any) -> Tensor | None:
        """The output of a part, if it has a row for each graph."""
        if made is None:
            return None
        if isinstance(made, Tensor) and made.dim() == 2 and len(made) == GRAPHS:
            return made
        gave = _shape(made) if isinstance(made, Tensor) else f"a {type(made).__name__}"
        hint = "; to concatenate, use cat, or torch.cat with dim: 1" if field.startswith("aggregate") else ""
        problem = f"returns {gave} for {GRAPHS} graphs, but must return one row per graph{hint}"
        self.problems.append(f"{field}: {name_of(part)} {problem}")
        return None


_WIDTHS = "shapes cannot be multiplied"
"""torch's message when a linear layer gets an input of the wrong width."""


def _from(source: str, made: Tensor) -> str:
    return f"the output of {source}, {made.shape[1]} numbers per row"


def _shape(tensor: Tensor) -> str:
    return f"a tensor of shape {tuple(tensor.shape)}"


def width_into(module: nn.Module) -> int | None:
    """The width of a module's input, if it can be known; for nn.Sequential, from the first layer that has
    one.
    """
    for name in ("in_dim", "in_channels", "in_features"):
        width = getattr(module, name, None)
        if isinstance(width, (list, tuple)) and width:
            width = width[0]
        if type(width) is int and width >= 1:
            return width
    if isinstance(module, nn.Sequential):
        return next((width for each in module if (width := width_into(each)) is not None), None)
    return None
